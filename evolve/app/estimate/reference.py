"""The cost of a task's reference, for the first prompts of a run: measured once, kept with it."""

from collections.abc import Mapping
from typing import Any

from evolve.app.components import asks_models, build_operators
from evolve.app.database import location_of
from evolve.app.frontend import Frontend
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator
from evolve.report.text import one_line
from evolve.store import Store


def wants_reference(config: Mapping[str, Any]) -> bool:
    """Whether any prompt of the run would tell it."""
    return asks_models(build_operators(config))


async def reference_of(
    task: Task, config: Mapping[str, Any], evaluator: Evaluator, frontend: Frontend
) -> dict[str, Any] | None:
    """The cost as it is stored under `reference` (`ReferenceCost`); None if no prompt tells it.

    A replay of a model's answers takes what the recorded run was told, and so does a replay of
    verdicts, which has no device. A judge that fails at it leaves it unknown, which a line says: no
    verdict depends on it.
    """
    if not wants_reference(config):
        return None
    if config["llm"]["kind"] == "replay":
        return _recorded(config, config["llm"]["run"])
    if not isinstance(evaluator, PooledEvaluator):
        return _recorded(config, config["device"]["run"])
    try:
        with frontend.doing("timing the reference by operation"):
            return (await evaluator.reference(task)).to_json()
    except (EvaluatorUnavailable, UsageError) as error:
        frontend.say(f"reference   its cost is unknown to prompts: {one_line(str(error))}")
        return None


def _recorded(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    with Store.open(location_of(config), read_only=True) as store:
        found: dict[str, Any] | None = store.run(name).config.get("reference")
    return found
