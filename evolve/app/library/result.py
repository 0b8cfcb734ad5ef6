"""The result of a search as Python values: the winner, its speedup, and every step."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from evolve.app.database import open_store
from evolve.app.library.winner import proof_text, standalone, winner_of
from evolve.app.text import speedup_text
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.lineage import VERIFY, Step
from evolve.report.export.program import load
from evolve.report.run.facts import RunFacts, gather
from evolve.report.run.html import render
from evolve.report.text import write_text

if TYPE_CHECKING:
    import pandas

FRAME = '<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:{px}px;border:0">'
HEIGHT_PX = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of a search.

    `speedup` is over the run's baseline, with its 95 % interval from `low` to `high`; all three are
    None if the step has none. `best` is the highest speedup of a search's step so far. `elapsed_s`
    is the run's active time when the step ended, `device_time_s` its exclusive device time.
    `status` is None while the step has no verdict; `failure` is the reason for a missing program.
    """

    sequence: int
    operator: str
    method: str
    fidelity: str
    status: str | None
    custom: bool | None
    speedup: float | None
    low: float | None
    high: float | None
    best: float | None
    program: str | None
    parents: tuple[str, ...]
    failure: str
    elapsed_s: float
    device_time_s: float


class History(Sequence[Row]):
    """The steps of a search in their order."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> "History": ...

    def __getitem__(self, index: int | slice) -> "Row | History":
        found = self._rows[index]
        return History(found) if isinstance(found, tuple) else found

    def __repr__(self) -> str:
        return f"<History of {len(self)} steps>"

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a row for each step, and the fields of `Row` as columns.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise UsageError(
                "history.to_pandas needs pandas, which is not installed: pip install pandas"
            ) from error
        columns = list(Row.__dataclass_fields__)
        return pandas.DataFrame.from_records([asdict(row) for row in self], columns=columns)


class Result:
    """A stored run as it stood when the result was made.

    Args:
        store: path of the database.
        run: name of the run; None: the newest.

    Attributes:
        store: path of the database.
        run: name of the run, with which `optimize(..., name=run)` goes on.
        task: the task of the search.
        finished: whether the search came to its end; otherwise it can be resumed.
        reason: why it ended.

    Raises:
        UsageError: there is no such database or run.
    """

    def __init__(self, store: str | Path, run: str | None = None) -> None:
        self.store = Path(store)
        with open_store(str(self.store)) as database:
            self._facts: RunFacts = gather(database, run)
            row = self._facts.run
            self._source = standalone(database, row) if self._facts.champion else None
        self.run, self.task, self.reason = row.name, row.task, row.reason
        self.finished = row.state == "finished"

    @property
    def speedup(self) -> float | None:
        """How many times as fast as `baseline` the winner is; None without a winner."""
        return self._facts.champion.ratio.value if self._facts.champion else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds of the speedup's 95 % interval; None without a winner."""
        winner = self._facts.champion
        return (winner.ratio.low, winner.ratio.high) if winner else None

    @property
    def is_gain(self) -> bool:
        """Whether the whole interval lies above 1."""
        return self._facts.champion is not None and self._facts.champion.ratio.is_gain

    @property
    def verified(self) -> bool:
        """Whether the winner was measured again in fresh processes after it had been chosen."""
        return self._facts.champion is not None and self._facts.champion.verified

    @property
    def baseline(self) -> str:
        """The baseline of the speedup: `eager`, `compile`, `file:mine.py`, ..."""
        return self._facts.baseline

    @property
    def evaluation(self) -> Evaluation | None:
        """The verdict that the speedup is from; None without a winner."""
        return self._facts.champion.evaluation if self._facts.champion else None

    @property
    def source(self) -> str | None:
        """The winner as a Python module that needs nothing of this project; None without one."""
        return self._source

    def module(self) -> type[Any]:
        """The winner's class `ModelNew`, which takes the place of the task's `Model`.

        The winner's code is executed in this process, outside of any sandbox: it was written by a
        search or a model, and has all rights of this process. Read `source` first.

        Raises:
            UsageError: the run has no winner.
        """
        if self._source is None:
            with open_store(str(self.store)) as database:
                winner_of(database, database.run(self.run))
            raise UsageError(f"run {self.run} has a winner by now; make a new Result")
        return load(self._source)

    @cached_property
    def history(self) -> History:
        """Every step of the search."""
        return History(list(_rows(self._facts.steps, self.baseline)))

    def report(self, path: str | Path | None = None) -> str:
        """The report as one HTML page that needs no network; written to `path` if one is given.

        Raises:
            UsageError: the path cannot be written.
        """
        page = render(self._facts)
        if path is not None:
            write_text(Path(path), page)
        return page

    def _repr_html_(self) -> str:
        return FRAME.format(page=html.escape(self.report()), px=HEIGHT_PX) + "</iframe>"

    def __repr__(self) -> str:
        winner = self._facts.champion
        found = "no correct and timed kernel"
        if winner:
            found = f"{speedup_text(winner.ratio)} over {self.baseline}, {proof_text(winner)}"
        return f"<Result of run {self.run} in {self.store}: {found}>"


def _rows(steps: Sequence[Step], baseline: str) -> Iterator[Row]:
    best: float | None = None
    for step in steps:
        ratio = step.ratios.get(baseline)
        if ratio is not None and step.custom and step.operator != VERIFY:
            best = max(best or 0.0, ratio.value)
        yield Row(
            sequence=step.sequence,
            operator=step.operator,
            method=step.method,
            fidelity=step.fidelity.value,
            status=None if step.status is None else step.status.value,
            custom=step.custom,
            speedup=ratio.value if ratio else None,
            low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            best=best,
            program=step.program,
            parents=step.parents,
            failure=step.failure,
            elapsed_s=step.elapsed_s,
            device_time_s=step.device_time_s,
        )
