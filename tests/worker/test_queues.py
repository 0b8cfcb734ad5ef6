"""Whose work may be in several streams of a GPU at once has all of its queues; others open one.

The GPU's half of it is in `tests/gpu/test_service.py`.
"""

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.queues import may_overlap
from evolve.worker.referee import Referee
from tests.worker.serving import HONEST_CPP, RELU_TASK


class Noting(CpuDevice):
    """Notes of each process that is prepared whether its work may overlap."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def prepare(self, process, overlaps=False):
        self.noted.append(overlaps)


@pytest.fixture
def judged(tmp_path):
    device = Noting()
    referee = Referee(device, tmp_path)

    def judge(source, fidelity):
        device.noted.clear()
        verdict = referee.evaluate(RELU_TASK, source, fidelity, {})
        assert verdict.status is Status.CORRECT
        return set(device.noted)

    yield judge
    referee.close()


def test_a_program_in_one_stream_opens_one_queue(judged):
    assert judged(HONEST_CPP, Fidelity.SCREEN) == {False}


def test_a_program_that_speaks_of_streams_has_all_and_the_reference_beside_it_one(judged):
    assert judged(f"{HONEST_CPP}\n# in a Stream of its own\n", Fidelity.SCREEN) == {False, True}


def test_in_a_verification_everybody_has_all(judged):
    assert judged(HONEST_CPP, Fidelity.VERIFY) == {True}


@pytest.mark.parametrize("text", ["torch.cuda.Stream()", "cudaStream_t s;", "nn.LSTM(3, 4)"])
def test_streams_are_known_by_their_names(text):
    assert may_overlap(text)
