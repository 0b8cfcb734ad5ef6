"""The reference run in other ways, as a side that candidates are timed against.

Invariants:
- a baseline is measured in the same interleaved run as the candidate, and its ratio is stored;
- a name that is none, or that makes no sense on the device, is refused with what to use instead.
"""

import pytest

from evolve.core.evaluation import Status
from evolve.worker.runner.baselines import _OF_INDUCTOR
from tests.worker.serving import HONEST_CPP, RELU_TASK


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "message"), [("eagre", "choose of eager_ieee"), ("eager_tf32", "no TF32")]
)
def test_a_baseline_that_cannot_be_is_refused(worker, name, message):
    reply = worker.send("baselines", task=RELU_TASK.to_json(), names=[name]).result(60)
    assert reply["error"]["kind"] == "usage"
    assert message in reply["error"]["message"]


@pytest.mark.slow
def test_an_opponent_that_makes_no_sense_on_the_device_is_refused(worker):
    task = RELU_TASK.to_json()
    opponents = {"eager_ieee": ""}
    reply = worker.send(
        "evaluate", task=task, source=HONEST_CPP, fidelity="screen", opponents=opponents
    ).result(60)
    assert reply["error"]["kind"] == "usage"


def test_this_torch_has_all_that_is_set_of_its_compiler():
    from torch._inductor import config

    assert [name for name in _OF_INDUCTOR if not hasattr(config, name)] == []


@pytest.mark.slow
def test_what_torch_compiles_is_timed_beside_the_candidate(worker):
    verdict = worker.evaluate(HONEST_CPP, opponents={"compile": ""})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(verdict.ratios) == {"eager", "compile"}, verdict.labels
    assert {"candidate", "eager", "compile"} == set(verdict.cases[0].times_ms)
