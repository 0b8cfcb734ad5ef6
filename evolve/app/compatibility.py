"""Whether a configuration's parts fit together: impossible combinations are refused at once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.app.config.build import check_types
from evolve.app.device import kind_of
from evolve.core.behaviour import CASE, known_descriptors
from evolve.core.errors import UsageError
from evolve.core.protocols import Archive, ModelOperator, SelectionPolicy
from evolve.core.task import ONLY_CASE, Task
from evolve.search.schedule import Scheduled

GIVES = {  # features that a policy may need, in words, and parts that have them
    "tree": ("programs together with their ancestors", "archive=tree"),
    "islands": ("islands", "archive=islands"),
}
METHOD = ("selection", "operators", "weight")


def as_weight(where: str, value: Any) -> float:
    """A share as a number; whether it is above 0, who takes it says.

    Raises:
        UsageError: it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: '{value}' is not a number; give one above 0, or inf") from error


def check_method(node: Any, where: str) -> None:
    """Raise UsageError for an arm that is not described as one."""
    if not isinstance(node, Mapping) or not isinstance(node.get("operators"), Mapping):
        raise UsageError(
            f"{where} describes no method; write e.g. {where}={{operators: {{edit: 1.0}}}}"
        )
    for name in node.keys() - {*METHOD}:
        raise UsageError(f"{where}.{name}: a method has {', '.join(METHOD)} only; leave it out")
    if node.get("selection"):
        check_types(node["selection"], f"{where}.selection")


def refuse_policies(archive: Archive, policies: Mapping[str, SelectionPolicy]) -> None:
    """Raise UsageError for a selection policy that needs a feature the archive lacks.

    `policies` are by the setting that each stands under.
    """
    offered = frozenset(getattr(archive, "offers", ()))
    for where, policy in policies.items():
        for need in sorted(frozenset(getattr(policy, "needs", ())) - offered):
            words, remedy = GIVES.get(need, (need, "another archive"))
            raise UsageError(
                f"{where}: {type(policy).__name__} needs an archive that keeps {words}, and "
                f"{type(archive).__name__} does not; take {remedy}, or another selection, e.g. "
                "selection=greedy"
            )


def refuse_idle_operators(
    operators: Mapping[str, Scheduled], *, has_model: bool, by_hand: bool
) -> None:
    """Raise UsageError for a model that no operator asks, and for operators that lack one.

    `by_hand` says that files may bring the answers (`evolve ask`), as they may for any stored run.
    """
    modelled = {
        name for name, each in operators.items() if isinstance(each.operator, ModelOperator)
    }
    if has_model and not modelled:
        raise UsageError(
            "llm has no effect: no operator asks a model; take operators=llm, or leave llm out"
        )
    if has_model or by_hand or not modelled:
        return
    if all(name in modelled or each.is_first for name, each in operators.items()):
        raise UsageError(
            f"operators ({', '.join(sorted(modelled))}) ask a model, and there is none: give "
            "llm.model=provider/NAME, take operators=default, which need none, or answer them "
            "by hand: evolve run --create, then evolve ask"
        )


def refuse_late_migration(config: Mapping[str, Any]) -> None:
    """Raise UsageError if the run ends before islands would exchange anything."""
    ends = _last_steps(config)
    for where, node in _nodes(config["archive"], "archive"):
        interval = node.get("interval")
        if interval is None or node.get("migration", "ring") == "none" or not ends:
            continue
        name, end = min(ends.items(), key=lambda limit: limit[1])
        if interval >= end:
            raise UsageError(
                f"{where}.interval={interval}: with {name} the run ends before islands send each "
                f"other anything; set {where}.interval={max(end // 5, 1)}, or "
                f"{where}.migration=none"
            )


def _last_steps(config: Mapping[str, Any]) -> dict[str, int]:
    """About how many steps there are when a limit ends the run, by the limit as it is typed.

    Tunings are no steps.
    """
    counted = {"proposals", "evaluations"}
    limits = config["termination"]
    ends = {
        f"termination.{name}={limits[name]}": limits[name]
        for name in sorted(counted)
        if limits[name] is not None
    }
    together = {n: value for n, value in (limits.get("all_of") or {}).items() if value is not None}
    if together and together.keys() <= counted:
        name = max(together, key=lambda name: together[name])
        ends[f"termination.all_of.{name}={together[name]}"] = together[name]
    return ends


def refuse_unknown_cases(config: Mapping[str, Any], task: Task) -> None:
    """Raise UsageError for an axis or objective about a case that the task does not time."""
    timed = [case.name for case in task.cases if case.timed] or [ONLY_CASE]
    for where, name in _asked_descriptors(config):
        if name.startswith(CASE) and name.removeprefix(CASE) not in timed:
            known = ", ".join(CASE + each for each in timed)
            raise UsageError(
                f"{where}.{name}: task {task.name} times no such case, so that all programs would "
                f"be alike in it; it has {known}"
            )


def _asked_descriptors(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The descriptors that archives are configured with: the setting, and the descriptor's name."""
    return [
        (f"{where}.{setting}", name)
        for where, node in _nodes(config["archive"], "archive")
        for setting in ("axes", "objectives", "descriptors")
        for name in _named(node.get(setting) or ())
    ]


def refuse_missing_descriptors(config: Mapping[str, Any]) -> None:
    """Raise UsageError for an axis or objective that no program will ever have here."""
    asked = _asked_descriptors(config)
    if not asked:
        return
    kind = kind_of(config)
    known = known_descriptors(kind)
    for where, name in asked:
        if name not in known and not name.startswith(CASE):
            raise UsageError(
                f"{where}.{name}: device={kind} delivers no such descriptor, so that all programs "
                f"would be alike in it; it has {', '.join(sorted(known))}"
            )


def _named(setting: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """The descriptors that a setting lists, or maps to a value other than null."""
    if isinstance(setting, Mapping):
        return [name for name, given in setting.items() if given is not None]
    return [setting] if isinstance(setting, str) else list(setting)


def _nodes(node: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A component's node and those of the components in it."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield where, node
        for name, inner in node.items():
            yield from _nodes(inner, f"{where}.{name}")
