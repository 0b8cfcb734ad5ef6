"""Timing a correct candidate: process pairs until the interval is narrow or pairs run out."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import WeakKeyDictionary

import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import EARLY_STOPPED, OPPONENT_FAILED, Label, Status
from evolve.core.measurement import UNREACHABLE_SPEEDUP, missed_target
from evolve.worker.base import phases
from evolve.worker.base.faults import (
    CANDIDATE,
    EAGER,
    CandidateFault,
    LateFault,
    MovedFault,
    SideFault,
    candidate_fault_of,
)
from evolve.worker.base.infra import CrowdedFault, InfraFault, OccupiedFault
from evolve.worker.base.shortage import is_no_room
from evolve.worker.correctness.compare import worst
from evolve.worker.devices.window import TimedCase
from evolve.worker.processes.runner_process import Needs, RunnerProcess, close_all
from evolve.worker.runner.hw_queues import may_overlap
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.memory_budget import MemoryBudget
from evolve.worker.session.memory_model import (
    block_outputs,
    opponents_at_once,
    room_to_time,
    rounds_at_once,
)
from evolve.worker.session.plan import Plan
from evolve.worker.session.prepared_task import PreparedTask
from evolve.worker.session.reference_processes import References, Served
from evolve.worker.timing import cuda_events
from evolve.worker.timing.baseline_processes import BaselineProcesses
from evolve.worker.timing.collected import Collected
from evolve.worker.timing.graph_timing import (
    GraphTimes,
    drop_wrong,
    judge_graphs,
    time_graphs,
)
from evolve.worker.timing.interleaved_blocks import (
    MeasurementRound,
    TooShortFault,
    judge_samples,
    measure_round,
    ready_processes,
    warm_up,
    with_pages,
)
from evolve.worker.timing.opponents import admit
from evolve.worker.timing.planning import lengthened, planned, with_blocks
from evolve.worker.timing.reference_profile import ReferenceProfile, note_shortage
from evolve.worker.timing.results import (
    Timing,
    fill,
    label_mismatches,
    library_at_work,
    merged,
    spread_seen,
    was_stopped_early,
    weighted,
)
from evolve.worker.timing.statistics import is_settled, ratio_interval

_WHY_LEFT = "the device has no memory for it beside the candidate and the reference"
_OWN_OUTPUTS = (Status.ALIASED, Status.MUTATED_INPUT)  # a candidate has to make new ones
_MAX_CROWDED = 2  # turns that neighbours may spoil; then it is judged without any
_MAX_DISTURBED = 3  # turns that a stranger may spoil
_MAX_TOO_SHORT = 2  # rounds without a time, before it is the candidate's doing
_MAX_MOVED = 2  # the same
_MAX_LOOKS, _LOOKED_BLOCKS = 24, 2  # rounds that are there for nothing else, and their blocks


class _MoreMemory(Exception):
    """The judge's processes get more from now on: their room has to be measured again."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Processes between the rounds of a comparison; `served`: of references."""

    baselines: BaselineProcesses
    served: Served = field(default_factory=WeakKeyDictionary)


