"""Defaults of parts beside the values in their configuration files."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parents[1] / "conf"


def differing_defaults(group: str) -> set[str]:
    """Settings of a group's own parts, as `Class.setting`, whose defaults in Python are others."""
    found = (yaml.safe_load(path.read_text()) for path in sorted((CONF / group).glob("*.yaml")))
    return {
        f"{settings['_target_'].rpartition('.')[2]}.{name}"
        for settings in _targets(list(found))
        for name, default in _defaults(settings["_target_"])
        if name in settings and _plain(default) != _plain(settings[name])
    }


def _targets(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and "_target_" in node:
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _targets(each)


def _defaults(target: str) -> Iterator[tuple[str, Any]]:
    module, _, name = target.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    for parameter in parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


def _plain(value: Any) -> Any:
    """The value as YAML has it: lists in the place of tuples."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return (
        {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
    )
