"""How many windows a sitting has, and how many rounds a comparison, on a device that tests set.

Its clock shows what a test says, except in tests marked `quiet`.

Invariants:
- where the host is too busy for a clock, nobody is convicted; blocks that are short since the
  candidate was slow before do not make it look so;
- all sides of a sitting have as many blocks, and after each block of the reference there is a
  window without calls;
- what is clear, or of no interest, is timed no further: who is clearly slower after one pair;
- opponents that there is no room for beside each other follow one another.
"""

import contextlib
import statistics
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import DEVICE_OOM, EARLY_STOPPED, OPPONENT_FAILED, Fidelity, Status
from evolve.core.measurement import CLEARLY_SLOWER, UNREACHABLE_SPEEDUP, middle
from evolve.worker.base.faults import CANDIDATE, EAGER, CandidateFault
from evolve.worker.base.infra import CrowdedFault
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cpu.window import CpuWindow
from evolve.worker.devices.window import TimedCase
from evolve.worker.ipc.signals import MAX_ADDRESSES
from evolve.worker.judge.judge import Judge
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.plan import PLANS
from evolve.worker.timing.interleaved_blocks import PairTimes
from evolve.worker.timing.planning import planned, with_blocks
from evolve.worker.timing.reference_profile import ReferenceProfile
from evolve.worker.timing.results import Timing, label_mismatches
from tests.worker.serving import HONEST_CPP, RELU_TASK, TIMED, forward


def slow_until_timed(seconds: float, timed_s: float = 0.001) -> str:
    """A body that takes so long in the checks, and when it is timed so much less."""
    return f"""{TIMED}
time.sleep({timed_s} if "_run" in names else {seconds})
return right(x)
"""


class PliantDevice(CpuDevice):
    """One that the tests below set, and share.

    Attributes:
        cost_s: what a window costs more, even if nothing is called.
        shown: what the clock shows for a block, and for the next; None: what it takes.
        faster: how many times as fast the candidate then is.
        idles: windows without calls so far.
        sat: rounds so far; one whose candidate was slow in the checks only does not count.
        most_sides: that there is memory for.
        shortages: how many blocks of a side run out of memory.
        crowded: how many blocks of a side find the host too busy.
        locked: sizes of outputs that pages were locked for.
    """

    # Not those of a CPU, which go by what hosts there are.
    spread = 0.03
    block_s = 0.008
    calls = (3, 16)  # to bring inputs of many takes long, and times are mostly shown
    blocks = few_blocks = 8
    block_pool = 24
    rounds = 1
    gives_calls = False
    stack_samples = 0  # or there may be rounds for nothing else

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self):
        self.half_width, self.cost_s, self.shown, self.faster = type(self).half_width, 0.0, None, 1
        self.idles, self.sat, self.most_sides, self.shortages = 0, 0, 9, Counter()
        self.locked, self.crowded = [], Counter()

    def lock_pages(self, sizes):
        self.locked += sizes
        return True

    def window(self):
        return PliantWindow(self)


class PliantWindow(CpuWindow):
    def idle(self, process, case):
        self._device.idles += 1
        return 0.0 if self._device.shown else self._device.cost_s + super().idle(process, case)

    @contextlib.contextmanager
    def alone(self, side, processes):
        self._side = side
        if len(processes) > self._device.most_sides:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        with super().alone(side, processes):
            yield

    def run(self, process, case, layout, number, **named):
        if self._device.shortages[self._side] > 0:
            self._device.shortages[self._side] -= 1
            raise CandidateFault(Status.OOM, "CUDA out of memory")
        if self._device.crowded[self._side] > 0:
            self._device.crowded[self._side] -= 1
            raise CrowdedFault("too busy for a clock")
        block = super().run(process, case, layout, number, **named)
        if not self._device.shown:
            return block
        shown = self._device.shown[number % 2]
        shown /= self._device.faster if self._side == CANDIDATE else 1
        return replace(block, run=shown, late=0.0)

    def settle(self):
        self._device.sat += 1
        if not self._device.shown:
            super().settle()


