"""What the lines of `gpu_kinds` say: a line for each task, and means of the best programs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

STEPS = (0.8, 1.0, 1.2, 1.5, 2.0)
WRONG = 1e-2  # of the largest expected value; an outcome that is further off is not what was asked
_NAMES = "/".join(f"{step:g}" for step in STEPS)
_NO_PROGRAMS = ("eager", "compile", "memory", "stuck", "died", "done")


def done(rows: Sequence[Row]) -> set[str]:
    """Tasks that were looked at to their end."""
    return {row["task"] for row in rows if row["kind"] == "done"}


@dataclass(frozen=True)
class Seen:
    """What is known of a task.

    Attributes:
        rows: by kind, the last of each.
    """

    rows: Mapping[str, Row]

    def ms(self, kind: str) -> float | None:
        """Of eager or compile, where it is right."""
        row = self.rows.get(kind, {})
        return row.get("ms") if row and is_right(row) else None

    def best(self, *, own: bool) -> float | None:
        """The milliseconds of the fastest program that is right."""
        known = [row for kind, row in self.rows.items() if kind not in _NO_PROGRAMS]
        times = [row["ms"] for row in known if is_right(row) and (row["own"] or not own)]
        return min(times, default=None)

    def text(self) -> str:
        eager = self.ms("eager")
        shown = [f"{eager:.3f} ms"] if eager else []
        for kind, row in self.rows.items():
            name = kind.removeprefix("variant ")
            if "error" in row:
                shown.append(f"{name}: {row['error']}")
            elif not is_right(row):
                shown.append(f"{name}: off by {row['off']:.2g}, left out")
            elif eager and kind not in ("eager", "done"):
                shown.append(f"{name}: {eager / row['ms']:.2f}")
        return " | ".join(shown)


def is_right(row: Row) -> bool:
    """Whether it has a time and an outcome that is near the reference's."""
    return "error" not in row and row.get("off", 0.0) <= WRONG  # which what is no number is not


def seen(rows: Sequence[Row]) -> dict[str, Seen]:
    """By task; of a task that was looked at twice, the last row of each kind."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["task"], {})[row["kind"]] = row
    return {task: Seen(kinds) for task, kinds in found.items()}


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gains:
    """Of times over other times, for as many tasks as were asked for.

    Attributes:
        gains: of the tasks that have both times.
        count: of the tasks that were asked for.
    """

    gains: Sequence[float]
    count: int

    @property
    def mean(self) -> float:
        """Geometric, of those that have one."""
        return math.exp(sum(map(math.log, self.gains)) / len(self.gains))

    @property
    def amsr(self) -> float:
        """The mean of all, where what is missing or slower than 1 counts as 0."""
        return sum(gain for gain in self.gains if gain >= 1) / self.count

    @property
    def shares(self) -> tuple[float, ...]:
        """Of all, those that are faster than each of `STEPS` times."""
        return tuple(sum(gain > step for gain in self.gains) / self.count for step in STEPS)

    def text(self, than: str) -> str:
        shares = " ".join(f"{share:.0%}" for share in self.shares)
        return f"{self.mean:.2f} times as fast as {than} (more than {_NAMES} times: {shares})"


def gains(tasks: Sequence[Seen], count: int, than: str, *, own: bool) -> Gains:
    """Of the best programs over what `than` takes."""
    pairs = [(one.ms(than), one.best(own=own)) for one in tasks]
    return Gains([slow / fast for slow, fast in pairs if slow and fast], count)


def compiled(tasks: Sequence[Seen], count: int) -> Gains:
    """Of torch.compile over eager."""
    pairs = [(one.ms("eager"), one.ms("compile")) for one in tasks]
    return Gains([slow / fast for slow, fast in pairs if slow and fast], count)


def summarise(rows: Sequence[Row], asked: Sequence[str]) -> None:
    """Print a line for each task, and figures for each level and for all."""
    known = {task: one for task, one in seen(rows).items() if task in asked}
    for task, one in known.items():
        print(f"{task} | {one.text()}")
    levels = sorted({task.partition("/")[0] for task in asked})
    for level in levels:
        of_level = [task for task in asked if task.startswith(f"{level}/")]
        _print_means(f"level {level}", [known[t] for t in of_level if t in known], len(of_level))
    if len(levels) > 1:
        _print_means("all", list(known.values()), len(asked))


def _print_means(name: str, tasks: Sequence[Seen], count: int) -> None:
    eager = [one for one in tasks if one.ms("eager")]
    print(f"{name}: {len(eager)} of {count} tasks have a time of eager")
    own_or_not = {"own kernels only": True, "with vendor calls": False}
    for title, own in own_or_not.items():
        over = gains(tasks, count, "eager", own=own)
        if not over.gains:
            continue
        print(f"  {title}: {len(over.gains)} right, {over.text('eager')}, amsr {over.amsr:.2f}")
        failed = sum("error" in one.rows.get("compile", {}) for one in tasks)
        beside = gains(tasks, count - failed, "compile", own=own)
        if beside.gains:
            print(f"    {beside.text('compile')}, of {beside.count} tasks")
    over = compiled(tasks, count)
    if over.gains:
        print(f"  compile: {len(over.gains)} right, {over.text('eager')}")
