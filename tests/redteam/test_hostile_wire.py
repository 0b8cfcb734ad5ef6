"""Messages of a candidate that has taken over its runner, as the judge reads them.

Invariant: whatever the bytes say, reading and judging them ends in a verdict or in the candidate's
fault; the judge itself never fails.
"""

import math
import struct

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.base.faults import CandidateFault
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.compare import judge
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc import messages
from evolve.worker.ipc.messages import ChannelFault
from tests.redteam.tasks import TASKS

CASE = load_task(Task(name="tiny", source=TASKS["tiny"].source)).cases[0]
MODEL, INPUTS = CASE.model(1), CASE.inputs(1)
EXPECTED = CASE.expected(MODEL, INPUTS)

_numbers = st.one_of(st.integers(0, 20), st.integers(0, 2**48 - 1), st.just(1 << 47))
_tensors = st.tuples(
    st.integers(0, 20),  # some are no dtype
    st.lists(st.tuples(_numbers, _numbers), max_size=6),
    st.integers(0, 2**64 - 1),
)
_MESSAGE = st.tuples(st.lists(_tensors, max_size=3), st.binary(max_size=40))


def body(tensors, tree: bytes) -> bytes:
    parts = [struct.pack("<dQHH", 0.0, 0, len(tensors), len(tree)), tree]
    for code, dims, address in tensors:
        numbers = [size for size, _ in dims] + [step for _, step in dims]
        parts.append(struct.pack("<BBQ", code, len(dims), address))
        parts.append(struct.pack(f"<{len(numbers)}q", *numbers))
    return b"".join(parts)


def look_at(message: bytes) -> None:
    """What the judge does with an answer before and after it takes any bytes."""
    try:
        output = messages.parse_output(message)
        if output_snapshot.same_structure(output, EXPECTED):
            output_snapshot.buffers_for(CpuDevice(), output.tensors)
            return
        claimed = output_snapshot.described(output)
    except (ChannelFault, CandidateFault):
        return
    judge(CASE, claimed, output_snapshot.spec_of(output), EXPECTED, INPUTS)


@settings(max_examples=300, deadline=None)
@given(_MESSAGE)
@example(([(0, [(8, 1 << 40), (16, 1 << 40)], 4096)], b"T"))
@example(([(0, [(8, 16), (16, 1)], 0)], b"\xff\xfe"))
def test_any_descriptors_are_judged_or_are_the_candidates_fault(message):
    tensors, tree = message
    look_at(body(tensors, tree))


def test_a_shape_that_torch_cannot_describe_is_the_candidates_fault():
    look_at(body([(0, [(0, 1), (1 << 47, 1), (1 << 47, 1)], 4096)], b"T"))


_VALUES = st.sampled_from([0.0, -0.0, 1.0, 1e-45, 3e38, -3e38, math.inf, -math.inf, math.nan])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 127), _VALUES), max_size=40), st.booleans(), _VALUES)
def test_any_values_are_judged(places, keep, fill):
    own = EXPECTED.reference[0]
    output = own.clone() if keep else torch.full_like(own, fill)
    for at, value in places:
        output.view(-1)[at] = value
    verdict = judge(CASE, [output], EXPECTED.spec, EXPECTED, INPUTS)
    assert verdict.status in (Status.CORRECT, Status.WRONG_VALUE)
    changed = not torch.equal(output, own)
    assert verdict.status is (Status.WRONG_VALUE if changed else Status.CORRECT)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_parsed_or_refused(message):
    for parse in (messages.parse_output, messages.parse_done, messages.parse_error):
        try:
            parse(message)
        except ChannelFault:
            continue