@pytest.fixture(scope="module")
def device_judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))  # a lock of its own
        device = PliantDevice()
        judge = Judge(device, folder / "cache")
        yield device, judge
        judge.close()


@pytest.fixture
def pliant(device_judge):
    """The device, and how it judges."""
    device, judge = device_judge
    device.reset()
    return device, partial(judge.evaluate, RELU_TASK)


@pytest.fixture
def unset(device_judge, monkeypatch):
    """The device with a real clock, for which blocks have many calls, and how it judges."""
    device, judge = device_judge
    device.reset()
    monkeypatch.setattr(device, "calls", (3, 256))
    task = replace(RELU_TASK, source=RELU_TASK.source + "\n# of many calls\n")
    return device, partial(judge.evaluate, task)


@pytest.mark.quiet
@pytest.mark.slow
def test_nobody_is_convicted_where_a_window_costs_more_than_the_references_calls(unset):
    device, judged = unset
    device.cost_s = 30.0
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {})
    assert verdict.status is Status.INFRA
    assert "too busy for a clock" in verdict.feedback


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.parametrize("cost_s", [  # the second is more than what blocks of one call take
    pytest.param(0.0, marks=pytest.mark.slow), 0.001,
])  # fmt: skip
def test_who_is_slow_in_the_checks_only_has_blocks_as_long_as_others(unset, cost_s):
    device, judged = unset
    device.cost_s = cost_s
    usual = judged(HONEST_CPP, Fidelity.SCREEN, {}).samples["default"]["calls_per_block"]
    verdict = judged(forward(slow_until_timed(0.1, 0.0)), Fidelity.SCREEN, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.samples["default"]["calls_per_block"] == usual


@pytest.mark.slow
def test_how_far_a_program_is_below_the_bar_is_not_looked_at(pliant):
    device, judged = pliant
    device.shown, device.half_width = (0.1, 0.1), -1.0  # as many pairs as the fidelity has
    pairs = {}
    for bar in (1000.0, 0.001, UNREACHABLE_SPEEDUP):
        target_speedups = {"eager": bar, "somebody who left": 1000.0}
        verdict = judged(forward("return right(x)"), Fidelity.SEARCH, {}, target_speedups)
        assert verdict.status is Status.CORRECT, verdict.feedback
        assert (bar > 1) == (EARLY_STOPPED in {label.name for label in verdict.labels})
        pairs[bar] = len(verdict.samples["default"]["ms"]["eager"])
    most = PLANS[Fidelity.SEARCH].pairs[-1]
    assert pairs == {1000.0: 1, 0.001: most, UNREACHABLE_SPEEDUP: 1}


@pytest.mark.slow  # `test_blocks_are_more_where_the_reference_is_unsteady...`: the decision alone
@pytest.mark.parametrize(
    ("shown", "faster", "blocks"),
    [
        ((0.15, 0.1), 1, [8, 24, 24]),
        ((0.1, 0.1), 1, [8, 8, 8]),
        ((0.15, 0.1), 3, [8, 8, 8]),
    ],
)
def test_where_blocks_are_unsteady_those_of_close_sides_are_more(pliant, shown, faster, blocks):
    device, judged = pliant
    device.shown, device.faster = shown, faster
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert [len(times) for times in verdict.samples["default"]["ms"]["eager"]] == blocks


@pytest.mark.sample(4)
@pytest.mark.parametrize(("length", "blocks"), [(0.5, 8), (0.6, 8), (0.7, 4), (1.0, 4)])
@pytest.mark.parametrize("times_as_long", [0.02, 1.0, 50])
def test_long_blocks_are_few_whatever_a_candidate_takes(
    device_judge, length, blocks, times_as_long
):
    """Lengths in those that a block is to have, of the reference's."""
    device, judge = device_judge
    device.reset()
    task = judge.warm(RELU_TASK)
    own = ReferenceProfile(judge.session, judge._device_lock).layouts(task)
    (case,) = task.timed
    task.calls[case.index], task.reference_s[case.index] = 64, length * device.block_s / 64
    candidate = Candidate(HONEST_CPP, layouts=own)
    candidate.seconds[case.case.name] = times_as_long * task.reference_s[case.index]
    device.few_blocks = 4
    try:
        sides = {CANDIDATE: candidate, EAGER: None}
        (of_case,) = planned(task, sides, own, device, PLANS[Fidelity.SEARCH])
    finally:
        task.layouts = {}  # measured anew by whoever comes next
        del device.few_blocks
    assert of_case.blocks == blocks


def test_a_block_has_no_more_outputs_than_a_process_can_tell_the_places_of(
    device_judge, monkeypatch
):
    device, judge = device_judge
    device.reset()
    monkeypatch.setattr(device, "calls", (1024, 1024))  # as a GPU may have of the shortest
    outputs = 250
    body = f"return [part * 2 for part in torch.cat([x[0], x[1]])[:{outputs}, None]]"
    source = RELU_TASK.source.replace("return torch.relu(x) * 2 + x", body)
    task = judge.warm(replace(RELU_TASK, source=source))
    (layout,) = ReferenceProfile(judge.session, judge._device_lock).layouts(task).values()
    assert len(layout) == outputs
    (calls,) = task.calls.values()
    assert calls == 512
    assert calls * outputs <= MAX_ADDRESSES


@pytest.mark.sample(1)
@pytest.mark.parametrize(("faster", "turn_blocks"), [(1, 1), (20, 4)])
def test_all_sides_have_as_many_blocks_and_the_reference_as_many_windows_without_calls(
    pliant, faster, turn_blocks
):
    device, judged = pliant
    device.shown, device.faster, device.turn_blocks = (0.1, 0.1), faster, turn_blocks
    try:
        verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP})
    finally:
        del device.turn_blocks
    assert verdict.status is Status.CORRECT, verdict.feedback
    times = verdict.samples["default"]["ms"]
    assert set(times) == {CANDIDATE, EAGER, "one"}
    assert [len(sitting) for taken in times.values() for sitting in taken] == 9 * [8]
    assert device.idles == 8 * device.sat
    assert device.sat >= 3


