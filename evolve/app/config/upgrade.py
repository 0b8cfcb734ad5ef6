"""Configurations that older versions stored, with the settings of today."""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, get_type_hints

from omegaconf import MISSING

from evolve.app.config.moved import with_present_classes
from evolve.app.config.schema import RunConfig
from evolve.search.schedule import Bandit
from evolve.store import RunRow

LATER_GROUPS = ("schedule", "knowledge")  # components that a stored configuration may lack
BANDIT = f"{Bandit.__module__}.{Bandit.__qualname__}"


def completed(run: RunRow) -> RunRow:
    """The run with every setting that is requested by name; missing ones get their defaults."""
    return dataclasses.replace(run, config=complete(run.config))


def complete(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration with the schema's defaults for missing fields.

    A limit that it lacks is no limit: the options of `conf/termination` are for new runs. A setting
    that is no more goes out, and classes are named by the modules that they are in now.
    """
    result = {"opponents": {}, **_filled(RunConfig, with_present_classes(stored))}
    lacking = [name for name in LATER_GROUPS if name not in stored]
    if lacking:
        from evolve.app.config.compose import compose

        defaults = compose(["task=stored", "search=single"])
        result |= {name: defaults[name] for name in lacking}
    return result | {"schedule": _in_asks(result["schedule"])}


def _in_asks(schedule: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schedule whose prior, if it was worth dollars, is worth the default number of asks."""
    if schedule.get("_target_") != BANDIT or "prior_usd" not in schedule:
        return schedule
    kept = {name: value for name, value in schedule.items() if name != "prior_usd"}
    return {"prior_asks": Bandit().prior_asks, **kept}


def _filled(node: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of a node of the schema, and the defaults of the others."""
    types, result = get_type_hints(node), dict(given)
    for field in dataclasses.fields(node):
        if dataclasses.is_dataclass(types[field.name]):
            result[field.name] = _filled(types[field.name], given.get(field.name) or {})
        elif field.name not in given and (default := _default(field)) != MISSING:
            result[field.name] = default
    return result


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default.value if isinstance(field.default, Enum) else field.default
