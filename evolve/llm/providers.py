"""Which providers LiteLLM reaches: read from its files, because importing it takes seconds."""

import difflib
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

_ENUM = re.compile(r"^class LlmProviders\b.*?(?=^\S)", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r'^    [A-Z0-9_]+ = "([^"]+)"', re.MULTILINE)


def litellm_file(*parts: str) -> Path | None:
    """A file inside the installed LiteLLM; None if there is no such file."""
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.joinpath(*parts)
    return path if path.is_file() else None


@cache
def providers() -> frozenset[str]:
    """Prefixes of models' names before the slash; empty if the list cannot be read.

    Those of LiteLLM's `LlmProviders`, and those that it configures by `openai_like/providers.json`.
    """
    source = litellm_file("types", "utils.py")
    enum = _ENUM.search(source.read_text(encoding="utf-8")) if source else None
    if enum is None:
        return frozenset()
    table = litellm_file("llms", "openai_like", "providers.json")
    configured = json.loads(table.read_bytes()) if table else {}
    return frozenset({*_VALUE.findall(enum[0]), *configured})


def guess(provider: str) -> str:
    """The provider that was probably meant; empty if none is close."""
    return next(iter(difflib.get_close_matches(provider, sorted(providers()), n=1)), "")
