"""Times of calls recorded as a CUDA graph, beside those of plain calls: for launch-bound kernels.

A call of a few microseconds takes as long as the host needs to launch it. Here the calls of a block
are one graph, which is captured in the process that is measured and launched at once. The window is
the same (`window`): fresh values arrive when the clock starts, are copied to where the graph
expects them, and outputs of the judge's choice are read before it stops. So the graph is no more
believed than the calls are. A program that cannot be recorded has no such time, and keeps its
verdict.
"""

import math
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolve.core.evaluation import GraphSamples, Status
from evolve.core.measurement import Ratio, middle
from evolve.worker.base.faults import CANDIDATE, TRUSTED, CandidateFault
from evolve.worker.correctness.compare import Judgement
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Block, TimedCase, Window
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.timing.interleaved_blocks import PairTimes, judged_outputs

_WARM = -1  # the block that has the graph made and brought to the device


@dataclass(slots=True)
class GraphTimes:
    """Seconds per call in a graph, by case and side; why a side has none; outputs to be judged.

    `wrong` describes a side's error.
    """

    blocks: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    why_not: dict[tuple[str, str], str] = field(default_factory=dict)
    samples: list[tuple[str, TimedCase, Block]] = field(default_factory=list)
    wrong: dict[tuple[str, str], str] = field(default_factory=dict)

    def give_up(self, case: str, side: str, reason: str) -> None:
        self.blocks[case].pop(side, None)
        self.why_not.setdefault((case, side), reason)

    def drop_too_short(self, case: str) -> None:
        """Give up sides of which nothing is left once the clock's overhead is subtracted."""
        for side, times in list(self.blocks[case].items()):
            if times and middle(times) <= 0:
                self.give_up(case, side, "shorter than the clock's own overhead")


def time_graphs(
    device: Device, processes: Mapping[str, RunnerProcess], cases: list[TimedCase], pair: PairTimes
) -> GraphTimes:
    """Interleaved blocks of every side that can be recorded. Needs the device to itself.

    Args:
        device: That they run on.
        processes: By side, those of a round, its plain blocks done.
        cases: Of the round; those marked `recorded` are timed.
        pair: Of the round: the overhead of an empty window.
    """
    result = GraphTimes()
    for case in cases:
        if case.recorded:
            _time_case(device, processes, case, pair, result)
    return result


def _time_case(
    device: Device,
    processes: Mapping[str, RunnerProcess],
    case: TimedCase,
    pair: PairTimes,
    result: GraphTimes,
) -> None:
    rng = random.Random(secrets.randbits(64))
    window, name = device.window(), case.warm.case.name
    overhead = pair.overhead[name]
    result.blocks[name] = {}
    for side in processes:
        if side not in _living(processes):
            result.give_up(name, side, "its process ended while another case was recorded")
        elif _block(window, _living(processes), side, case, _WARM, result):
            result.blocks[name][side] = []
    others = [at for at in range(device.block_pool) if at not in pair.numbers.get(name, ())]
    count = min(case.blocks, len(others)) // 2 * 2
    numbers = rng.sample(others, count)  # or it could look outcomes up
    case = replace(case, drawn=case.warm.draw_call(numbers, case.calls, rng))
    for number, again in zip(numbers[::2], numbers[1::2], strict=True):
        order = rng.sample(list(processes), len(processes))
        for at, side in [(number, s) for s in order] + [(again, s) for s in order[::-1]]:
            if side not in result.blocks[name]:
                continue
            block = _block(window, _living(processes), side, case, at, result)
            if block:
                result.blocks[name][side].append((block.run - overhead) / case.calls)
                if side not in TRUSTED:
                    result.samples.append((side, case, block))
    result.drop_too_short(name)


def _living(processes: Mapping[str, RunnerProcess]) -> dict[str, RunnerProcess]:
    """Without those that have ended over being recorded."""
    return {side: process for side, process in processes.items() if process.alive}


def _block(
    window: Window,
    processes: Mapping[str, RunnerProcess],
    side: str,
    case: TimedCase,
    number: int,
    result: GraphTimes,
) -> Block | None:
    """None if the side cannot be recorded; its process may have ended over it."""
    block, name = None, case.warm.case.name
    with window.alone(side, processes):
        try:
            layout = case.layouts[side]
            block = window.run(processes[side], case, layout, number, recorded=True,
                               is_trusted=side in TRUSTED)  # fmt: skip
        except CandidateFault as fault:
            result.give_up(name, side, fault.feedback)
    return block


def judge_graphs(recorded: GraphTimes, rule: str) -> None:
    """Outputs have to be as right as those of plain calls; a side with a wrong one has no times.

    Kernels on the legacy default stream are not recorded, honest as they may be: then nothing is
    right. Leaving work out of some calls only is deliberate.

    Raises:
        CandidateFault: it is the candidate, and fitness is by graphs (a `rule` of `TIMINGS`).
    """
    judged: dict[tuple[str, str], list[Judgement]] = {}
    for side, case, block in recorded.samples:
        key = case.warm.case.name, side
        judged.setdefault(key, []).extend(judged_outputs(case, block))
    recorded.samples.clear()
    for (name, side), verdicts in judged.items():
        wrong = [verdict for verdict in verdicts if verdict.status is not Status.CORRECT]
        if not wrong:
            continue
        text = f"wrong when replayed, {len(wrong)} of {len(verdicts)} outputs"
        if side == CANDIDATE and rule == "graph" and len(wrong) < len(verdicts):
            raise CandidateFault(wrong[0].status, f"case {name}: {text}")
        recorded.wrong[name, side] = text
        recorded.give_up(name, side, text)


def drop_wrong(measured: "Sequence[Measured]") -> dict[tuple[str, str], str]:
    """A side with a wrong graph in one round has no such times in any; the reason, as above."""
    wrong = {key: text for one in measured for key, text in one.recorded.wrong.items()}
    for one in measured:
        for (case, side), text in wrong.items():
            one.recorded.give_up(case, side, text)
    return wrong


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one round: of plain calls, and of those recorded."""

    pair: PairTimes
    recorded: GraphTimes

    def log_ratio(self, case: str, side: str, timing: str) -> float:
        """Log of how many times faster the candidate is than a side, by a rule of `TIMINGS`.

        By graphs, a candidate that cannot be recorded is held against them with its plain calls:
        refusing must not pay. If the side itself has no graph, plain calls decide.
        """
        times = self.recorded.blocks.get(case, {})
        if timing != "graph" or not times.get(side):
            return self.pair.log_ratio(case, side)
        own = times.get(CANDIDATE) or self.pair.blocks[case][CANDIDATE]
        return math.log(middle(times[side]) / middle(own))

    def has_graph(self, case: str, side: str) -> bool:
        times = self.recorded.blocks.get(case, {})
        return bool(times.get(side) and times.get(CANDIDATE))


def graph_samples(
    measured: Sequence[Measured], case: str, ratios: Mapping[str, Ratio]
) -> GraphSamples:
    """A case's graph times: raw ms by side, a row for each round; why a side has none."""
    rows: dict[str, list[list[float]]] = {}
    reasons: dict[str, str] = {}
    for one in measured:
        for side, times in one.recorded.blocks.get(case, {}).items():
            rows.setdefault(side, []).append([round(1e3 * seconds, 6) for seconds in times])
        reasons |= {side: text for (name, side), text in one.recorded.why_not.items()
                    if name == case}  # fmt: skip
    return GraphSamples(ms=rows, why_not=reasons, ratios=ratios)
