"""One sitting of a run: build its parts, search until the end or a stop, say what came of it."""

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evolve.cli import parts
from evolve.cli.differences import KEPT
from evolve.cli.display import MAX_RECOUNTED, LiveDisplay, PlainDisplay, Tally, open_display
from evolve.cli.main import INTERRUPTED, OK, RESUMABLE
from evolve.cli.models import WHY_IDLE, idle_limits
from evolve.cli.report import default_path
from evolve.cli.stopping import handling
from evolve.cli.summary import summary
from evolve.cli.terminal import wrapped
from evolve.cli.under_way import under_way
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.protocols import Evaluator
from evolve.evaluation import LocalEvaluator
from evolve.report.facts import RunFacts, gather
from evolve.report.html import render
from evolve.report.text import one_line, write_text
from evolve.search.pipeline import LATE_S, Outcome, Pipeline
from evolve.store import RunRow, Store
from evolve.trackers import Feed


async def search(
    store: Store,
    run: RunRow,
    config: Mapping[str, Any],
    evaluator: Evaluator,
    *,
    began: float | None = None,
    late_s: float = LATE_S,
) -> int:
    """Search until the run's end, or a stop; then write the report and print the summary.

    Args:
        store: the open database.
        run: the run to continue from where it stands.
        config: its configuration with what this sitting overrides.
        evaluator: the judge.
        began: when the command began, on the clock of `time.monotonic` (None: now).
        late_s: how long behind a limit on wall time what is under way may end.

    Returns:
        0 where the run is finished, 75 where it can be resumed, also where the judge failed.
    """
    rule = parts.build_termination(config)
    engine = parts.build_search(store, run, config, device_class=evaluator.device_class)
    tally = Tally(config["termination"], rule, config["baseline"])
    tally.recall(store, run)
    for name in idle_limits(config):
        print(f"{name} has no effect: {WHY_IDLE}")
    for name in parts.weak_limits(config):
        print(f"{name} has no effect: {parts.WHY_WEAK}")
    display = open_display(tally, title=f"{run.name}: {run.task.name}")
    feed = Feed(parts.build_trackers(config), run, display.say)
    stop_file = config["termination"]["stop_file"]
    pipeline = Pipeline(
        engine,
        evaluator,
        rule,
        listeners=[display, feed],
        say=display.say,
        serial=config["deterministic"],
        open_verified=config.get("opening", False),
        stop_file=Path(stop_file) if stop_file else None,
        began=began,
        late_s=late_s,
        free_judge=evaluator.abandon if isinstance(evaluator, LocalEvaluator) else _nothing,
    )
    tally.doing = partial(under_way, pipeline, evaluator)
    try:
        with display, feed:
            keep(store, run, config)
            outcome = await _run_until_stopped(pipeline, display)
    except EvaluatorUnavailable as error:  # the pipeline has left the run fit to be resumed
        print(f"evolve: {one_line(str(error))}", file=sys.stderr)
        outcome = Outcome(reason=str(error), finished=False)
    finally:
        if engine.model is not None:
            await engine.model.close()
    _print_end(store, run, outcome)
    return OK if outcome.finished else RESUMABLE


def _nothing() -> None:
    """What a judge has to end that starts no processes."""


def keep(store: Store, run: RunRow, config: Mapping[str, Any]) -> None:
    """What this sitting changes of the run holds from now on, for all that looks at it later."""
    kept = dict(run.config) | {group: config[group] for group in KEPT}
    if kept != run.config:
        store.claim(run.id)
        store.reconfigure(run.id, kept)


async def _run_until_stopped(pipeline: Pipeline, display: PlainDisplay | LiveDisplay) -> Outcome:
    """The first signal drains, the second leaves at once; nothing is lost either way.

    Once a sitting is over, its report and the end of its judge are not to be interrupted.
    """
    stopping = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal stopping
        if stopping and number is signal.SIGINT:
            try:
                pipeline.leave("left at once")
                display.__exit__(None, None, None)
            finally:  # also where the disk is full, or the run was taken over
                os._exit(INTERRUPTED)
        stopping = True
        display.say(f"{number.name}: finishing what is under way; Ctrl-C again leaves at once")
        pipeline.request_stop(f"stopped by {number.name}")

    with handling(on_signal):
        return await pipeline.run()


def _print_end(store: Store, run: RunRow, outcome: Outcome) -> None:
    """The summary; with the report, but for a run so long that the sitting's end would wait."""
    whole = store.next_sequence(run.id) <= MAX_RECOUNTED
    facts = gather(store, run.name, whole=whole)
    report = _report(store, facts) if whole else ""
    for line in summary(facts, outcome, store.path, report):
        print(wrapped(line))


def _report(store: Store, facts: RunFacts) -> str:
    """Where the report has been written; in place of a path, why it could not be."""
    try:
        return str(write_text(default_path(str(store.path), facts.run.name), render(facts)))
    except UsageError as error:
        return f"none: {error}"