@pytest.mark.parametrize(
    ("candidate", "eager", "turn_blocks", "blocks"),
    [
        ([1.0] * 8, [1.0] * 8, 1, 8),
        ([1.0] * 8, [0.6, 1.4] * 4, 1, 24),
        ([1.0] * 8, [0.6, 1.4] * 4, 5, 20),  # an even number of turns
        ([0.05] * 8, [0.6, 1.4] * 4, 1, 8),  # though as fast as the best so far
    ],
)
def test_blocks_are_more_where_the_reference_is_unsteady_and_a_side_close(
    device_judge, monkeypatch, candidate, eager, turn_blocks, blocks
):
    device, judge = device_judge
    (warm,) = judge.warm(RELU_TASK).timed
    pair = PairTimes(blocks={warm.case.name: {CANDIDATE: candidate, EAGER: eager}})
    monkeypatch.setattr(device, "turn_blocks", turn_blocks)
    case = TimedCase(warm=warm, calls=1, layouts={}, blocks=8)
    (following,) = with_blocks([case], pair, device, PLANS[Fidelity.SEARCH])
    assert following.blocks == blocks


def test_a_clock_that_does_not_fit_is_found_however_many_blocks_the_reference_has():
    timing = Timing()
    pair = PairTimes(blocks={"small": {CANDIDATE: 4 * [1.0], EAGER: 16 * [1.0]}})
    label_mismatches(timing, 3 * ["1 ms claimed, 9 ms measured"], [pair])
    assert [label.name for label in timing.labels] == ["timing_mismatch"]


