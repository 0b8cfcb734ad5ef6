"""How far proposals came, and why others ended earlier."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import Step
from evolve.report.lineage import speedup
from evolve.report.run.facts import RunFacts
from evolve.report.text import baseline_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A rung of the funnel: how many proposals reached it, and how the others fell off before."""

    name: str
    count: int
    share: float
    lost: str


_RUNGS: tuple[tuple[str, frozenset[Status]], ...] = (
    ("has the interface", frozenset({Status.INVALID_INTERFACE})),
    ("compiles", frozenset({Status.COMPILE_ERROR})),
    (
        "runs to its end",
        frozenset(
            {
                Status.RUNTIME_EXCEPTION,
                Status.ILLEGAL_ACCESS,
                Status.ASSERT,
                Status.OOM,
                Status.TIMEOUT,
                Status.KILLED,
            }
        ),
    ),
    (
        "gives the right output",
        frozenset(
            {
                Status.WRONG_TREE,
                Status.WRONG_SHAPE,
                Status.WRONG_DTYPE,
                Status.WRONG_VALUE,
                Status.NONDETERMINISTIC,
            }
        ),
    ),
    ("plays fair", frozenset({Status.MUTATED_INPUT, Status.ALIASED, Status.HACK})),
    ("can be timed", frozenset({Status.TIMING_UNBOUNDED})),
)


def funnel(facts: RunFacts) -> list[Rung]:
    """How far proposals came, screens included; each rung names the ends of the others."""
    left = list(facts.proposals)
    total = len(left) or 1
    rungs = [_rung("asked for", left, total, {})]

    def descend(name: str, kept: list[Step], lost: Mapping[str, int]) -> None:
        nonlocal left
        left = kept
        rungs.append(_rung(name, left, total, lost))

    made = [step for step in left if step.program is not None]
    descend("gave a new program or instance", made, {"no program": len(left) - len(made)})
    judged = [step for step in left if step.status not in (None, Status.INFRA)]
    if len(judged) < len(left):
        descend("was judged", judged, {"not judged": len(left) - len(judged)})
    for name, ends in _RUNGS:
        lost = Counter(str(step.status) for step in left if step.status in ends)
        if lost or name in ("compiles", "runs to its end", "gives the right output"):
            descend(name, [step for step in left if step.status not in ends], lost)
    custom = [step for step in left if step.custom]
    descend("by a kernel of its own", custom, {"not custom": len(left) - len(custom)})
    settled = _settled(facts)
    faster = [step for step in left if step.sequence in settled]
    screened = sum(1 for step in left if step.fidelity is Fidelity.SCREEN)
    slow = len(left) - len(faster) - screened
    descend(
        f"faster than {baseline_name(facts.baseline)}",
        faster,
        {"screened only": screened, "without a measurable gain": slow},
    )
    return rungs


def _settled(facts: RunFacts) -> set[int]:
    """Proposals that are faster, by number: by the last verification, if there was one."""
    verified = {
        (step.program, *sorted(step.assignment.items())): speedup(step, facts.baseline)
        for step in facts.steps
        if step.fidelity is Fidelity.VERIFY and step.status not in (None, Status.INFRA)
    }
    found = set()
    for step in facts.proposals:
        if step.fidelity is Fidelity.SCREEN:
            continue
        key = step.program, *sorted(step.assignment.items())
        ratio = verified[key] if key in verified else speedup(step, facts.baseline)
        if ratio is not None and ratio.is_gain:
            found.add(step.sequence)
    return found


def _rung(name: str, steps: Sequence[Step], total: int, lost: Mapping[str, int]) -> Rung:
    reasons = sorted(((count, reason) for reason, count in lost.items() if count), reverse=True)
    return Rung(
        name=name,
        count=len(steps),
        share=round(100 * len(steps) / total, 1),
        lost=", ".join(f"{count:,} {reason.replace('_', ' ')}" for count, reason in reasons),
    )
