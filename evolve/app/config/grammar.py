"""Values in Hydra's grammar of overrides."""

import os
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from evolve.core.errors import UsageError


def value_text(value: Any, name: str) -> str:
    """The text that Hydra reads as this value of the setting `name`.

    >>> value_text("10m", "x"), value_text(["a", None, 1.5], "x"), value_text({"k": True}, "x")
    ('"10m"', '["a",null,1.5]', '{k:true}')

    Raises:
        UsageError: no configuration holds such a value.
    """
    if value is None or isinstance(value, bool | int | float):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str | os.PathLike):
        return QuotedString(os.fspath(value), Quote.double).with_quotes()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{value_text(each, name)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(value_text(each, name) for each in value)}]"
    raise UsageError(
        f"{name}={value!r}: a {type(value).__name__} is no setting; give a number, a text, a list "
        "or a mapping"
    )
