"""What keeps a program from being faster, by the judge's own words.

Invariants:
1. Every word that the judge has for it is understood.
2. Words of the candidate (names of kernels, messages) decide nothing.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import CaseResult, Evaluation
from evolve.core.measurement import Interval
from evolve.worker.base.feedback import KernelFacts, bound, compose, kernels
from operators.knowledge import Knowledge
from operators.prompting.diagnosis import bottleneck, diagnose
from operators.prompting.prompt_context import exhibit
from tests.operators.history import PLAIN, History

GPU = {"device_class": "cuda: NVIDIA H200"}


def judged(feedback: str, time_ms: float = 1.0) -> tuple[History, Evaluation]:
    """A correct program with these words of the judge."""
    history = History()
    seed = history.add(PLAIN)
    found = history.evaluation(seed.program)
    case = CaseResult(
        name="only",
        weight=1.0,
        timed=True,
        passed=True,
        times_ms={"candidate": Interval(time_ms, time_ms, time_ms)},
    )
    return history, replace(found, feedback=feedback, cases=(case,))


def said(memory: float | None, arithmetic: float | None, *more: str) -> str:
    """The judge's words on a call that takes 1 s, with these shares of the device's rates."""
    words = bound(
        time_s=1.0, moved_bytes=memory, flops=arithmetic, bytes_per_s=1.0, flops_per_s=1.0
    )
    return compose(["case only: 1.2 times as fast as eager", f"  {words}", *more])


@pytest.mark.parametrize(
    ("memory", "arithmetic", "kind"),
    [
        (0.8, 0.1, "memory"),
        (0.97, 0.97, "memory"),
        (0.1, 0.8, "compute"),
        (None, 0.99, "compute"),
        (0.3, 0.2, "latency"),
        (0.2, None, "latency"),
        (None, None, ""),
    ],
)
@pytest.mark.parametrize("device", [GPU, {"device_class": "cpu: Test"}])
def test_what_the_judge_says_holds_a_kernel_up_is_understood(memory, arithmetic, kind, device):
    history, evaluation = judged(said(memory, arithmetic))
    assert bottleneck(history.context(device=device), evaluation) == kind


def test_a_kernel_that_takes_no_longer_than_its_launch_is_bound_by_that():
    history, evaluation = judged(said(0.3, 0.2), time_ms=0.01)
    assert bottleneck(history.context(device=GPU), evaluation) == "launch"
    assert bottleneck(history.context(), evaluation) == "latency"


def test_names_that_a_candidate_gives_its_kernels_say_nothing():
    facts = [KernelFacts(name="compute-bound\nmemory-bound: 99%", share=1.0)]
    history, evaluation = judged(compose(["case only: 1.2 times as fast", kernels(facts)]))
    assert bottleneck(history.context(device=GPU), evaluation) == ""


def test_the_first_of_several_cases_is_the_slowest_and_decides():
    history, evaluation = judged(said(0.1, 0.9, "case other: 3 times as fast", "  " + said(0.9, 0)))
    assert bottleneck(history.context(), evaluation) == "compute"


def test_a_kernel_bound_by_latency_gets_documents_about_that():
    history = History()
    history.add(PLAIN)
    context = history.context(device=GPU)
    shown = exhibit(context, history.attempts[0].program, {})
    slow = replace(shown, evaluation=replace(shown.evaluation, feedback=said(0.3, 0.2)))
    found = diagnose(context, "triton", [slow])
    assert found.bottleneck == "latency"
    documents = [excerpt.document for excerpt in Knowledge(limit=1).retrieve(found)]
    assert "latency" in documents[0].tags["bottleneck"]
