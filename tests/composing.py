"""Compositions of settings, each made once in a process: Hydra needs a seventh of a second."""

import copy
from functools import cache
from typing import Any

from evolve.app.config.compose import compose


def composed(*words: str) -> dict[str, Any]:
    """The configuration of `evolve run WORDS`, for the caller to change."""
    if any("$" in word for word in words):  # the environment's values may be others each time
        return compose(words)
    return copy.deepcopy(_composed(words))


@cache
def _composed(words: tuple[str, ...]) -> dict[str, Any]:
    return compose(words)
