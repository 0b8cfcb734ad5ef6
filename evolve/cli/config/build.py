"""From configuration to objects: the only place that instantiates what a `_target_` names."""

from collections.abc import Mapping
from typing import Any

import hydra
from hydra.errors import InstantiationException

from evolve.core.errors import UsageError


def build(node: Mapping[str, Any], where: str) -> Any:
    """The object that `node` describes by `_target_` and constructor arguments.

    Args:
        node: plain data, as `compose` and `to_plain` give it.
        where: the setting that it stands under, for messages.

    Raises:
        UsageError: no such class, or a constructor that does not take these arguments.
    """
    if "_target_" not in node:
        raise UsageError(f"{where}._target_ is missing; name the class to build")
    try:
        return hydra.utils.instantiate(dict(node), _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UsageError):
            raise error.__cause__ from error
        what = str(error).partition("\n")[0].partition(", set env var")[0].rstrip(":")
        why = f": {error.__cause__}" if error.__cause__ else ""
        raise UsageError(" ".join(f"{where}: {what}{why}".split())) from error
