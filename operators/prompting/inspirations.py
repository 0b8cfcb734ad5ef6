"""Which other programs and attempts of the run a prompt shows. Every choice is bounded."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from evolve.core.evaluation import Status
from evolve.core.measurement import Ratio
from evolve.core.protocols import Attempt, Context, Elite
from operators.base import Base, Instance
from operators.prompting.prompt_context import speedup_of

_SAMPLE = 64  # elites looked at for one that is unlike the parent
_BUCKETED = 1024  # elites that are put into buckets
_BEYOND_REPAIR = (None, Status.CORRECT, Status.INFRA, Status.HACK)


def best_others(elites: Sequence[Elite], base: Base, count: int) -> list[Instance]:
    """The best of some elites, best first, that are not shown already."""
    known = {*base.digests}
    window = elites[: count + len(known)]
    return [(e.program, e.assignment) for e in window if e.program not in known][:count]


def unlike(context: Context, base: Base, shown: Sequence[Instance], count: int) -> list[Instance]:
    """Of a random sample of peers those whose descriptors differ most from the parent's."""
    peers = context.peers
    if not count or not peers:
        return []
    known = {*base.digests, *(program for program, _ in shown)}
    places = sorted(context.rng.sample(range(len(peers)), min(_SAMPLE, len(peers))))
    found = [e for place in places if (e := peers[place]).program not in known]
    mine = _descriptors(context, base)
    found.sort(key=lambda elite: -distance(elite.descriptors, mine))
    return [(elite.program, elite.assignment) for elite in found[:count]]


def _descriptors(context: Context, base: Base) -> Mapping[str, float | str]:
    for parent in context.parents:
        if base.programs and parent.program == base.digest:
            return parent.descriptors
    return {}


def distance(one: Mapping[str, float | str], other: Mapping[str, float | str]) -> int:
    """In how many descriptors two programs differ."""
    return sum(one.get(name) != other.get(name) for name in {*one, *other})


def siblings(context: Context, base: Base, count: int) -> list[Attempt]:
    """The newest other children of the main parent that the parent itself was made from."""
    line = context.facts.ancestors(base.digest, 2)
    if len(line) < 2 or line[-2].program is None:
        return []
    found = context.facts.children(line[-2].program, count + 1)
    return [attempt for attempt in found if attempt.program != base.digest][:count]


def failures_of(context: Context, base: Base, count: int) -> tuple[Attempt, ...]:
    """What was tried from the parent and failed or was not faster; then failures of the run."""
    found: dict[int, Attempt] = {}
    for attempt in _unsuccessful(context, base, count):
        found.setdefault(attempt.sequence, attempt)
        if len(found) == count:
            break  # the others would be read from the store in vain
    return tuple(found.values())


def _unsuccessful(context: Context, base: Base, count: int) -> Iterator[Attempt]:
    if not count:
        return
    if base.programs:
        mine = _speedup(context, base.digest)
        for attempt in context.facts.children(base.digest, 4 * count):
            if has_failed(attempt) or not _is_faster(attempt, mine):
                yield attempt
    for attempt in context.facts.recent(2 * count, failed=True):
        if attempt.program is None or attempt.program not in attempt.parents[:1]:
            yield attempt  # no other instance of a program that works: those tell a tuner something
    for attempt in context.facts.recent(2 * count, failed=False):
        if _was_in_vain(context, attempt):
            yield attempt


def _was_in_vain(context: Context, attempt: Attempt) -> bool:
    """Whether a correct child is known to be no faster than the program that it was made from."""
    if not attempt.parents or attempt.parents[0] == attempt.program or attempt.ratio is None:
        return False
    before = context.facts.evaluation(attempt.parents[0])
    ratio = None if before is None else before.ratios.get(context.baseline)
    return ratio is not None and (attempt.ratio / ratio).high < 1


def has_failed(attempt: Attempt) -> bool:
    """Whether a step has ended without a program that counts."""
    if attempt.program is None:
        return bool(attempt.failure)
    wrong = attempt.status not in (None, Status.CORRECT, Status.INFRA)
    return wrong or attempt.custom is False


def is_repairable(attempt: Attempt) -> bool:
    """Whether a failed program is one of its own, with a fault that may be an oversight."""
    tuned = attempt.program in attempt.parents[:1]  # another instance of a program that works
    return not tuned and attempt.status not in _BEYOND_REPAIR


def trials_since(context: Context, since: int, count: int) -> list[Attempt]:
    """The newest trials from a ticket's number on, newest first; failed and correct ones alike."""
    half = count // 2
    found = [
        *context.facts.recent(half, failed=True),
        *context.facts.recent(count - half, failed=False),
    ]
    unseen = [attempt for attempt in found if attempt.sequence >= since]
    return sorted(unseen, key=lambda attempt: -attempt.sequence)


def contrasting(
    elites: Sequence[Elite], count: int, rng: random.Random, *, width: float, temperature: float
) -> list[Elite]:
    """A program from each of `count` distinct buckets of log speedup, the fastest first.

    Args:
        elites: what there is, best first.
        count: how many; fewer where there are fewer buckets.
        rng: draws the buckets, and a program of each.
        width: of a bucket.
        temperature: of the softmax over the buckets' means.
    """
    stride = -(-len(elites) // _BUCKETED) or 1
    buckets: dict[int, list[Elite]] = {}
    for elite in elites[::stride]:
        buckets.setdefault(math.floor(elite.fitness.value / width), []).append(elite)
    # Gumbel's trick: the largest keys are a draw without replacement by softmax. The mean of all
    # programs moves every key alike, and so falls out.
    keys = {
        number: _mean(buckets[number]) / temperature - math.log(-math.log(rng.random() or 0.5))
        for number in sorted(buckets)
    }
    drawn = sorted(keys, key=lambda number: -keys[number])[:count]
    return [rng.choice(buckets[number]) for number in sorted(drawn, reverse=True)]


def _mean(bucket: Sequence[Elite]) -> float:
    return math.fsum(elite.fitness.value for elite in bucket) / len(bucket)


def _speedup(context: Context, program: str) -> Ratio | None:
    for parent in context.parents:
        if parent.program == program:
            return speedup_of(parent)
    return None


def _is_faster(attempt: Attempt, parent: Ratio | None) -> bool:
    """Whether a step improved on its parent, or might have: what is not known is no failure."""
    if attempt.ratio is None or parent is None:
        return True
    return (attempt.ratio / parent).low > 1
