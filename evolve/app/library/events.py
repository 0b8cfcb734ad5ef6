"""Events of a search or an evaluation, and the frontend that hands them to a callback."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.run_store import RunStore
from evolve.search.execution.judging import Told
from evolve.search.execution.pipeline import Outcome
from evolve.search.termination import Rule
from evolve.store import RunRow
from evolve.store.champion import champion


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A line of text; `is_failure` if something went wrong."""

    text: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The work that begins now, before or beside the search, such as the start of the judge."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run is stored under this name and begins, or goes on."""

    run: str
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One step has a verdict.

    `speedup` over the run's baseline is None unless the program is strictly correct and was timed.
    `is_best` says whether it is the best so far; `verifies` whether the step repeats the best one
    in fresh processes. `usd` is the cost of models so far, None if a price is unknown.
    """

    run: str
    sequence: int
    operator: str
    status: Status
    feedback: str
    speedup: Ratio | None
    is_best: bool
    verifies: bool
    evaluations: int
    wall_time_s: float
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The search is over; a run that is not `finished` can be resumed by its name."""

    run: str
    reason: str
    finished: bool


Event: TypeAlias = Notice | Phase | Started | Judged | Ended
Callback: TypeAlias = Callable[[Event], None]


class Steps:
    """Turns told steps into events (`evolve.app.frontend.Display`)."""

    def __init__(self, store: RunStore, run: RunRow, send: Callback) -> None:
        self._run = run
        self._send = send
        self._winner = partial(champion, store, run)
        self._best = self._winners_speedup()

    def _winners_speedup(self) -> float:
        winner = self._winner()
        return winner.ratio.value if winner else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, told: Told) -> None:
        evaluation, verifies = told.evaluation, told.ticket.operator == VERIFY
        ratio = evaluation.ratios.get(self._run.baseline) if evaluation.strict else None
        is_offered = told.offer is not None and not verifies
        counts = is_offered and evaluation.fidelity is not Fidelity.SCREEN
        is_best = ratio is not None and counts and ratio.value > self._best
        if verifies:  # the winner may be another now, or slower than it seemed
            self._best = self._winners_speedup()
        elif ratio is not None and is_best:
            self._best = ratio.value
        self._send(
            Judged(
                run=self._run.name,
                sequence=told.ticket.sequence,
                operator=told.ticket.operator,
                status=evaluation.status,
                feedback=evaluation.feedback,
                speedup=ratio,
                is_best=is_best,
                verifies=verifies,
                evaluations=told.progress.evaluations,
                wall_time_s=told.progress.wall_time_s,
                usd=told.progress.usd,
            )
        )

    def follow(self, under_way: Callable[[], Sequence[str]]) -> None:
        """Events report completed facts, not work in progress."""


class EventFrontend:
    """Hands events to a callback (`evolve.app.frontend.Frontend`).

    Attributes:
        place: database and name of the run, once it has begun.

    Raises:
        UsageError: the callback cannot be called.
    """

    def __init__(self, callback: Callback | None) -> None:
        if not (callback is None or callable(callback)):
            raise UsageError(f"on_event={callback!r}: give a function of one argument, the event")
        self._send: Callback = (lambda event: None) if callback is None else callback
        self.place: tuple[str, str] | None = None

    def say(self, line: str) -> None:
        self._send(Notice(text=line))

    def warn(self, line: str) -> None:
        self._send(Notice(text=line, is_failure=True))

    @contextmanager
    def doing(self, what: str | Callable[[], str], *, plain: bool = True) -> Iterator[None]:
        self._send(Phase(text=what() if callable(what) else what))
        yield

    def display(self, store: RunStore, run: RunRow, config: Mapping[str, Any], rule: Rule) -> Steps:
        self.place = store.location, run.name
        self._send(Started(run=run.name, store=store.location))
        return Steps(store, run, self._send)

    @contextmanager
    def interruptible(
        self, stop: Callable[[str], None], leave: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """A program ends a search by cancelling it: signals are its own."""
        yield

    def ended(self, store: RunStore, run: RunRow, outcome: Outcome) -> None:
        self._send(Ended(run=run.name, reason=outcome.reason, finished=outcome.finished))
