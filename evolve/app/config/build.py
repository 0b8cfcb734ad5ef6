"""From configuration to objects: the only place that instantiates a `_target_`."""

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import InstantiationException

from evolve.core.errors import UsageError

# The value that a setting needs if a constructor asks for the type; it checks other types itself.
ACCEPTED: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
}


def check_types(node: Mapping[str, Any], where: str, *, ours: Sequence[str] = ()) -> None:
    """Compare a component's settings with the signature of the class that it names.

    Args:
        node: plain data with `_target_`.
        where: the setting that it stands under, for messages.
        ours: settings that are not for the constructor.

    Raises:
        UsageError: no such class, an unknown setting, a missing one, or one of the wrong type.
    """
    target = locate(node, where)
    given = {key: value for key, value in node.items() if key[0] != "_" and key not in ours}
    try:
        bound = inspect.signature(target).bind(**given)
    except TypeError as error:
        raise UsageError(f"{where}: {node['_target_']} says: {error}") from error
    for name, value in given.items():
        annotation = bound.signature.parameters[name].annotation if name in bound.arguments else ""
        asked = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        types, words = ACCEPTED.get(asked, ((type(value),), ""))
        if type(value) not in types:
            raise UsageError(f"{where}.{name}: {value!r} is not {words}")


def locate(node: Mapping[str, Any], where: str) -> Any:
    """The class or other factory of the component that `node` names by `_target_`.

    Raises:
        UsageError: it names none, or none that is to be had.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise UsageError(f"{where}._target_ is missing; name the class to build")
    module, _, name = str(node["_target_"]).rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{where}._target_: {node['_target_']} is not to be had: {error}; {_remedy(module)}"
        ) from error


def _remedy(module: str) -> str:
    """How the class of a module is found: a module of the current folder is not, by itself."""
    top = module.partition(".")[0]
    if Path(f"{top}.py").is_file() or Path(top).is_dir():
        return f"{top} lies in this folder; put it on Python's path, PYTHONPATH=. evolve ..."
    return "check the spelling, package.module.Class, and whether the package is installed"


def build(node: Mapping[str, Any], where: str) -> Any:
    """The object that `node` describes by `_target_` and constructor arguments.

    Args:
        node: plain data, as `compose` gives it.
        where: the setting that it stands under, for messages.

    Raises:
        UsageError: no such class, or a constructor that does not take these arguments.
    """
    try:
        return hydra.utils.instantiate(dict(node), _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UsageError):
            raise error.__cause__ from error
        what = str(error).partition("\n")[0].partition(", set env var")[0].rstrip(":")
        why = f": {error.__cause__}" if error.__cause__ else ""
        raise UsageError(" ".join(f"{where}: {what}{why}".split())) from error


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Errors about an operator's settings, with the name that it has in the configuration.

    Operators do not know their names, and say `operators.*.variants`.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error).replace("operators.*.", f"{where}.", 1)) from error
