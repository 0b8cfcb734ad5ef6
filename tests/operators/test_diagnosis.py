"""What keeps a program from being faster, by the judge's own words.

Invariants:
1. Every word that the judge has for it is understood.
2. Words of the candidate (names of kernels, messages) decide nothing.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import CaseResult, Evaluation, Status
from evolve.core.measurement import Interval
from evolve.core.task import Task
from evolve.testing.synthetic import synthetic_task
from evolve.worker.base.feedback import KernelFacts, bound, compose, kernels
from operators.knowledge import Diagnosis, Knowledge
from operators.prompting.diagnosis import bottleneck, diagnose, pattern_of, precision_of
from operators.prompting.prompt_context import exhibit
from tests.operators.history import PLAIN, History, failing

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


STREAMED = {"language": "triton", "compute_pattern": "reduction", "tensor_cores": "no"}
TILED = {"language": "triton", "compute_pattern": "tiled", "tensor_cores": "tf32"}


@pytest.mark.parametrize(
    ("category", "descriptors", "pattern"),
    [
        ("matmul", STREAMED, "reduction"),
        ("matmul", TILED, "matmul"),
        ("matmul", STREAMED | {"language": "cpp"}, "matmul"),  # which multiplies so on a CPU too
        ("convolution", STREAMED | {"compute_pattern": "elementwise"}, "elementwise"),
        ("attention", STREAMED | {"compute_pattern": "online"}, "attention"),
        ("softmax", STREAMED, "softmax"),
    ],
)
def test_notes_go_by_what_became_of_the_operation(category, descriptors, pattern):
    """A product that had collapsed to a matrix-vector product was told of tiles of matrices."""
    task = replace(synthetic_task(), category=category)
    found = replace(failing(Status.CORRECT), descriptors=descriptors)
    assert pattern_of(task, found) == pattern
    assert pattern_of(task, None) == category


@pytest.mark.parametrize(
    ("source", "precision", "kind"),
    [
        ("x = torch.rand(4)", "task", "fp32"),
        ("x = torch.rand(4)", "bf16", "half"),
        ("x = torch.rand(4, dtype=torch.float16)", "task", "half"),
        ("x = torch.rand(4).half()", "task", "half"),
        ("x = torch.zeros(4, dtype=torch.int8)", "task", "int8"),
        ("x = x.to(torch.float8_e4m3fn)", "task", "fp8"),
    ],
)
def test_the_precision_is_that_of_the_operands(source, precision, kind):
    assert precision_of(Task(name="any", source=source, precision=precision)) == kind


def test_documents_and_sections_of_another_precision_stay_out():
    asked = Diagnosis(bottleneck="compute", category="matmul", device="nvidia/hopper")
    knowledge = Knowledge(limit=9, budget_tokens=99_000, unmeasured=True)
    texts = {
        kind: {
            found.document.id: found.text
            for found in knowledge.retrieve(replace(asked, precision=kind))
        }
        for kind in ("fp32", "half")
    }
    assert "fp32-tensor-cores" in texts["fp32"]
    assert "fp32-tensor-cores" not in texts["half"]
    tiles = "Tiles to try (half precision, tensor cores)"
    assert tiles in texts["half"]["gemm-tiling"]
    assert tiles not in texts["fp32"]["gemm-tiling"]