@pytest.mark.quiet
def test_what_one_waits_for_inside_of_something_is_counted_once():
    timing = Timing()
    with timing.spending("opening"):
        with timing.spending("lock"):
            time.sleep(0.2)
        with timing.spending("lock"):
            time.sleep(0.1)
    assert timing.spent_s["lock"] >= 0.3 > 0.1 > timing.spent_s["opening"]


@pytest.mark.parametrize(("room", "together"), [
    pytest.param(0, [4], marks=pytest.mark.slow), (1, [3, 3]),
])  # fmt: skip
def test_opponents_without_room_beside_each_other_follow_one_another(pliant, room, together):
    """The memory of a sitting's sides is all there at once, and a baseline's is no smaller."""
    device, judged = pliant
    device.shown, device.room = (0.1, 0.1), room
    try:
        rivals = {"one": HONEST_CPP, "other": HONEST_CPP + "\n"}
        verdict = judged(HONEST_CPP, Fidelity.SCREEN, rivals)
    finally:
        del device.room
    assert verdict.status is Status.CORRECT, verdict.feedback
    sides = {CANDIDATE, EAGER, "one", "other"}
    (row,) = verdict.cases
    assert set(row.times_ms) == sides
    assert set(row.ratios) == set(verdict.ratios) == sides - {CANDIDATE}
    sample = verdict.samples["default"]
    rounds = [sample["ms"], *(later["ms"] for later in sample.get("separate", []))]
    assert [len(times) for times in rounds] == together
    assert set().union(*rounds) == sides
    assert all(len(taken) == 3 for times in rounds for taken in times.values())
    first = [middle(sitting) for sitting in sample["ms"][EAGER]]
    assert row.times_ms[EAGER].value == pytest.approx(statistics.median(first), rel=1e-3)


@pytest.mark.slow  # opponents that follow one another are in the test above
def test_what_neighbours_spoil_for_one_opponent_is_not_held_against_the_next(pliant):
    device, judged = pliant
    device.shown, device.room = (0.1, 0.1), 1  # one after the other
    device.crowded.update(one=2, other=2)
    try:
        verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP, "other": HONEST_CPP})
    finally:
        del device.room
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(verdict.ratios) == {EAGER, "one", "other"}
    assert "judged_again" not in {label.name for label in verdict.labels}


@pytest.mark.slow  # opponents that are timed apart are in `test_opponents_without_room...`
@pytest.mark.parametrize(("most_sides", "without"), [(3, []), (2, ["one", "other"])])
def test_what_there_is_no_memory_for_is_timed_apart_or_left_out(pliant, most_sides, without):
    device, judged = pliant
    device.shown, device.most_sides = (0.1, 0.1), most_sides
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP, "other": HONEST_CPP + "\n"})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(verdict.ratios) == {EAGER, "one", "other"} - {*without}
    failed = [label.evidence for label in verdict.labels if label.name == OPPONENT_FAILED]
    assert [evidence.split(":")[0] for evidence in failed] == without
    assert all("no memory" in evidence for evidence in failed)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("warm_bytes", "total_bytes", "is_needed"),
    [(0, 1, True), (0, 0, False), (1 << 40, 1, False)],  # 0 in all: no limit
)
def test_pages_are_locked_for_large_outputs_that_the_sides_leave_no_room_for(
    pliant, monkeypatch, warm_bytes, total_bytes, is_needed
):
    device, judged = pliant
    device.shown = (0.1, 0.1)
    monkeypatch.setattr(device, "warm_bytes", warm_bytes)
    monkeypatch.setattr(device, "total_bytes", total_bytes)
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP})
    assert verdict.status is Status.CORRECT, verdict.feedback
    # Four of the candidate's, three of the other.
    assert device.locked[:7] == 7 * is_needed * [64 * 256 * 4]
    assert len(device.locked) % 7 == 0


