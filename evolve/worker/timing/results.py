"""Results of the rounds of a comparison: ratios, a row for each case, samples and labels."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from evolve.core.evaluation import EARLY_STOPPED, CaseResult, CaseSamples, GraphSamples, Label
from evolve.core.measurement import Interval, Ratio, middle
from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.devices.stack_sampling import is_undecided, library_label
from evolve.worker.devices.window import TimedCase
from evolve.worker.timing.graph_timing import Measured, graph_samples
from evolve.worker.timing.interleaved_blocks import PairTimes
from evolve.worker.timing.statistics import median_interval

_MERGED_FACTOR = 4.0
_MISMATCH_SHARE = 0.25  # of all blocks; a few are the scheduler's doing


@dataclass(slots=True)
class Timing:
    """The findings of timing: ratios by side, a row per timed case, raw seconds, and labels.

    `margin` is the worst of the candidate's outputs that were judged (`Judgement`). `spent_s`
    splits the time by purpose, in seconds; nested times count once.
    """

    ratios: dict[str, Ratio] = field(default_factory=dict)
    cases: dict[str, CaseResult] = field(default_factory=dict)
    samples: dict[str, CaseSamples] = field(default_factory=dict)
    labels: list[Label] = field(default_factory=list)
    device_time_s: float = 0.0
    spent_s: dict[str, float] = field(default_factory=dict)
    _inside_s: float = 0.0  # spent inside of the current measurement
    margin: float | None = None
    self_reported: dict[str, dict[str, Any]] = field(default_factory=dict)  # by case and side
    # Measurement rounds that were repeated.
    too_short: int = 0
    moved: int = 0
    crowded: int = 0

    @contextmanager
    def spending(self, what: str) -> Iterator[None]:
        """Counts the time inside, except for time that is counted there under its own name."""
        start, outside_s, self._inside_s = time.monotonic(), self._inside_s, 0.0
        try:
            yield
        finally:
            spent_s = time.monotonic() - start
            self.spend({what: spent_s - self._inside_s})
            self._inside_s = outside_s + spent_s

    def spend(self, spent_s: Mapping[str, float]) -> None:
        for what, seconds in spent_s.items():
            self.spent_s[what] = round(self.spent_s.get(what, 0.0) + seconds, 4)


def weighted(pairs: list[Measured], cases: list[TimedCase], side: str, rule: str) -> list[float]:
    """For each pair the mean of the cases' log ratios by the cases' weights."""
    weights = {case.warm.case.name: case.warm.case.weight for case in cases}
    total = sum(weights.values())
    return [
        sum(weight * pair.log_ratio(name, side, rule) for name, weight in weights.items()) / total
        for pair in pairs
    ]


def spread_seen(pairs: list[Measured], cases: list[TimedCase], others: list[str]) -> float:
    """Standard deviation of a pair's log ratio that single blocks account for.

    Small on a quiet host. If others disturb the blocks, it exceeds the value of a quiet one
    (`Device.spread`).
    """
    squares = [
        max(measured.pair.uncertainty(case.warm.case.name, side) for side in others) ** 2
        for case in cases
        for measured in pairs
    ]
    return math.sqrt(statistics.fmean(squares))


def fill(
    timing: Timing,
    pairs: list[Measured],
    cases: list[TimedCase],
    sides: list[str],
    interval: Callable[[list[float]], Ratio],
    rule: str,
) -> None:
    """Put a row, and the raw times, of every case into `timing`; ratios by a rule of `TIMINGS`.

    Of sides that followed the first ones, their repeated measurements are ignored, and the raw
    times of all are kept under "separate".
    """
    plain = [measured.pair for measured in pairs]
    for case in cases:
        warm = case.warm.case
        others = [side for side in sides if side != CANDIDATE]
        ratios = {
            side: interval([pair.log_ratio(warm.name, side, rule) for pair in pairs])
            for side in others
        }
        times_ms = {side: _median_ms(plain, warm.name, side) for side in sides}
        samples = CaseSamples(
            calls_per_block=case.calls,
            overhead_ms=[round(pair.overhead[warm.name] * 1e3, 4) for pair in plain],
            ms={
                side: [[round(s * 1e3, 6) for s in pair.blocks[warm.name][side]] for pair in plain]
                for side in sides
            },
            graph=_graph(pairs, warm.name, others, interval) if case.recorded else None,
            self_reported=timing.self_reported.get(warm.name, {}),
        )
        if (first := timing.cases.get(warm.name)) is not None:
            timing.cases[warm.name] = replace(
                first, times_ms={**times_ms, **first.times_ms}, ratios={**ratios, **first.ratios}
            )
            known = timing.samples[warm.name]
            separate = replace(samples, self_reported={})
            timing.samples[warm.name] = replace(known, separate=(*known.separate, separate))
            continue
        timing.cases[warm.name] = CaseResult(
            name=warm.name,
            weight=warm.weight,
            timed=True,
            passed=True,
            times_ms=times_ms,
            ratios=ratios,
        )
        timing.samples[warm.name] = samples


def _graph(
    pairs: list[Measured], case: str, others: list[str], interval: Callable[[list[float]], Ratio]
) -> GraphSamples:
    timed = [side for side in others if all(pair.has_graph(case, side) for pair in pairs)]
    ratios = {
        side: interval([pair.log_ratio(case, side, "graph") for pair in pairs]) for side in timed
    }
    return graph_samples(pairs, case, ratios)


def was_stopped_early(timing: Timing) -> bool:
    """Whether a bar was missed, so that nothing more is of interest."""
    return any(label.name == EARLY_STOPPED for label in timing.labels)


def label_mismatches(timing: Timing, mismatches: Sequence[str], pairs: Sequence[PairTimes]) -> None:
    """A label if many of the candidate's blocks contradict the times that its process reports."""
    blocks = sum(len(sides[CANDIDATE]) for pair in pairs for sides in pair.blocks.values())
    if len(mismatches) > _MISMATCH_SHARE * blocks:
        evidence = f"in {len(mismatches)} blocks, e.g. {mismatches[0]}"
        timing.labels.append(Label("timing_mismatch", evidence))


