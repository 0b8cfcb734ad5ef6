"""How many processes an evaluation takes, and what the later ones get of the first.

Invariants:
- a candidate is compiled, checked and tried without its kernels in one process;
- what it says there without them counts against it only, where a fresh process may say otherwise.
"""

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.referee import Referee
from tests.worker.serving import HOLDS_FUNCTIONS, HONEST_CPP, RELU_TASK, forward


@pytest.fixture(scope="module")
def referee(tmp_path_factory):
    referee = Referee(CpuDevice(), tmp_path_factory.mktemp("cache"))
    yield referee
    referee.close()


@pytest.fixture
def judged(referee, monkeypatch):
    """A verdict on a source at fidelity check, and how many processes it took."""
    started = []
    start = referee.launcher.start

    def counted(*about, **options):
        started.append(about)
        return start(*about, **options)

    monkeypatch.setattr(referee.launcher, "start", counted)

    def judge(source: str):
        started.clear()
        return referee.evaluate(RELU_TASK, source, Fidelity.CHECK, {}), len(started)

    referee.warm(RELU_TASK)
    return judge


def test_an_honest_kernel_is_compiled_and_checked_in_one_process(judged):
    verdict, processes = judged(HONEST_CPP)
    assert verdict.strict
    assert processes == 1


def test_a_wrong_one_too(judged):
    verdict, processes = judged(HONEST_CPP.replace("* 2 : 0", "* 3 : 0"))
    assert verdict.status is Status.WRONG_VALUE
    assert processes == 1


def test_who_keeps_the_functions_of_its_kernels_is_tried_without_them_in_a_fresh_process(judged):
    verdict, processes = judged(HOLDS_FUNCTIONS)
    assert verdict.strict
    assert processes == 2


def test_a_fresh_process_confirms_that_kernels_make_nothing(judged):
    verdict, processes = judged(forward("return right(x)"))
    assert verdict.status is Status.CORRECT
    assert verdict.custom is False
    assert processes == 2
    assert "decoy_kernel" in {label.name for label in verdict.labels}