class Timekeeper:
    """Times candidates against the reference and opponents, one pair of processes after another."""

    def __init__(
        self, session: CandidateSession, device_lock: DeviceLock, room: MemoryBudget
    ) -> None:
        self._session = session
        self._device_lock = device_lock
        self._budget = room
        self._lock = device_lock.lock
        device = session.device
        self._references = References(session.reference, device)
        self._reference_profile = ReferenceProfile(session, device_lock)

    def release(self) -> None:
        """Let go of processes that were kept for other comparisons."""
        close_all(self._references.leave())

    def reference_s(self, task: PreparedTask) -> Mapping[int, float]:
        """Of one call of the reference by itself, by case; measured at first use."""
        self._reference_profile.layouts(task)
        return task.reference_s

    def time(
        self,
        task: PreparedTask,
        candidate: Candidate | None,
        opponents: dict[str, Candidate],
        plan: Plan,
        timing: Timing,
        target_speedups: Mapping[str, float],
    ) -> None:
        """Interleave the candidate (None: the reference itself) with the other sides.

        Opponents that the device has no room for beside each other follow one another, each
        interleaved with the candidate and the reference as the first are.

        Fills `timing`, its device time also if the candidate fails. Ends at an interim analysis
        that shows less than one of the `target_speedups` (`EvaluationRequest`).

        Raises:
            CandidateFault: the candidate failed in a timed run.
        """
        sides = {CANDIDATE: candidate, EAGER: None, **opponents}
        cases = self._plan(task, sides, plan, timing)
        needs = self._needs(task, sides, plan)
        rivals = [side for side in sides if side in opponents]
        count = opponents_at_once(task, self._session.device, len(rivals), plan)
        waiting = [rivals[at : at + count] for at in range(0, len(rivals), count)] or [[]]
        while waiting and not was_stopped_early(timing):
            group = waiting.pop(0)
            present = {side: sides[side] for side in (CANDIDATE, EAGER, *group)}
            asked = {
                side: target
                for side, target in target_speedups.items()
                if side not in timing.ratios
            }
            timing.crowded = 0
            try:
                self._interleave(task, present, cases, needs, plan, timing, asked)
            except _MoreMemory:
                waiting.insert(0, [side for side in group if side in present])
            except (InfraFault, OSError, torch.OutOfMemoryError) as error:
                if not group or not is_no_room(error) or not self._budget.holds_all:
                    raise
                if len(group) > 1:
                    waiting = [[side] for side in group if side in present] + waiting
                    continue
                timing.labels.append(Label(OPPONENT_FAILED, f"{group[0]}: {_WHY_LEFT}"))
                if not waiting and not timing.cases:
                    waiting = [[]]

    def _interleave(
        self,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        cases: list[TimedCase],
        needs: Needs,
        plan: Plan,
        timing: Timing,
        target_speedups: Mapping[str, float],
    ) -> None:
        """Rounds of these sides until every request is settled, and their results."""
        rule = task.loaded.timing
        found = Collected()
        pairs = found.pairs
        device = self._session.device
        at_once = rounds_at_once(task, device, len(sides), plan)
        room = room_to_time(task, device, len(sides), plan)
        with contextlib.ExitStack() as ends:
            # A place to the end, so that answers come one by one, and not all together.
            with timing.spending("turn"):
                ends.enter_context(self._budget.turn(room))
            kept = _Kept(baselines=ends.enter_context(contextlib.closing(BaselineProcesses())))
            for index, interim in enumerate(plan.interims):
                while len(pairs) < interim.pairs:
                    phases.enter(f"timing, {len(pairs)} of {interim.pairs} pairs")
                    wanted = min(interim.pairs - len(pairs), at_once)
                    too_short = timing.too_short
                    for round_, recorded in self._measure_rounds(
                        task, sides, cases, needs, timing, wanted, kept
                    ):
                        found.add(round_, recorded)
                    is_short = timing.too_short > too_short
                    with self._beside_others(timing):
                        longer = lengthened(cases, found.pairs, is_short)
                    if longer != cases:
                        cases = longer
                        found.forget_times()
                    if pairs:
                        cases = with_blocks(cases, pairs[-1].pair, device, plan)
                wrong = drop_wrong(pairs)
                others = [side for side in sides if side != CANDIDATE]
                spread = max(device.spread, spread_seen(pairs, cases, others))
                by = partial(ratio_interval, interim=interim, spread=spread)
                ratios = {side: by(weighted(pairs, cases, side, rule)) for side in others}
                may_lose, is_last = sides[CANDIDATE] is not None, interim is plan.interims[-1]
                if is_last or all(
                    is_settled(ratio, plan, index, may_lose, device.half_width)
                    for ratio in ratios.values()
                ):
                    break
                if (side := missed_target(ratios, target_speedups)) is not None:
                    timing.labels.append(
                        Label(EARLY_STOPPED, _why_no_longer(side, target_speedups[side]))
                    )
                    break
            self._look_on(found, task, sides, cases, needs, timing, kept)
        timing.ratios = ratios | timing.ratios  # those of the first rounds stand
        fill(timing, pairs, cases, list(sides), by, rule)
        plain = [measured.pair for measured in pairs]
        label_mismatches(timing, found.mismatches, plain)
        timing.labels += [
            Label("wrong_when_recorded", f"{case}: {text}")
            for (case, side), text in wrong.items()
            if side == CANDIDATE
        ]
        names = [case.warm.case.name for case in cases]
        timing.labels += filter(None, (merged(plain, name) for name in names))
        timing.labels += filter(None, (library_at_work(plain, name, found.seen) for name in names))

    def _look_on(
        self,
        found: Collected,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        cases: list[TimedCase],
        needs: Needs,
        timing: Timing,
        kept: _Kept,
    ) -> None:
        """Further rounds, not scored, if a library may be at work in the candidate's place.

        None if the times are of no interest. Faults of the judge end them, and earlier measurements
        stay valid.
        """
        names = [case.warm.case.name for case in cases]
        two = {side: sides[side] for side in (CANDIDATE, EAGER)}
        short = [replace(case, blocks=_LOOKED_BLOCKS, recorded=False) for case in cases]
        looking = Timing()
        with contextlib.suppress(CrowdedFault, InfraFault, TooShortFault, _MoreMemory):
            for _ in range(0 if was_stopped_early(timing) else _MAX_LOOKS):
                if not found.is_undecided(names):
                    break
                for round_, _ in self._measure_rounds(task, two, short, needs, looking, 1, kept):
                    found.look(round_)
        timing.device_time_s += looking.device_time_s
        timing.spend(looking.spent_s)

    def _needs(
        self, task: PreparedTask, sides: Mapping[str, Candidate | None], plan: Plan
    ) -> Needs:
        """The same for all sides and rounds: no side has better conditions than another."""
        sources = (*task.task.texts, *(who.source for who in sides.values() if who))
        overlap = any(map(may_overlap, sources))
        return Needs(block_outputs(task, self._session.device, plan), overlap)

    def _measure_rounds(
        self,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        cases: list[TimedCase],
        needs: Needs,
        timing: Timing,
        wanted: int,
        kept: _Kept,
    ) -> list[tuple[MeasurementRound, GraphTimes]]:
        """Some more rounds; none if they do not count, or an opponent has left the field."""
        sat: list[tuple[MeasurementRound, GraphTimes]] = []
        try:
            with timing.spending("opening"), self._beside_others(timing):
                cases = with_pages(self._session.device, cases, sides, wanted)
            with contextlib.ExitStack() as ends:
                tables = ends.enter_context(
                    self._tables(task, sides, cases, needs, timing, wanted, kept)
                )
                with timing.spending("lock"):
                    # With all of the room, no other evaluation is there: it can be found out.
                    alone = self._device_lock.alone(_all(tables), settles=self._budget.holds_all)
                    turn = ends.enter_context(alone)
                try:
                    for processes in tables:
                        with turn.only(processes.values()):
                            sat.append(self._timed(processes, sides, cases, timing))
                finally:
                    turn.watch.stop()
                    timing.device_time_s += turn.watch.seconds
                strangers = turn.strangers()
            with timing.spending("judging"):
                self._judge(sat, task, timing)
        except CrowdedFault as fault:
            timing.crowded += 1
            if timing.crowded > _MAX_CROWDED or isinstance(fault, OccupiedFault):
                raise
            return []
        except (CandidateFault, SideFault) as error:
            self._after_fault(error, task, sides, timing)
            return []
        return [] if self._disturbed(strangers, timing) else sat

    def _timed(
        self,
        processes: dict[str, RunnerProcess],
        sides: dict[str, Candidate | None],
        cases: list[TimedCase],
        timing: Timing,
    ) -> tuple[MeasurementRound, GraphTimes]:
        """One round, with the device alone."""
        device = self._session.device
        round_ = measure_round(device, processes, cases)
        recorded = time_graphs(device, processes, cases, round_.pair)
        if sides[CANDIDATE] and device.has_profiler and not timing.self_reported:
            timing.self_reported = cuda_events.self_reported(device, processes, cases, round_.pair)
        return round_, recorded

    def _judge(
        self, sat: Sequence[tuple[MeasurementRound, GraphTimes]], task: PreparedTask, timing: Timing
    ) -> None:
        """The outputs that were taken; CandidateFault or SideFault if one is wrong."""
        beside_others = partial(self._beside_others, timing)
        margin = judge_samples([round_ for round_, _ in sat], beside_others)
        timing.margin = worst(timing.margin, margin)
        with beside_others():
            for _, recorded in sat:
                judge_graphs(recorded, task.loaded.timing)

    @contextlib.contextmanager
    def _beside_others(self, timing: Timing) -> Iterator[None]:
        """The device while nothing is timed; waiting for it is counted separately."""
        with contextlib.ExitStack() as ends:
            with timing.spending("lock"):
                ends.enter_context(self._lock.shared())
            yield

    @contextlib.contextmanager
    def _tables(
        self,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        cases: list[TimedCase],
        needs: Needs,
        timing: Timing,
        rounds: int,
        kept: _Kept,
    ) -> Iterator[list[dict[str, RunnerProcess]]]:
        """Processes of all sides, which start and warm up beside other work."""
        starts = {side: partial(self._start, task, who, needs) for side, who in sides.items()}
        ends: dict[str, Callable[[RunnerProcess], list[RunnerProcess]]] = {}
        for side, who in sides.items():
            if who is not None and who.is_ours:
                starts[side] = partial(kept.baselines.take, side, starts[side])
                ends[side] = partial(kept.baselines.give_back, side)
        starts[EAGER] = partial(self._references.take, task, needs, kept.served)
        ends[EAGER] = partial(self._references.give_back, task, needs)
        with contextlib.ExitStack() as stack:
            with timing.spending("opening"):
                ready = ready_processes(starts, partial(self._warm_up, cases), rounds, ends)
                tables = stack.enter_context(ready)
            try:
                yield tables
            finally:
                with timing.spending("closing"):
                    stack.close()

    def _warm_up(self, cases: list[TimedCase], side: str, process: RunnerProcess) -> None:
        with self._lock.shared():
            warm_up(self._session.device, cases, side, process)

    def _after_fault(
        self,
        error: CandidateFault | SideFault,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        timing: Timing,
    ) -> None:
        """Have it measured again, or without the opponent that failed; raises if neither helps."""
        fault = candidate_fault_of(error)
        if isinstance(fault, TooShortFault) and timing.too_short < _MAX_TOO_SHORT:
            timing.too_short += 1
            return
        if isinstance(fault, LateFault | MovedFault) and timing.moved < _MAX_MOVED:
            timing.moved += 1
            return
        if isinstance(error, CandidateFault) and sides[CANDIDATE] is not None:
            raise error
        if isinstance(error, SideFault) and error.side != EAGER:
            self._leave(error.side, error.fault, task, sides, timing)
            if error.side in sides:
                raise _MoreMemory from error
        elif fault.status in _OWN_OUTPUTS:
            raise UsageError(
                f"the task's reference cannot be timed: {fault.feedback}. Let its forward return "
                "a new tensor, .clone() for one, and leave its inputs as they are"
            ) from error
        else:  # all of it is this thread's
            if note_shortage(fault, task, self._session.device):
                raise _MoreMemory from error
            raise InfraFault(str(error)) from error

    def _disturbed(self, strangers: frozenset[int], timing: Timing) -> bool:
        """Whether a foreign process appeared on the device; given up after some tries."""
        if not strangers:
            return False
        seen = sum(label.name == "foreign_process" for label in timing.labels)
        if seen >= _MAX_DISTURBED:
            raise InfraFault("other processes keep appearing on the device while it is timed")
        pids = ", ".join(map(str, sorted(strangers)))
        timing.labels.append(
            Label("foreign_process", f"process {pids} appeared on the device: measured again")
        )
        return True

    def _leave(
        self,
        side: str,
        fault: CandidateFault,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        timing: Timing,
    ) -> None:
        """Go on without an opponent; a baseline that ran out of memory gets more and stays."""
        opponent = sides[side]
        if opponent and opponent.is_ours and note_shortage(fault, task, self._session.device):
            return
        del sides[side]
        timing.labels.append(Label(OPPONENT_FAILED, f"{side}: {fault.status}: {fault.feedback}"))

    def _start(self, task: PreparedTask, who: Candidate | None, needs: Needs) -> RunnerProcess:
        """A process with the models of all timed cases constructed."""
        if who is None:
            return self._session.reference(task, needs)
        return self._session.loaded(who, task.timed, needs=needs)

    def _plan(
        self,
        task: PreparedTask,
        sides: dict[str, Candidate | None],
        plan: Plan,
        timing: Timing,
    ) -> list[TimedCase]:
        """Calls per block, and where each side's outputs lie relative to their address."""
        opponents = {side: who for side, who in sides.items() if who and side != CANDIDATE}
        for side, opponent in opponents.items():
            while side in sides:
                try:
                    admit(self._session, task, opponent)
                    break
                except CandidateFault as fault:
                    self._leave(side, fault, task, sides, timing)
        own = self._reference_profile.layouts(task)
        with self._beside_others(timing):
            return planned(task, sides, own, self._session.device, plan)


def _why_no_longer(side: str, target: float) -> str:
    if target >= UNREACHABLE_SPEEDUP:
        return "not timed further: only a first interval was wanted"
    return f"not timed further: less than {target:.4g} times as fast as {side}"


def _all(tables: list[dict[str, RunnerProcess]]) -> set[RunnerProcess]:
    return {process for table in tables for process in table.values()}