def merged(pairs: Sequence[PairTimes], case: str) -> Label | None:
    """A label if single calls take many times as long as in a block, but not the reference's.

    The first call after a pause is slow for everybody. Blocks of one call have nothing to merge.
    """
    if not all(pair.singles[case] for pair in pairs):
        return None
    alone, shared, factor = {}, {}, {}
    for side in (CANDIDATE, EAGER):
        alone[side] = min(pair.singles[case][side] for pair in pairs)  # the host was busy in others
        shared[side] = statistics.median(t for pair in pairs for t in pair.blocks[case][side])
        factor[side] = alone[side] / shared[side]
    if factor[CANDIDATE] < _MERGED_FACTOR * max(1.0, factor[EAGER]):
        return None
    return Label(
        "calls_merged",
        f"{case}: {alone[CANDIDATE] * 1e3:.3g} ms for one call by itself, "
        f"{shared[CANDIDATE] * 1e3:.3g} ms for each of many",
    )


def library_at_work(
    pairs: Sequence[PairTimes], case: str, seen: Mapping[str, Sequence[str]]
) -> Label | None:
    """A label if a library worked in the candidate's place; `seen` by case, sample by sample."""
    return library_label(case, seen.get(case, ()), _seconds(pairs, case))


def may_be_a_library(
    pairs: Sequence[PairTimes], case: str, seen: Mapping[str, Sequence[str]]
) -> bool:
    """If it was, and too few stack_samples showed a thread."""
    return is_undecided(seen.get(case, ()), _seconds(pairs, case))


def _seconds(pairs: Sequence[PairTimes], case: str) -> float:
    """Of a call of the candidate, roughly."""
    return statistics.median(t for pair in pairs for t in pair.blocks[case][CANDIDATE])


def _median_ms(pairs: list[PairTimes], case: str, side: str) -> Interval:
    return median_interval([1e3 * middle(pair.blocks[case][side]) for pair in pairs])
