"""A search of a stored run, until the end or a stop."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evolve.app import components
from evolve.app.config.diff import KEPT
from evolve.app.config.submission import is_restarted
from evolve.app.frontend import Frontend
from evolve.app.models import WHY_IDLE, idle_limits
from evolve.app.team import quotas
from evolve.app.under_way import under_way
from evolve.core.errors import EvaluatorUnavailable
from evolve.core.protocols import Evaluator
from evolve.core.run_store import RunStore
from evolve.evaluation import PooledEvaluator
from evolve.search.execution.deadline import LATE_S
from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.search.termination import Raisable
from evolve.store import RunRow
from evolve.trackers import Feed


async def search(
    store: RunStore,
    run: RunRow,
    config: Mapping[str, Any],
    evaluator: Evaluator,
    frontend: Frontend,
    *,
    began: float | None = None,
    late_s: float = LATE_S,
) -> Outcome:
    """Search until the run's end, or a stop.

    Args:
        store: the open database.
        run: the run to continue from where it stands.
        config: its configuration with the overrides of this session.
        evaluator: the judge.
        frontend: shows progress.
        began: when the command began, on the clock of `time.monotonic` (None: now).
        late_s: how long after a limit on wall time running work may end.

    Returns:
        How it ended: a run that is not finished can be resumed, also if the judge failed.
    """
    rule = Raisable(
        config["termination"],
        lambda limits: quotas.termination(store, run, {**config, "termination": limits}),
    )
    engine = components.build_search(store, run, config, device_class=evaluator.device_class)
    for name in idle_limits(config):
        frontend.say(f"{name} has no effect: {WHY_IDLE}")
    for name in components.weak_limits(config):
        frontend.say(f"{name} has no effect: {components.WHY_WEAK}")
    shown = {**config, "termination": rule.limits}  # as a person may change them
    display = frontend.display(store, run, shown, rule)
    feed = Feed(components.build_trackers(config), run, frontend.say)
    stop_file = config["termination"]["stop_file"]
    pipeline = Pipeline(
        engine,
        evaluator,
        rule,
        listeners=[display, feed],
        heard=feed.answered,
        say=frontend.say,
        serial=config["deterministic"],
        open_verified=config.get("opening", False),
        stop_file=Path(stop_file) if stop_file else None,
        began=began,
        late_s=late_s,
        restarted=is_restarted(),
        free_judge=evaluator.abandon if isinstance(evaluator, PooledEvaluator) else _nothing,
    )
    display.follow(partial(under_way, pipeline, evaluator))
    try:
        with display, feed:
            keep(store, run, config)
            with frontend.interruptible(
                pipeline.request_stop, lambda: pipeline.leave("left at once")
            ):
                outcome = await pipeline.run()
    except EvaluatorUnavailable as error:  # the pipeline has left the run fit to be resumed
        frontend.warn(str(error))
        outcome = Outcome(reason=str(error), finished=False)
    finally:
        if engine.model is not None:
            await engine.model.close()
    frontend.ended(store, run, outcome)
    return outcome


def is_done(run: RunRow, config: Mapping[str, Any]) -> bool:
    """Whether a run's search has ended, with no other budget than `config` gives it."""
    return run.state == "finished" and bool(run.config["termination"] == config["termination"])


def _nothing() -> None:
    """Stands for a judge without processes to end."""


def keep(store: RunStore, run: RunRow, config: Mapping[str, Any]) -> None:
    """A resume's changes of the run are stored, and hold for every later reader."""
    kept = dict(run.config) | {group: config[group] for group in KEPT}
    if kept != run.config:
        store.claim(run.id)
        store.reconfigure(run.id, kept)
        changed = [group for group in KEPT if kept[group] != run.config.get(group)]
        store.log("reconfigured", run.name, ", ".join(changed))
