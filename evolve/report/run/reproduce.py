"""How to get the result again: commands, machine, configuration."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from evolve.report.run.facts import RunFacts
from evolve.search.steering import limits_at_start
from evolve.store.location import DEFAULT_STORE

MAX_CONFIG_LINES = 400
MAX_VALUE = 400
_AGAIN = "Search this task again; add what else is not a default in the configuration below"
_DEFAULTS = {"precision": "task", "accumulation": "ieee"}
_SECRET = re.compile(r"(^|_)(api_?key|key|token|secret|password|credentials?)$", re.IGNORECASE)


def commands(facts: RunFacts) -> list[tuple[str, str]]:
    """Commands, with their effects."""
    run, store = shlex.quote(facts.run.name), _store_flag(facts.run.config)
    task = shlex.quote(str(facts.run.config.get("task", facts.run.task.name)))
    found = []
    if facts.champion:
        step = shlex.quote(f"{facts.run.name}:{facts.champion.sequence}")
        found = [
            ("Write the kernel as one file", f"evolve best {run} -o kernel.py{store}"),
            ("Judge that file again", f"evolve eval kernel.py --task {task} {_judged_as(facts)}"),
            ("A folder to judge elsewhere", f"evolve eval {step} --repro repro/{store}"),
        ]
    search = " ".join(["evolve run", *map(shlex.quote, _overrides(facts))])
    return [*found, (_AGAIN, search), ("Look at the run", f"evolve show {run}{store}")]


def _store_flag(config: Mapping[str, Any]) -> str:
    place = config.get("store") or {}
    path = place.get("url") or place.get("path")
    return f" --store {shlex.quote(str(path))}" if path and path != DEFAULT_STORE else ""


def _judged_as(facts: RunFacts) -> str:
    task = facts.run.task
    return f"--size {task.size} --precision {task.precision} --accumulation {task.accumulation}"


def _overrides(facts: RunFacts) -> Iterator[str]:
    """The settings that decide most about a search; the whole configuration stands below them."""
    config, task = facts.run.config, facts.run.task
    yield f"task={config.get('task', task.name)}"
    if preset := config.get("preset"):
        yield f"search={preset}"
    yield f"seed={facts.run.seed}"
    yield f"task_config.size={task.size}"
    for name in ("precision", "accumulation"):
        if (value := getattr(task, name)) != _DEFAULTS[name]:
            yield f"task_config.{name}={value}"
    if facts.baseline != "eager":
        yield f"baseline={facts.baseline}"
    if initial := config.get("initial"):
        yield f"initial=[{','.join(map(str, initial))}]"
    for name, limit in _leaves(limits_at_start(config), "termination"):
        if limit is not None and name != "termination.stop_file":
            yield f"{name}={limit}"


def config_lines(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The configuration as dotted keys in order; values of secret keys are hidden.

    Without the measured cost of the reference, which is kept with it and is no setting.
    """
    settings = {name: value for name, value in config.items() if name != "reference"}
    lines = [(name, _shown(name, value)) for name, value in _leaves(settings, "")]
    cut = len(lines) - MAX_CONFIG_LINES
    return lines[:MAX_CONFIG_LINES] + ([("…", f"{cut:,} more")] if cut > 0 else [])


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _shown(name: str, value: Any) -> str:
    if isinstance(value, str) and value and _SECRET.search(name.rpartition(".")[2]):
        return "(hidden)"
    return str(value)[:MAX_VALUE]


def environment_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """The machine and the versions that the headline was measured with."""
    found = {key: str(value)[:MAX_VALUE] for key, value in facts.environment.items()}
    if facts.evaluation:
        found |= {
            "device_class": facts.evaluation.device_class,
            "evaluator_version": facts.evaluation.evaluator_version,
        }
    return sorted((name, value) for name, value in found.items() if value)
