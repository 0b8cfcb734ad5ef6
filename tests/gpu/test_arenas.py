"""Memory of a GPU that goes from one runner to the next.

Invariants:
- what a runner has left there is overwritten before the next has it;
- memory that was given back is lent again, to whoever asks for about as much; memory in use is not;
- no more is kept than was asked for: the rest goes back to the driver, and all of it where the
  driver has none left;
- both processes see the same memory.
"""

import os

import pytest
import torch

from evolve.languages.triton import TRITON
from evolve.worker.base.gpu_driver import DriverError, attach
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.cuda.arenas import Arenas
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.ipc.tensor_buffer import GUARD_BYTES, unpack
from evolve.worker.processes.launcher import Launcher

MB = 1 << 20


@pytest.fixture
def arenas():
    torch.cuda.init()
    arenas = Arenas(40 * MB)
    yield arenas
    arenas.release()


def values(arena):
    return arena.memory.view(torch.float32)


def is_gone(arena):
    """Whether it was given back to the driver."""
    try:
        os.fstat(arena.fd)
    except OSError:
        return arena.mapping.address == 0
    return False


def test_what_was_left_is_overwritten_before_the_next_has_it(arenas):
    arena = arenas.take(8 * MB)
    values(arena).fill_(7.0)
    torch.cuda.synchronize()
    arenas.give_back(arena)
    again = arenas.take(8 * MB)
    assert again is arena
    assert not (values(again) == 7.0).any()
    assert values(again).isfinite().all()
    assert values(again).any()  # zeros would be a value that kernels may count on
    arenas.give_back(again)


def test_what_is_in_use_is_not_lent_again(arenas):
    first, second = arenas.take(8 * MB), arenas.take(8 * MB)
    assert first is not second
    values(first).fill_(1.0)
    values(second).fill_(2.0)
    assert (values(first) == 1.0).all()
    for arena in (first, second):
        arenas.give_back(arena)


@pytest.mark.parametrize(("kept", "wanted", "is_lent"), [
    (8, 8, True), (8, 7, True), (8, 6, True), (8, 5, False), (16, 4, False), (8, 10, False),
])  # fmt: skip
def test_memory_is_lent_to_whoever_asks_for_about_as_much(arenas, kept, wanted, is_lent):
    arena = arenas.take(kept * MB)
    arenas.give_back(arena)
    other = arenas.take(wanted * MB)
    assert other.size >= wanted * MB
    assert (other is arena) == is_lent
    arenas.give_back(other)


def test_of_several_the_smallest_that_fits_is_lent(arenas):
    small, large = arenas.take(8 * MB), arenas.take(12 * MB)
    for arena in (large, small):
        arenas.give_back(arena)
    assert arenas.take(8 * MB) is small
    assert arenas.take(8 * MB) is large
    for arena in (large, small):
        arenas.give_back(arena)


def test_more_than_the_capacity_goes_back_to_the_driver(arenas):
    several = [arenas.take(16 * MB) for _ in range(3)]
    free, _ = torch.cuda.mem_get_info()
    for arena in several:
        arenas.give_back(arena)
    assert [is_gone(arena) for arena in several] == [True, False, False]
    assert torch.cuda.mem_get_info()[0] >= free + 16 * MB
    arenas.release()
    assert all(map(is_gone, several))


def test_where_the_driver_has_none_left_what_is_kept_is_given_up(arenas):
    arena = arenas.take(8 * MB)
    arenas.give_back(arena)
    with pytest.raises(DriverError):
        arenas.take(1 << 44)
    assert is_gone(arena)
    arenas.give_back(arenas.take(8 * MB))


def test_whoever_has_the_descriptor_sees_the_same_memory(arenas):
    arena = arenas.take(4 * MB)
    fd = os.dup(arena.fd)
    view = attach(fd, arena.size)
    os.close(fd)
    view.tensor().view(torch.float32).fill_(3.0)
    torch.cuda.synchronize()
    assert (values(arena) == 3.0).all()
    view.close()
    arenas.give_back(arena)


LEAVES = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full((1 << 22,), 7.0, device=x.device)
"""
LOOKS = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.stack([torch.empty(1 << 22, device=x.device) for _ in range(4)])
"""


@pytest.fixture(scope="module")
def device():
    device = CudaDevice()
    yield device
    device.close()


@pytest.fixture(scope="module")
def launcher(device):
    launcher = Launcher(device, "none", ())
    launcher.probe()
    yield launcher
    launcher.close()


def output_of(device, runner, source):
    """What its first call gives."""
    runner.load("candidate", source, 20.0)
    with device.share(runner, device.make_buffer([{"init": [], "state": {}}])) as arguments:
        runner.construct(0, 1, arguments, 20.0)
    inputs = device.make_buffer([[torch.ones(1024, device=device.place)]])
    with device.share(runner, inputs) as shared:
        output = runner.call(0, shared, 20.0)
        (taken,) = output_snapshot.take(device, runner, output, shared)
    return taken


def test_a_runner_finds_nothing_of_the_one_that_had_its_memory_before(device, launcher):
    with launcher.start(TRITON) as first:
        assert (output_of(device, first, LEAVES) == 7.0).all()
        pool = device.lent_to(first).pool
    with launcher.start(TRITON) as second:
        seen = output_of(device, second, LOOKS)
        assert device.lent_to(second).pool is pool
        assert not (seen == 7.0).any()


def test_inputs_that_become_larger_have_memory_of_their_own(device, launcher):
    with launcher.start(TRITON) as runner:
        small = device.inputs_of(runner, 1 * MB)
        first = device.lent_to(runner).inputs
        assert device.inputs_of(runner, 1 * MB).data_ptr() == small.data_ptr()
        large = device.inputs_of(runner, 64 * MB)
        assert large.numel() == 64 * MB
        assert device.lent_to(runner).inputs is not first
        with launcher.start(TRITON) as other:  # the runner may have it mapped still
            device.inputs_of(other, 1 * MB)
            assert device.lent_to(other).inputs is not first


def test_inputs_of_gigabytes_are_not_copied_and_have_nan_behind_them(device, launcher):
    def drawn():
        return torch.ones(1 << 28, device=device.place)

    before = torch.cuda.memory_allocated()
    large, small = (
        device.make_buffer([[drawn()]]),
        device.make_buffer([[torch.ones(4, device="cuda")]]),
    )
    assert torch.cuda.memory_allocated() - before < large.size + (8 << 20)
    assert large.size == 4 << 28
    with launcher.start(TRITON) as runner:
        for buffer in (large, small, large):
            with device.share(runner, buffer) as shared:
                assert (unpack(shared.trees[0], shared.memory)[0] == 1).all()
            whole = device.lent_to(runner).inputs.memory
            behind = whole[buffer.size :][:GUARD_BYTES]
            assert behind.view(torch.float32).isnan().all()
