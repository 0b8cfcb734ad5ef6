"""Trees of tensors in one piece of memory.

Invariants: what is packed comes back; every storage starts at a multiple of the alignment; what
lies behind its last byte is NaN in each floating type, for a vector's length and more.

Inputs of gigabytes are not copied to make a buffer of them, unless something else has them too.
"""

import os
import stat

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.memfd import Landing, make_sealed, map_privately
from evolve.worker.ipc.tensor_buffer import ALIGNMENT, GUARD, GUARD_BYTES, Packed, buffer_of, unpack


def packed(*tensors):
    packed = Packed([list(tensors)])
    memory = torch.zeros(packed.size, dtype=torch.uint8)
    packed.write(memory)
    return unpack(packed.trees[0], memory), memory


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 31, 1024])
def test_what_is_read_past_a_tensor_is_nan(dtype, length):
    own = [torch.randn(length).to(dtype), torch.randn(3, length).to(dtype)]
    tensors, memory = packed(*own)
    for tensor, before in zip(tensors, own, strict=True):
        assert torch.equal(tensor, before)
        start = tensor.data_ptr() - memory.data_ptr()
        assert start % ALIGNMENT == 0
        behind = memory[start + before.nbytes :][:4096]
        assert len(behind) == 4096
        assert behind.view(dtype).isnan().all()


KINDS = st.sampled_from([torch.uint8, torch.bool, torch.float16, torch.float32, torch.complex64])
TENSORS = st.tuples(KINDS, st.integers(0, 2000), st.booleans())  # and whether it is seen in parts


@settings(deadline=None)
@given(st.lists(st.lists(TENSORS, max_size=5), min_size=1, max_size=6), st.integers(0, 9000))
def test_each_byte_of_the_memory_is_a_storages_or_a_guard(calls, more):
    trees, wanted = [], []
    for kind, length, in_parts in (one for call in calls for one in call):
        raw = torch.randint(0, 2 if kind is torch.bool else 256, (length * kind.itemsize,))
        whole = raw.to(torch.uint8).view(kind)
        trees.append([whole[length // 2 :], whole] if in_parts else whole)
        size = -(-(raw.numel() + GUARD_BYTES) // ALIGNMENT) * ALIGNMENT
        wanted.append([*raw.tolist(), *[GUARD] * (size - raw.numel())])
    packed = Packed(trees)
    memory = torch.full((packed.size + more,), 7, dtype=torch.uint8)
    packed.write(memory)
    assert packed.size == sum(map(len, wanted))
    assert memory.tolist() == [byte for part in wanted for byte in part] + more * [GUARD]


def test_views_of_one_storage_share_it():
    whole = torch.arange(10.0)
    (first, second), memory = packed(whole[:4], whole[2:])
    assert second.data_ptr() - first.data_ptr() == 2 * whole.itemsize
    assert memory.numel() < 2 * 4096


def test_who_gets_sealed_memory_can_write_none_of_its_attributes():
    fd = make_sealed(torch.zeros(4096, dtype=torch.uint8))
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o400
    os.close(fd)


def test_no_two_runners_get_the_same_memory():
    device = CpuDevice()
    buffer = device.make_buffer([[torch.ones(8)]])
    with device.share(None, buffer) as first, device.share(None, buffer) as second:
        assert os.fstat(first.fd).st_ino != os.fstat(second.fd).st_ino
        for shared in (first, second):
            (seen,) = unpack(shared.trees[0], map_privately(shared.fd, shared.size))
            assert seen.tolist() == [1.0] * 8


def test_values_appear_in_a_view_that_was_there_before_them():
    landing = Landing(1 << 16)
    view = map_privately(landing.fd, landing.size)
    assert not view.any()
    landing.write(torch.full((5000,), 7, dtype=torch.uint8))
    assert view.tolist() == [7] * 5000 + [0] * (landing.size - 5000)
    with pytest.raises(PermissionError):
        os.ftruncate(landing.fd, 1)  # what we write to must not go away
    landing.close()


def made_of(trees, least):
    """A buffer, and how many bytes were allocated for it."""
    allocated = []

    def allocate(size):
        allocated.append(size)
        return torch.empty(size, dtype=torch.uint8)

    return buffer_of(trees, allocate, least), sum(allocated)


def test_a_lone_large_tensor_becomes_the_buffer_without_a_copy():
    own = torch.randn(64, 128)
    values, trees = own.clone(), [[own, own[1:], 2.0]]
    place = own.data_ptr()
    del own
    buffer, allocated = made_of(trees, values.nbytes)
    assert allocated == 0
    assert not trees  # or they would hold it
    whole, part, number = buffer.tree()
    assert buffer.memory.data_ptr() == place
    assert (buffer.size, number) == (values.nbytes, 2.0)
    assert torch.equal(whole, values)
    assert torch.equal(part, values[1:])


def test_what_something_else_holds_is_copied():
    kept, view = torch.randn(64, 128), torch.randn(64, 128)
    for holder in (kept, view):
        trees = [[holder.view(-1) if holder is view else holder]]
        buffer, allocated = made_of(trees, 1)
        before = buffer.tree()[0].clone()
        holder.zero_()
        assert allocated > holder.nbytes
        assert torch.equal(buffer.tree()[0], before)


@pytest.mark.parametrize("sizes", [(64,), (4096, 4096), (4097,)])
def test_small_several_and_odd_ones_are_copied_with_guards(sizes):
    buffer, allocated = made_of([[torch.randn(size) for size in sizes]], 4 * 4096)
    assert allocated == buffer.size >= sum(4 * size + 4096 for size in sizes)


@pytest.mark.parametrize("lengths", [(), (0,), (5, 0, 300), (4096,)])
def test_nothing_stays_of_what_the_memory_held(lengths):
    made = Packed([[torch.zeros(length, dtype=torch.uint8) for length in lengths]])
    memory = torch.full((made.size + 5000,), 7, dtype=torch.uint8)
    made.write(memory)
    assert not (memory == 7).any()
    assert int((memory == 0).sum()) == sum(lengths)
