"""How many queues of a GPU processes open: what is asked for, without a GPU.

Invariants:
- all sides of a comparison have as many: all where one of them may have several streams, one
  otherwise;
- who needs all gets none of the processes that were made ready with one;
- a process does not see how many it has.
"""

import base64
import os
from dataclasses import replace

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.languages.torch import TORCH
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.judge.judge import Judge
from evolve.worker.processes.launcher import Launcher
from evolve.worker.runner import hw_queues as queues
from tests.worker.serving import HONEST_CPP, RELU_TASK

STREAM = "\n# in a Stream of its own\n"


class Noting(CpuDevice):
    """Notes of each process whether it is prepared with all queues, and which are then timed."""

    half_width = 1.0  # times are of no interest here

    def __init__(self):
        super().__init__()
        self.noted = {}
        self.timed = []

    def prepare(self, process, all_queues=False):
        self.noted[process] = all_queues

    def window(self):
        window = super().window()
        run = window.run

        def noting(process, *given, **named):
            self.timed.append(self.noted[process])
            return run(process, *given, **named)

        window.run = noting
        return window


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    device = Noting()
    judge = Judge(device, tmp_path_factory.mktemp("judge"))

    def verdict_on(source, fidelity=Fidelity.SCREEN, opponents=()):
        device.timed.clear()
        rivals = {f"rival {number}": text for number, text in enumerate(opponents)}
        verdict = judge.evaluate(RELU_TASK, source, fidelity, rivals)
        assert verdict.status is Status.CORRECT
        assert {"eager", *rivals} == set(verdict.ratios)
        return set(device.timed)

    yield verdict_on
    judge.close()


@pytest.mark.slow
def test_programs_in_one_stream_are_timed_with_one_queue(judged):
    assert judged(HONEST_CPP) == {False}


@pytest.mark.slow
def test_where_one_side_speaks_of_streams_all_have_all_queues(judged):
    assert judged(HONEST_CPP + STREAM) == {True}
    assert judged(HONEST_CPP, opponents=[HONEST_CPP + STREAM]) == {True}


@pytest.mark.slow
def test_a_verification_has_all_queues_only_for_streams(judged):
    assert judged(HONEST_CPP, Fidelity.VERIFY) == {False}
    assert judged(HONEST_CPP + STREAM, Fidelity.VERIFY) == {True}


def test_a_module_beside_the_tasks_own_may_use_streams_too():
    helper = base64.b64encode(STREAM.encode()).decode()
    task = replace(RELU_TASK, files={"helper.py": helper, "weights.bin": "AAAA"})
    assert list(map(queues.may_overlap, task.texts)) == [False, True]


class Ready(Noting):
    preforked = 1


@pytest.mark.slow  # three processes; what is set of queues is below
def test_who_needs_all_queues_gets_no_process_that_was_made_ready():
    device = Ready()
    launcher = Launcher(device, "none", ())
    try:
        launcher.probe()
        launcher.start_prefork()
        for all_queues in (True, False, True):
            with launcher.start(TORCH, all_queues=all_queues) as runner:
                assert device.noted[runner] is all_queues
    finally:
        launcher.close()


def test_how_many_there_are_shows_while_the_gpu_is_opened_only(monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    with queues.opening(all_queues=False):
        assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in os.environ
    with queues.opening(all_queues=True):
        assert "CUDA_DEVICE_MAX_CONNECTIONS" not in os.environ


@pytest.mark.parametrize(
    ("text", "overlaps"),
    [
        ("torch.cuda.Stream()", True),
        ("cudaStream_t s;", True),
        ("nn.LSTM(3, 4)", True),
        ("torch._VF.gru(x)", True),
        ("torch.linalg.solve(a, b)", True),
        ("nn.GroupNorm(3, 4), congruent", False),
    ],
)
def test_streams_are_known_by_their_names(text, overlaps):
    assert queues.may_overlap(text) is overlaps
