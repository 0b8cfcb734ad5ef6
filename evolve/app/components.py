"""A run's parts, built from its configuration."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evolve.app import compatibility
from evolve.app.compatibility import as_weight, check_method
from evolve.app.config.build import build, naming
from evolve.app.config.diff import flatten
from evolve.app.models import WHY_IDLE, build_model, idle_limits, limits_cannot_end
from evolve.core.errors import UsageError
from evolve.core.model import LanguageModel, ModelRequest
from evolve.core.protocols import Archive, ModelOperator, SelectionPolicy
from evolve.core.run_store import RunStore
from evolve.report.audit import findings_of
from evolve.search import termination
from evolve.search.engine import Search
from evolve.search.methods import Method, shared_out
from evolve.search.schedule import Bandit, Schedule, Scheduled
from evolve.search.termination import Rule
from evolve.store import RunRow
from evolve.trackers import Tracker
from operators.memory import Recall

SCORES = ("target_speedup", "speed_of_light")
WHY_WEAK = "the task is weak, and what is reached on it does not count"


def build_archive(config: Mapping[str, Any]) -> Archive:
    """An empty archive of the configured kind."""
    archive: Archive = build(config["archive"], "archive")
    return archive


def build_selection(config: Mapping[str, Any]) -> SelectionPolicy:
    """The configured selection policy."""
    selection: SelectionPolicy = build(config["selection"], "selection")
    return selection


def build_operators(config: Mapping[str, Any]) -> dict[str, Scheduled]:
    """The operators that are not null, each with its weight (`inf`: asked before all others)."""
    operators = {}
    for name, node in config["operators"].items():
        if node is None:
            continue
        arguments = dict(node)
        weight = as_weight(f"operators.{name}.weight", arguments.pop("weight", 1.0))
        with naming(f"operators.{name}"):
            built = build(arguments, f"operators.{name}")
            operators[name] = Scheduled(operator=built, weight=weight)
    if not operators:
        raise UsageError("operators: every one is null; leave at least one in")
    return operators


def build_methods(config: Mapping[str, Any]) -> dict[str, Method]:
    """A portfolio's arms by name; none if the run is one method.

    An arm whose `selection` is null takes parents by the run's own policy. Operators that are null
    are left out of all arms, and arms that are null or have none left.
    """
    methods = {}
    operators = config["operators"]
    for name, node in config["methods"].items():
        if node is None:
            continue
        where = f"methods.{name}"
        check_method(node, where)
        weights = {
            operator: as_weight(f"{where}.operators.{operator}", weight)
            for operator, weight in node["operators"].items()
            if weight is not None and operators.get(operator, {}) is not None
        }
        given = node.get("selection")
        selection = build(given, f"{where}.selection") if given else build_selection(config)
        weight = as_weight(f"{where}.weight", node.get("weight", 1.0))
        if weights:
            methods[name] = Method(selection=selection, weights=weights, weight=weight)
    return methods


def asks_models(operators: Mapping[str, Scheduled]) -> bool:
    """Whether any of the operators has something to ask of a model."""
    return any(isinstance(each.operator, ModelOperator) for each in operators.values())


def build_schedule(config: Mapping[str, Any]) -> Schedule:
    """The choice of the next operator and of its model.

    A bandit is told the run's limits: its costs are counted in the run's scarcest resource.
    """
    schedule: Schedule = build(config["schedule"], "schedule")
    if isinstance(schedule, Bandit):
        return replace(schedule, limit=termination.from_config(_limits(config)))
    return schedule


def build_recall(config: Mapping[str, Any]) -> Recall:
    """How much of earlier runs prompts tell."""
    settings = config["memory"]
    return Recall(runs=settings["runs"], seen=settings["seen"], tokens=settings["tokens"])


def build_trackers(config: Mapping[str, Any]) -> dict[str, Tracker]:
    """The trackers that are not null, by name."""
    return {
        name: build(node, f"trackers.{name}")
        for name, node in config["trackers"].items()
        if node is not None
    }


def build_termination(config: Mapping[str, Any]) -> Rule:
    """The rule that ends the run; `stop_file` is watched by the pipeline.

    Without the limits on scores if the task's audit found it weak: a score may be reached there
    without any work.

    Raises:
        UsageError: a bad limit, or none that the run can reach.
    """
    limits = _limits(config)
    rule = termination.from_config(limits)
    if weak := weak_limits(config):
        together = () if any(".all_of." in name for name in weak) else limits["all_of"]
        limits |= dict.fromkeys(SCORES) | {"all_of": dict(together or {})}
        if all(limit in (None, {}) for _, limit in flatten(limits)):
            raise UsageError(
                f"{weak[0]} alone would never end the run: {WHY_WEAK}; mend the task's check, or "
                "set e.g. termination.evaluations=400"
            )
        rule = termination.from_config(limits)
    idle = idle_limits(config)
    if idle and limits_cannot_end(config):
        raise UsageError(
            f"{idle[0]} alone would never end the run: {WHY_IDLE}; "
            "set e.g. termination.evaluations=400 or termination.wall_time=2h"
        )
    return rule


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: limit for name, limit in config["termination"].items() if name != "stop_file"}


def weak_limits(config: Mapping[str, Any]) -> list[str]:
    """Limits on scores that are set, by dotted name, if the audit found the task weak."""
    if not findings_of(config):
        return []
    return [
        name
        for name, limit in flatten(config["termination"], "termination")
        if limit is not None and name.rpartition(".")[2] in SCORES
    ]


def build_search(
    store: RunStore,
    run: RunRow,
    config: Mapping[str, Any],
    *,
    model: LanguageModel | None = None,
    device_class: str = "",
) -> Search:
    """The engine of a stored run, with the parts that `config` describes.

    `model` answers instead of the configured one; `device_class` is told to operators until a
    verdict says more. A replay takes every verdict from its record, with the device time that
    schedules and limits knew of then: one that is reused costs nothing.
    """
    return Search(
        store=store,
        run=run,
        archive=build_archive(config),
        selection=build_selection(config),
        operators=build_operators(config),
        schedule=build_schedule(config),
        methods=build_methods(config),
        model=model or build_model(config, run=run.name),
        baseline=config["baseline"],
        opponents=config["opponents"],
        reuse=config["store"]["reuse"] and config["device"]["kind"] != "replay",
        device={"device_class": device_class},
    )


def build_all(config: Mapping[str, Any], *, run: str | None = None, by_hand: bool = False) -> None:
    """Build everything once and drop it.

    Args:
        config: of a run.
        run: the name of the stored run that has it.
        by_hand: whether a person or an agent may answer operators' requests.

    Raises:
        UsageError: a part that cannot be built, or parts that do not go together.
    """
    archive, selection = build_archive(config), build_selection(config)
    operators, methods = build_operators(config), build_methods(config)
    build_schedule(config)
    build(config["knowledge"], "knowledge")
    build_recall(config)
    build_trackers(config)
    build_termination(config)
    model = build_model(config, run=run)
    compatibility.refuse_idle_operators(
        operators, has_model=model is not None, by_hand=by_hand or run is not None
    )
    if model is not None:
        _check_requests(operators, model)
    shared_out(methods, operators, selection)
    policies = {f"methods.{name}.selection": method.selection for name, method in methods.items()}
    compatibility.refuse_policies(archive, policies or {"selection": selection})
    compatibility.refuse_late_migration(config)
    compatibility.refuse_missing_descriptors(config)


def _check_requests(operators: Mapping[str, Scheduled], model: LanguageModel) -> None:
    """Raise UsageError for errors found when a model is first asked: prompts, and roles."""
    from operators.prompting.composition import Prompted
    from operators.prompting.templates import check_prompts

    for name, each in operators.items():
        if isinstance(each.operator, Prompted):
            with naming(f"operators.{name}"):
                check_prompts(each.operator.prompts)
            for role in each.operator.roles:
                model.resolve(ModelRequest(messages=(), model=role))