@pytest.mark.parametrize(("side", "room", "stays"), [
    (EAGER, 0, True), pytest.param("compile", 0, True, marks=pytest.mark.slow),
    pytest.param("compile", 8, False, marks=pytest.mark.slow),
])  # fmt: skip
def test_trusted_sides_that_run_out_of_memory_get_more_as_long_as_there_is(
    pliant, side, room, stays
):
    device, judged = pliant
    device.shown, device.room = (0.1, 0.1), room
    device.shortages[side] = 1
    opponents = {"compile": ""} if side == "compile" else {}
    try:
        verdict = judged(HONEST_CPP, Fidelity.SCREEN, opponents)
    finally:
        del device.room
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(verdict.ratios) == ({EAGER, *opponents} if stays else {EAGER})
    labels = {label.name for label in verdict.labels}
    assert (OPPONENT_FAILED in labels) != stays
    assert "judged_again" not in labels


@pytest.mark.slow
def test_an_opponent_that_has_left_does_not_come_back_when_another_gets_more_memory(pliant):
    device, judged = pliant
    device.shown = (0.1, 0.1)
    device.shortages.update(one=1, compile=1)
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP, "compile": ""})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(verdict.ratios) == {EAGER, "compile"}
    failed = [label.evidence for label in verdict.labels if label.name == OPPONENT_FAILED]
    assert [evidence.split(":")[0] for evidence in failed] == ["one"]


def test_who_has_no_memory_without_opponents_has_no_verdict(pliant):
    device, judged = pliant
    device.shown, device.most_sides = (0.1, 0.1), 1
    verdict = judged(HONEST_CPP, Fidelity.SCREEN, {"one": HONEST_CPP})
    assert verdict.status is Status.INFRA
    assert DEVICE_OOM in {label.name for label in verdict.labels}


@pytest.mark.slow
def test_a_task_that_a_device_is_too_small_for_is_refused_when_memory_has_run_out(
    device_judge, pliant, monkeypatch
):
    device, _ = pliant
    monkeypatch.setattr(device, "total_bytes", 1)  # fewer than it should take
    device.shown, device.most_sides = (0.1, 0.1), 1
    new = replace(RELU_TASK, source=RELU_TASK.source + "\n# new\n")
    with pytest.raises(UsageError, match="does not fit into the memory"):
        device_judge[1].evaluate(new, HONEST_CPP, Fidelity.SCREEN, {})
    device.most_sides = 9
    assert device_judge[1].evaluate(new, HONEST_CPP, Fidelity.SCREEN, {}).status is Status.CORRECT
    device.most_sides = 1  # so it is the candidate's doing
    again = device_judge[1].evaluate(new, HONEST_CPP + "\n# 2\n", Fidelity.SCREEN, {})
    assert again.status is Status.INFRA


@pytest.mark.sample(1)
@pytest.mark.parametrize(("half_width", "pairs"), [
    pytest.param(0.02, 4, marks=pytest.mark.slow), (0.04, 2), (0.08, 1),
])  # fmt: skip
def test_a_wider_interval_is_had_for_fewer_pairs(pliant, half_width, pairs):
    """A search is content with twice the half-width that a verification wants."""
    device, judged = pliant
    device.shown, device.half_width = (0.1, 0.1), half_width
    verdict = judged(HONEST_CPP, Fidelity.SEARCH, {})
    assert len(verdict.samples["default"]["ms"]["eager"]) == pairs
    assert verdict.ratios["eager"].half_width <= 2 * half_width


@pytest.mark.parametrize(("faster", "pairs"), [(0.5, 1), (0.8, 2)])
def test_who_is_clearly_slower_after_one_pair_is_timed_no_further_and_nobody_else_is(
    pliant, faster, pairs
):
    device, judged = pliant
    device.shown, device.faster = (0.1, 0.1), faster
    verdict = judged(HONEST_CPP, Fidelity.SEARCH, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert len(verdict.samples["default"]["ms"]["eager"]) == pairs
    ratio = verdict.ratios["eager"]
    assert ratio.low < faster < ratio.high
    assert pairs > 1 or ratio.high < CLEARLY_SLOWER
