"""Search over a program's declared tunables."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Assignment, Program, TunableValue
from evolve.core.protocols import Context, Declined, Elite, Proposal, Trial
from evolve.core.source.tunables import Space, parse
from operators.checks import check_number, check_whole
from operators.local.tuning import Limits, expected, fits, suggest

_ENUMERABLE = 4096  # spaces up to this size are listed, larger ones sampled
_SAMPLED = 1024
_SECOND_RING = 512
_PROGRAMS = 16  # the best, among which the next one to tune is chosen
_MIN_SCREENS, _ONE_IN, _MAX_SCREENS = (
    3,
    30,
    8,
)  # instances: screens before the first full measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Proposes one instance of a held program per ask: many cheap looks, few full measurements.

    Of the best programs it takes the one whose number of trials, multiplied by its place, is the
    smallest: the fastest has most of them, the second half as many, the third a third, and a new
    program has its first trial soon.

    Within a program: asynchronous successive halving (Li et al. 2020) with two rungs. A first rung
    of `breadth` screens; from then on, whenever one of the best `1 / reduction` of the finished
    screens has not been measured in full, it is, unless its whole interval lies below that of the
    fastest that was; else another instance is screened, and if none is left, those few screens are
    all that there will be. The next screen is the instance from which a model of all trials expects
    most (`operators.local.tuning.surrogate`), which begins with the idle resources of launches
    (`operators.local.tuning.expectation`); instances that do not fit a device, or only by spilling,
    are left out (`operators.local.tuning.resources`). All of it is derived from the stored trials,
    pending ones included, so that concurrent asks never repeat each other.

    Args:
        breadth: finished screens before the first full measurement; None for one in 30 of the
            instances that a program has, but no fewer than 3 and no more than 8.
        reduction: one in so many finished screens is measured in full.
        limit: the most instances of one program.
        share: of the run's tickets that are tunings, as long as other operators have something to
            propose (`TuningOperator`).

    Raises:
        UsageError: a setting is out of range.
    """

    breadth: int | None = None
    reduction: int = 3
    limit: int = 40
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.breadth is not None:
            check_whole("operators.*.breadth", self.breadth, least=1)
        check_whole("operators.*.reduction", self.reduction, least=1)
        check_whole("operators.*.limit", self.limit, least=1)
        check_number("operators.*.share", self.share, least=0, most=1)

    @property
    def parents(self) -> int:
        return 0

    @property
    def tuning_share(self) -> float:
        """See `evolve.core.protocols.TuningOperator`."""
        return self.share

    def propose(self, context: Context) -> Proposal | Declined:
        outcome: Proposal | Declined = Declined("there is no program to tune")
        for elite in _in_turn(context):
            outcome = self._tuned(context, elite)
            if isinstance(outcome, Proposal):
                return outcome
        return outcome

    def _tuned(self, context: Context, parent: Elite) -> Proposal | Declined:
        """The next instance of a program."""
        program = Program(context.facts.source(parent.program))
        space = parse(program.source)
        if space.size == 1:
            return Declined("the program has no open tunables")
        history = History(space, context.facts.trials(parent.program), parent)
        breadth = self.breadth or min(_MAX_SCREENS, max(_MIN_SCREENS, space.size // _ONE_IN))
        assignment, note = self._promotion(history, breadth), "best of its screens"
        fidelity = Fidelity.SEARCH
        if assignment is None:
            assignment, note = self._unknown(program, history, context)
            if space.size > self.reduction:  # a handful is measured at once
                fidelity = Fidelity.SCREEN
        if assignment is None:
            assignment, fidelity = self._promotion(history, 1), Fidelity.SEARCH
        if assignment is None:
            return Declined(note)
        return Proposal(
            program=program,
            assignment=assignment,
            fidelity=fidelity,
            parents=(parent.program,),
            note=note,
        )

    def _promotion(self, history: "History", least: int) -> Assignment | None:
        """A screened instance that has earned a full measurement and has none."""
        finished = history.finished_screens
        if len(finished) < least:
            return None
        quota = max(len(finished) // self.reduction, 1)
        for trial in ranked(finished)[:quota]:
            if not history.is_measured(trial) and not history.is_hopeless(trial):
                return history.space.complete(trial.assignment)
        return None

    def _unknown(
        self, program: Program, history: "History", context: Context
    ) -> tuple[Assignment | None, str]:
        """An instance that was never tried, with the reason for it (or for there being none)."""
        if len(history) >= self.limit:
            return None, f"{len(history)} instances tried, the limit is {self.limit}"
        space, limits = history.space, Limits.of(context.device)
        open_ = [
            one for one in candidates(history, context.rng) if fits(program.source, one, limits)
        ]
        if not open_:
            return None, "space explored"
        before = partial(expected, program.source, limits=limits)
        return suggest(space, history.known, open_, context.rng, before), "most is expected of it"


def _in_turn(context: Context) -> list[Elite]:
    """The best programs, whose turn it is first."""

    def turn(place: int) -> int:
        return (place + 1) * (len(context.facts.trials(context.elites[place].program)) + 1)

    places = range(min(_PROGRAMS, len(context.elites)))
    return [context.elites[place] for place in sorted(places, key=turn)]


_Key = tuple[TunableValue | None, ...]


class History:
    """The known facts of a program's instances.

    Args:
        space: the program's tunables.
        trials: its stored trials in order.
        parent: its elite; stands in if the run holds no full measurement of it.
    """

    def __init__(self, space: Space, trials: Sequence[Trial], parent: Elite) -> None:
        self.space = space
        self._written = {tunable.name: tunable.default for tunable in space}
        self.screens = [trial for trial in trials if trial.fidelity is Fidelity.SCREEN]
        self.finished_screens = [trial for trial in self.screens if trial.status is not None]
        full = [trial for trial in trials if trial.fidelity is not Fidelity.SCREEN]
        self._measured = {self._key(trial.assignment) for trial in full}
        self._tried = self._measured | {self._key(trial.assignment) for trial in self.screens}
        self._tried.add(self._key(parent.assignment))
        self._leader = next(iter(ranked(full)), None)
        self._fallback = parent.assignment
        self._full = full
        self._parent = parent

    def __len__(self) -> int:
        return len(self._tried)

    @property
    def best(self) -> Assignment:
        """The best instance by full measurement."""
        return self._leader.assignment if self._leader else self._fallback

    def is_measured(self, trial: Trial) -> bool:
        """Whether the instance of a screen was measured in full, or is being so."""
        return self._key(trial.assignment) in self._measured

    def is_hopeless(self, trial: Trial) -> bool:
        """Whether a screen's whole interval lies below that of the best full measurement."""
        if self._leader is None or self._leader.ratio is None or trial.ratio is None:
            return False
        return trial.ratio.high < self._leader.ratio.low

    @property
    def known(self) -> list[tuple[Assignment, float | None]]:
        """Instances with their log speedups, by full measurement if there is one.

        None stands for one that failed, or has no finite time. Pending ones count as average, so
        that the next ask looks elsewhere ("constant liar", Ginsbourger et al. 2010).
        """
        fitness = self._parent.fitness.value
        values: dict[_Key, float | None] = {
            self._key(self._parent.assignment): fitness if math.isfinite(fitness) else None
        }
        pending: list[_Key] = []
        for trial in (*self.screens, *self._full):
            key = self._key(trial.assignment)
            if trial.status is None:
                pending.append(key)
            else:
                values[key] = _log_speedup(trial)
        timed_values = [value for value in values.values() if value is not None]
        average = sum(timed_values) / max(len(timed_values), 1)
        for key in pending:
            values.setdefault(key, average)
        return [(self._named(key), value) for key, value in values.items()]

    def untried(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        return [found for found in assignments if self._key(found) not in self._tried]

    def _named(self, key: _Key) -> Assignment:
        named = zip(self._written, key, strict=True)
        return {name: value for name, value in named if value is not None}

    def _key(self, assignment: Assignment) -> _Key:
        return tuple(assignment.get(name, default) for name, default in self._written.items())


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The correct and timed trials, fastest first, the earlier first among equals."""
    timed = [(value, one) for one in trials if (value := _log_speedup(one)) is not None]
    return [trial for _, trial in sorted(timed, key=lambda pair: -pair[0])]


def _log_speedup(trial: Trial) -> float | None:
    """None for one that failed, or has no finite time."""
    if trial.status is not Status.CORRECT or trial.ratio is None:
        return None
    return math.log(trial.ratio.value) if 0 < trial.ratio.value < math.inf else None


def candidates(history: History, rng: random.Random) -> list[Assignment]:
    """Instances that were not tried, in random order: all, or some if there are too many."""
    space = history.space
    if space.size <= _ENUMERABLE:
        listed: list[Assignment] = list(space.assignments())
    else:
        near = space.neighbours(history.best)
        listed = [*near, *(space.sample(rng) for _ in range(_SAMPLED))]
        listed += _second_ring(space, near, rng)
    rng.shuffle(listed)
    return history.untried(listed)


def _second_ring(
    space: Space, near: Sequence[Assignment], rng: random.Random
) -> Iterator[Assignment]:
    """Some neighbours of neighbours: thousands if there are dozens of tunables."""
    for _ in range(_SECOND_RING):
        one, tunable = rng.choice(near), rng.choice(space.tunables)
        if steps := tunable.neighbours(one.get(tunable.name)):
            yield {**one, tunable.name: rng.choice(steps)}
