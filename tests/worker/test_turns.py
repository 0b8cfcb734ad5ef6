"""Calls that are given to a process one by one.

Invariants:
- a call's inputs are there once it is given, with all that it needs, and none of a later call;
- each side waits for the other, and for nothing that will not come;
- a process that fails in the middle of a block is heard at once.
"""

import threading

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.memfd import Landing, map_privately
from evolve.worker.ipc.tensor_buffer import unpack
from evolve.worker.ipc.turns import Turns
from tests.worker.serving import TIMED, forward


@pytest.fixture
def page():
    """Both sides of one page."""
    judge = Turns()
    yield judge, Turns(judge.fd)
    judge.close()


def test_inputs_come_call_by_call():
    shared = torch.full((3,), 9.0)
    calls = [[torch.full((100,), call), shared] for call in (1.0, 2.0, 3.0)]
    buffer, landing = CpuDevice().make_buffer(calls), Landing(1 << 20)
    view = map_privately(landing.fd, landing.size)
    pieces = landing.pieces(buffer.memory, buffer.bounds())
    for given, (place, values) in enumerate(pieces, start=1):
        place[:] = values
        seen = [unpack(tree, view) for tree in buffer.trees]
        assert [float(own.sum()) for own, _ in seen[:given]] == [100.0, 200.0, 300.0][:given]
        assert not any(own.any() for own, _ in seen[given:])
        assert all(bool((also == 9).all()) for _, also in seen)
    assert torch.equal(view[: buffer.size], buffer.memory)
    landing.close()


def test_each_call_waits_for_the_one_before_it(page):
    judge, runner = page
    order = []

    def run():
        for number in (1, 2, 3):
            runner.await_given(number)
            order.append(f"made {number}")
            runner.done(number, [1000 + number])

    thread = threading.Thread(target=run)
    thread.start()
    for number in (1, 2, 3):
        order.append(f"given {number}")
        assert judge.give(number, lambda: False)
        assert judge.outputs(1) == (1000 + number,)
    thread.join()
    assert order == [f"{what} {number}" for number in (1, 2, 3) for what in ("given", "made")]


def test_who_gives_a_call_stops_waiting_once_it_is_over(page):
    judge, _ = page
    looks = iter([False, False, True])
    assert not judge.give(1, lambda: next(looks))


def test_a_call_that_is_done_when_it_is_over_counts(page):
    judge, runner = page

    def is_over():
        runner.done(1, [])
        return True

    assert judge.give(1, is_over)


@pytest.mark.sample(1)
@pytest.mark.quiet
@pytest.mark.parametrize(("fault", "status"), [
    ("raise ValueError('in the middle')", Status.RUNTIME_EXCEPTION),
    ("os._exit(3)", Status.KILLED),
])  # fmt: skip
def test_a_process_that_fails_in_the_middle_of_a_block_is_heard(worker, fault, status):
    body = f"""{TIMED}
self.timed = getattr(self, 'timed', 0) + bool({{"_run", "_take_turns"}} & names)
if self.timed > 300: {fault}
return right(x)"""
    verdict = worker.evaluate(forward(body))
    assert verdict.status is status, verdict.feedback
