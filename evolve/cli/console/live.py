"""The live view of a run: a rich panel on a terminal, plain lines everywhere else."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from evolve.app.estimate.forecast import budgets, forecast_text, used_text
from evolve.app.text import calls_text, speedup_text
from evolve.cli.console.terminal import without_echo
from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.run_store import RunStore
from evolve.report.text import duration_text, one_line
from evolve.search.execution.judging import Told
from evolve.search.termination import Rule
from evolve.store import RunRow
from evolve.store.champion import Champion, champion

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_FAILURE = 150  # characters of the line on a failed step
MAX_SAID = 400  # characters of any other line
QUIET_S = 30.0  # without news, plain output repeats its state this often
MAX_RECOUNTED = 20_000  # steps, about a second: a resume must not wait for its display


class Tally:
    """The state of a display, updated by told steps, and by the run's progress between them."""

    def __init__(self, termination: Mapping[str, Any], rule: Rule, baseline: str) -> None:
        self.termination = termination
        self.rule = rule
        self.baseline = baseline
        self.counts: Counter[str] = Counter()
        self.best: Ratio | None = None
        self.verified: Ratio | None = None
        self.last = ""
        self.doing: Callable[[], Sequence[str]] = tuple  # running work, a line each
        self.since = ""  # left out of the counts
        self._winner: Callable[[], Champion | None] = lambda: None

    def recall(self, store: RunStore, run: RunRow) -> None:
        """Take over where the run stands; of a very long one, without its counts."""
        self._winner = partial(champion, store, run)
        self._crown()
        if store.next_sequence(run.id) > MAX_RECOUNTED:
            self.since = " since the run was resumed"
            return
        for step in store.steps(run.id):
            if step.status is not None:
                self.counts[_outcome(step.status, custom=step.custom)] += 1

    def add(self, told: Told) -> bool:
        """Take over one told step; True if it is the best so far."""
        evaluation = told.evaluation
        outcome = _outcome(evaluation.status, custom=evaluation.custom)
        self.counts[outcome] += 1
        self.last = f"#{told.ticket.sequence} {told.ticket.operator}: {outcome}"
        ratio = evaluation.ratios.get(self.baseline) if evaluation.strict else None
        if ratio is None or evaluation.fidelity is Fidelity.SCREEN:
            return False
        self.last += f", {speedup_text(ratio)}"
        if told.ticket.operator == VERIFY:
            self._crown()
            return False
        better = told.offer is not None and (self.best is None or ratio.value > self.best.value)
        if better:
            self.best, self.verified = ratio, None
        return better

    def _crown(self) -> None:
        """The best is who has won by now, be it another than was verified last."""
        winner = self._winner()
        self.best = winner.ratio if winner else None
        self.verified = winner.ratio if winner and winner.verified else None

    def best_text(self) -> str:
        if self.verified:
            return f"{speedup_text(self.verified)}, verified in fresh processes"
        if self.best is None:
            return "none yet"
        gain = "" if self.best.is_gain else ", not yet a gain"
        return f"{speedup_text(self.best)}{gain}, not verified yet"

    def failure_text(self, told: Told) -> str:
        """The step that was added last, and how it failed, on one line."""
        why = told.evaluation.feedback.strip().partition("\n")[0]
        return one_line(f"fail {self.last}: {why}", MAX_FAILURE)

    def counts_text(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.most_common())
        return (counts or "none") + self.since


def _outcome(status: Status, *, custom: bool | None) -> str:
    if status is Status.CORRECT and not custom:
        return "correct without a kernel of its own"
    return status.replace("_", " ")


class PlainDisplay:
    """One line per improvement and per failed step, and the current work if there is none."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._printed = time.monotonic()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._tell_what_is_under_way, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def __call__(self, told: Told) -> None:
        better = self._tally.add(told)
        if better or told.ticket.operator == VERIFY or self._is_quiet():
            self._printed = time.monotonic()
            used = used_text(self._tally.termination, self._tally.rule.usage(told.progress))
            mark = "best" if better else "step"
            print(f"{mark} {self._tally.last} | {used}", flush=True)
        elif told.evaluation.status is not Status.CORRECT:
            self._printed = time.monotonic()
            print(self._tally.failure_text(told), flush=True)

    def follow(self, under_way: Callable[[], Sequence[str]]) -> None:
        self._tally.doing = under_way

    def say(self, line: str) -> None:
        self._printed = time.monotonic()
        print(one_line(line, MAX_SAID), flush=True)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._printed > QUIET_S

    def _tell_what_is_under_way(self) -> None:
        while not self._over.wait(1.0):
            if self._is_quiet() and (lines := self._tally.doing()):
                self.say(f"now {'; '.join(lines)}")


class LiveDisplay:
    """A panel that is redrawn in place."""

    def __init__(self, tally: Tally, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._tally = tally
        self._title = title
        self._told: Told | None = None
        self._since = time.monotonic()
        self._echo = without_echo()
        self._live = Live(
            console=Console(), get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> Self:
        self._echo.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._echo.__exit__(None, None, None)

    def __call__(self, told: Told) -> None:
        self._told, self._since = told, time.monotonic()
        if self._tally.add(told):
            self.say(f"best {self._tally.last}")
        elif told.evaluation.status is not Status.CORRECT:
            self.say(self._tally.failure_text(told))

    def follow(self, under_way: Callable[[], Sequence[str]]) -> None:
        self._tally.doing = under_way

    def say(self, line: str) -> None:
        self._live.console.print(one_line(line, MAX_SAID), markup=False, highlight=False)

    def _render(self) -> "RenderableType":
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column()
        grid.add_row("best", self._tally.best_text())
        grid.add_row("evaluated", self._tally.counts_text())
        for number, line in enumerate(self._tally.doing()):
            grid.add_row("" if number else "now", Text(line))
        if self._told is not None:
            waited = time.monotonic() - self._since
            told_s = self._told.progress.wall_time_s
            progress = replace(self._told.progress, wall_time_s=told_s + waited)
            usage, limits = self._tally.rule.usage(progress), self._tally.termination
            if progress.calls:
                grid.add_row("models", calls_text(progress))
            for name, share in budgets(usage).items():
                grid.add_row(name, f"{_bar(share)} {100 * share:.0f} % of {limits[name]}")
            grid.add_row("ends", forecast_text(usage, progress.wall_time_s))
            grid.add_row("last", f"{self._tally.last} ({duration_text(waited)} ago)")
        return Panel(grid, title=self._title, title_align="left", border_style="dim")


def _bar(share: float, width: int = 20) -> str:
    full = round(share * width)
    return "━" * full + "─" * (width - full)


def open_display(tally: Tally, title: str) -> PlainDisplay | LiveDisplay:
    """The display that fits standard output."""
    return LiveDisplay(tally, title) if sys.stdout.isatty() else PlainDisplay(tally)
