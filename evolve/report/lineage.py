"""Lineage as a graph: the origin of every program, and each operator's share in the best one.

Programs are nodes. A program's edges come from the step that produced it first, so the graph has
no cycle; later steps of the same program (other assignments of its tunables, verification) are
counted on its node.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import NOT_SEARCHED, Step
from evolve.core.measurement import Ratio
from evolve.report.export import export
from evolve.report.text import printable

if TYPE_CHECKING:
    import networkx


__all__ = [
    "Contribution",
    "PathStep",
    "ancestors",
    "best_path",
    "export",
    "graph",
    "operator_contribution",
    "speedup",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One station on the way to the best program.

    `ratio` is the measured speedup, None if the station itself was not timed at full fidelity.
    `indirect_gain` is the quotient of this ratio and that of the station before: both were
    measured against the baseline, in runs of their own, and the interval covers both.
    """

    step: Step
    before: Step | None
    ratio: Ratio | None
    indirect_gain: Ratio | None

    @property
    def verifies(self) -> bool:
        """The station repeats the one before in fresh processes and changes nothing."""
        return self.step.fidelity is Fidelity.VERIFY


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One operator's work in a run.

    `correct` counts strictly correct evaluations, `archived` those that took a place in the
    archive. `path_gain` is the product of its indirect gains on the best path (None: not on it);
    its interval takes the factors for independent, which makes it wide rather than narrow.
    """

    operator: str
    proposals: int
    judged: int
    correct: int
    archived: int
    path_steps: int
    path_gain: Ratio | None
    device_time_s: float


def speedup(step: Step, baseline: str) -> Ratio | None:
    """The speedup a step may be credited with: strictly correct, and timed at full fidelity."""
    if step.status is not Status.CORRECT or step.custom is not True:
        return None
    if step.fidelity is Fidelity.SCREEN or step.operator in NOT_SEARCHED:
        return None
    return step.ratios.get(baseline)


def graph(steps: Iterable[Step], baseline: str = "eager") -> "networkx.DiGraph":
    """Programs (by digest) and the steps that made them; edges point from parent to child.

    Node attributes: `sequence` and `operator` of the step that produced the program first,
    `status`, `evaluations`, and if it was timed `speedup`, `speedup_low`, `speedup_high` of its
    best instance, a verified one if there is any, and `best_sequence`. Edge attributes: `sequence`,
    `operator`, `rank` (0 for the main parent). An unknown value is an absent attribute.
    """
    import networkx

    result = networkx.DiGraph(baseline=printable(baseline))
    instances: dict[str, dict[str, Step]] = {}  # by program: of each, the step that decides on it
    for step in steps:
        if step.program is None:
            continue
        if step.program not in result:
            _add_program(result, step)
        if step.status is None:
            continue
        result.nodes[step.program]["evaluations"] += 1
        known = instances.setdefault(step.program, {})
        instance = canonical_json(dict(step.assignment))
        if instance not in known or _decides(step, known[instance], baseline):
            known[instance] = step
    for program, known in instances.items():
        result.nodes[program].update(_verdict(known.values(), baseline))
    return result


def _add_program(result: "networkx.DiGraph", step: Step) -> None:
    operator = printable(step.operator)
    result.add_node(step.program, sequence=step.sequence, operator=operator, evaluations=0)
    for rank, parent in enumerate(dict.fromkeys(step.parents)):
        if parent in result and parent != step.program:
            result.add_edge(
                parent, step.program, sequence=step.sequence, operator=operator, rank=rank
            )


def _decides(step: Step, earlier: Step, baseline: str) -> bool:
    """Whether an evaluation of an instance decides on it, and no longer an earlier one.

    The newest verification does; without one a fault, else the fastest measurement.
    """
    if Status.INFRA in (step.status, earlier.status):
        return step.status is not Status.INFRA
    if Fidelity.VERIFY in (step.fidelity, earlier.fidelity):
        return step.fidelity is Fidelity.VERIFY
    if _has_fault(step) or _has_fault(earlier):
        return not _has_fault(earlier)
    return _value(step, baseline) > _value(earlier, baseline)


def _has_fault(step: Step) -> bool:
    return step.status not in (Status.CORRECT, Status.TIMING_UNBOUNDED)


def _value(step: Step, baseline: str) -> float:
    ratio = speedup(step, baseline)
    return 0.0 if ratio is None else ratio.value


def _verdict(instances: Iterable[Step], baseline: str) -> dict[str, Any]:
    """Attributes of a node, from the steps that decide on its instances."""

    def worth(step: Step) -> tuple[bool, bool, float]:
        value = _value(step, baseline)
        return not _has_fault(step), value > 0 and step.fidelity is Fidelity.VERIFY, value

    best = max(instances, key=worth)
    assert best.status is not None
    ratio = speedup(best, baseline)
    if ratio is None:
        return {"status": best.status.value}
    return {
        "status": best.status.value,
        "speedup": ratio.value,
        "speedup_low": ratio.low,
        "speedup_high": ratio.high,
        "best_sequence": best.sequence,
    }


def ancestors(graph: "networkx.DiGraph", program: str) -> list[str]:
    """Digests of all programs that `program` descends from, in the order of their making.

    Raises:
        UsageError: the graph has no such program.
    """
    import networkx

    if program not in graph:
        raise UsageError(
            f"program {program!r} is not in this lineage; digests are listed by `evolve show RUN`"
        )
    found = networkx.ancestors(graph, program)
    return sorted(found, key=lambda digest: graph.nodes[digest]["sequence"])


def best_path(
    steps: Iterable[Step], baseline: str = "eager", champion: int | None = None
) -> list[PathStep]:
    """From a root to the champion, along main parents; empty while nothing has been timed.

    Args:
        steps: in sequence order.
        baseline: of speedups.
        champion: the sequence number of the step to arrive at; None for the fastest one.
    """
    first: dict[str, Step] = {}
    timed: dict[str, list[Step]] = {}
    last: Step | None = None
    for step in steps:
        if step.program is None or step.operator in NOT_SEARCHED:
            continue
        first.setdefault(step.program, step)
        ratio = speedup(step, baseline)
        if ratio is not None:
            timed.setdefault(step.program, []).append(step)
        if champion is None:
            if ratio and (last is None or ratio.value > last.ratios[baseline].value):
                last = step
        elif step.sequence == champion:
            last = step
    path = []
    while last is not None:
        before = _origin(last, first, timed, baseline)
        path.append(_station(last, before, baseline))
        last = before
    return path[::-1]


def _station(step: Step, before: Step | None, baseline: str) -> PathStep:
    ratio = speedup(step, baseline)
    earlier = speedup(before, baseline) if before else None
    gain = ratio / earlier if ratio and earlier else None
    return PathStep(step=step, before=before, ratio=ratio, indirect_gain=gain)


def _origin(
    step: Step, first: dict[str, Step], timed: dict[str, list[Step]], baseline: str
) -> Step | None:
    """The station before: always an earlier step, so that every walk ends."""
    program = str(step.program)
    made = first[program]
    if step is not made:
        if step.fidelity is not Fidelity.VERIFY:
            return made
        same = [
            other
            for other in timed.get(program, ())
            if other.sequence < step.sequence and dict(other.assignment) == dict(step.assignment)
        ]
        return max(same, key=lambda other: other.ratios[baseline].value, default=made)
    parent = step.parents[0] if step.parents else None
    if parent is None or parent not in first or first[parent].sequence >= step.sequence:
        return None
    known = [other for other in timed.get(parent, ()) if other.sequence < step.sequence]
    known = [other for other in known if other.fidelity is not Fidelity.VERIFY] or known
    return max(known, key=lambda other: other.ratios[baseline].value, default=first[parent])


def operator_contribution(
    steps: Sequence[Step], baseline: str = "eager", champion: int | None = None
) -> list[Contribution]:
    """One entry per operator, in the order of first use; arguments as in `best_path`."""
    gains: dict[str, list[Ratio]] = {}
    stations: dict[str, int] = {}
    for station in best_path(steps, baseline, champion):
        if station.verifies:
            continue
        operator = station.step.operator
        stations[operator] = stations.get(operator, 0) + 1
        if station.indirect_gain:
            gains.setdefault(operator, []).append(station.indirect_gain)
    by_operator: dict[str, list[Step]] = {}
    for step in steps:
        by_operator.setdefault(step.operator, []).append(step)
    return [
        Contribution(
            operator=operator,
            proposals=len(own),
            judged=sum(1 for step in own if step.status is not None),
            correct=sum(1 for step in own if step.status is Status.CORRECT and step.custom),
            archived=sum(1 for step in own if step.offer),
            path_steps=stations.get(operator, 0),
            path_gain=_product(gains.get(operator, [])),
            device_time_s=math.fsum(step.device_time_s for step in own),
        )
        for operator, own in by_operator.items()
    ]


def _product(ratios: Sequence[Ratio]) -> Ratio | None:
    if not ratios:
        return None
    result, *others = ratios
    for ratio in others:
        result /= Ratio(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
    return result
