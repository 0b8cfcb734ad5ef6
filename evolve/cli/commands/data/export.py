"""`evolve export`: stored runs as training data, in the format that a trainer reads."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evolve.app.database import open_store
from evolve.cli.args import add_rules, add_store, parser
from evolve.core.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from evolve.core.run_store import RunStore
    from evolve.store import RunRow
    from evolve.trajectories.decontamination.exclusions import Rules
    from evolve.trajectories.exporters.export import Plan
    from evolve.trajectories.exporters.manifest import Manifest

FORMS = ("jsonl", "parquet")
_DRAWN_S, _SAID_S = 0.2, 10.0  # between two looks at the progress


def main(words: Sequence[str]) -> int:
    """Export runs, or list the runs that can be exported."""
    from evolve.trajectories.exporters.export import export

    options = _parse(words)
    if options.list:
        print("\n".join(_listed()))
        return 0
    if not options.to:
        raise UsageError("--to is missing: name a format; `evolve export --list` prints them")
    if not options.output:
        raise UsageError("-o is missing: name a folder to write, e.g. -o data")
    plan = _plan(options)
    with open_store(options.store) as store:
        runs = _runs(store, options.runs)
        with _Progress() as show:
            made = export(store, runs, Path(options.output), plan, show)
    print("\n".join(_summary(made, options.output)))
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "export",
        "Write the steps of runs as training data. Held-out and weak tasks, cheats, tasks whose "
        "licence forbids training and models that are not allowed are left out and counted. "
        "Stopped, it goes on when the same command is given again.",
    )
    arguments.add_argument(
        "runs", nargs="*", metavar="RUN", help="names of runs (default: the newest)"
    )
    arguments.add_argument("--to", metavar="FORMAT", help="trl-sft, verl-rl, ...; see --list")
    arguments.add_argument(
        "--recipe",
        metavar="NAME",
        help="which steps become which rows, e.g. kernel_smith@2; by default a fitting one",
    )
    arguments.add_argument("-o", "--output", metavar="DIR", help="folder to write")
    arguments.add_argument(
        "--list", action="store_true", help="print formats and recipes, and their combinations"
    )
    arguments.add_argument(
        "--format", choices=FORMS, help="of the files; parquet by default for verl, else jsonl"
    )
    add_rules(arguments)
    arguments.add_argument(
        "--models-allowed",
        action="append",
        default=[],
        metavar="NAME",
        help="keep steps of these models only (patterns as in openai/*), and only if what they "
        "were made from, and what their prompts show, is theirs too; your programs (initial) and "
        "those that ship belong to no model",
    )
    arguments.add_argument(
        "--test-family", action="append", default=[], metavar="NAME", help="for the test split"
    )
    add_store(arguments)
    return arguments.parse_args(words)


def _plan(options: argparse.Namespace) -> "Plan":
    from evolve.trajectories.exporters.export import Plan
    from evolve.trajectories.exporters.formats import find_format
    from evolve.trajectories.views.recipes import RECIPES, find_recipe

    target = find_format(options.to)
    fitting = (one.name for one in RECIPES if set(one.views) & set(target.shapes))
    recipe = find_recipe(options.recipe or next(fitting))
    return Plan(
        format=target,
        recipe=recipe,
        rules=_rules(options),
        test_share=options.test_share,
        test_families=tuple(options.test_family),
        parquet=target.parquet if options.format is None else options.format == "parquet",
    )


def _rules(options: argparse.Namespace) -> "Rules":
    from evolve.trajectories.decontamination.exclusions import Rules
    from evolve.trajectories.decontamination.graphs import Tracer
    from evolve.trajectories.decontamination.holdout import KERNELBENCH, hold_out

    with Tracer() as tracer:
        held_out = hold_out(options.held_out or [KERNELBENCH], tracer)
    return Rules(
        held_out=held_out,
        models=tuple(options.models_allowed),
        licences=tuple(options.licences_allowed),
    )


def _runs(store: "RunStore", names: Sequence[str]) -> "list[RunRow]":
    """The runs of these names, each once, in the order in which they were made."""
    named = map(store.run, names) if names else [store.run()]
    found = {run.id: run for run in named}
    return [found[key] for key in sorted(found)]


def _listed() -> Iterator[str]:
    from evolve.trajectories.exporters.formats import FORMATS
    from evolve.trajectories.views.recipes import RECIPES

    for recipe in RECIPES:
        yield f"{recipe.name}: {recipe.what} ({recipe.source})"
        for view in recipe.views:
            names = [name for name, one in FORMATS.items() if view in one.shapes]
            yield f"  {view:<13} --to {', '.join(names)}"


class _Progress:
    """How far the work is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._drawn = time.monotonic()
        self._bar = _bar() if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, unit: str, share: float, steps: int, rows: int) -> None:
        now = time.monotonic()
        if now - self._drawn < (_DRAWN_S if self._bar else _SAID_S):
            return
        self._drawn = now
        if self._bar is None:
            line = f"{unit}: {share:.0%}, {steps:,} steps looked at, {rows:,} rows"
            print(line, file=sys.stderr, flush=True)
        else:
            (task,) = self._bar.task_ids
            self._bar.update(task, description=unit, completed=share, steps=steps, rows=rows)


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[steps]:,} steps looked at, {task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("export", total=1.0, steps=0, rows=0)
    return bar


def _summary(made: "Manifest", folder: str) -> Iterator[str]:
    for reason, count in made.excluded.items():
        yield f"{count:,} steps left out: {reason}"
    for source in made.sources:
        if source.detail:
            yield f"{source.name}: left out, {source.detail}"
    for view, reasons in made.removed.items():
        for reason, count in reasons.items():
            yield f"{view}: {count:,} left out by {reason}"
    for near in made.near_misses:
        yield f"near miss, kept: {near['task']}, {near['distance']:.2f} from {near['name']}"
    yield from made.notices
    for view, splits in made.rows.items():
        rows = ", ".join(f"{count:,} {split}" for split, count in splits.items())
        kinds = ", ".join(
            f"{name}: {count:,}" for name, count in made.outcomes.get(view, {}).items()
        )
        yield f"{folder}: {view}, {rows}" + (f" ({kinds})" if kinds else "")
    if not made.rows:
        yield f"{folder}: no rows; the exclusions are above"
