"""Whether a text holds a key or held one: by `evolve.llm.secrets.scrub`, called only if needed.

Scrubbing looks at every position of a text in many ways, which costs more than everything else that
an export does with it. Here a text is first searched for the few marks that keys begin with.
"""

import os
import re
from functools import lru_cache

from evolve.llm.secrets import HIDDEN, scrub

_MIN_LENGTH = 8
_PREFIXES = ("sk", "pk", "rk", "gsk", "xai", "hf", "r8", "nvapi", "dapi")
_MARKS = ("AIza", "AKIA", "ASIA", "eyJ", "earer ")
# Each begins with letters that are looked for as a whole; that no word goes on before is seen last.
_BEGINNINGS = [re.compile(rf"{prefix}[-_](?<!\w{prefix}[-_])") for prefix in _PREFIXES]
_PASSWORD = re.compile(r"://[^\s/@'\"]+:[^\s/@'\"]+@")


def environment_keys() -> tuple[str, ...]:
    """The values of this process's environment that scrubbing takes out of texts."""
    values = {value for value in os.environ.values() if len(value) >= _MIN_LENGTH}
    return tuple(sorted(value for value in values if scrub(value) != value))


@lru_cache(maxsize=128)  # parents and prompts come again with every child
def holds_key(text: str, known: tuple[str, ...]) -> bool:
    """Whether scrubbing would change the text or has; `known` is from `environment_keys`."""
    if HIDDEN in text or any(value in text for value in known):
        return True
    suspicious = (
        any(mark in text for mark in _MARKS)
        or any(beginning.search(text) for beginning in _BEGINNINGS)
        or _PASSWORD.search(text) is not None
    )
    return suspicious and scrub(text) != text
