"""Keys stay in the environment: they are taken out of every text that is shown, stored or raised.

A configuration names the *variable* that holds a key, never the key: by `llm.key_variable`, or as
`${oc.env:NAME}`, which is stored as it is written. What an endpoint or a library says about a
failed call may still quote the key, so such text passes through `scrub`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "[key hidden]"
"""Stands in a text for each key that `scrub` took out; no program holds it by chance."""

KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks_ai": "FIREWORKS_AI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "moonshot": "MOONSHOT_API_KEY",
    "nvidia_nim": "NVIDIA_NIM_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Where LiteLLM looks for keys, for the providers that most people have."""

OTHER_VARIABLES = {"gemini": ("GOOGLE_API_KEY",), "openrouter": ("OR_API_KEY",)}
"""Where else LiteLLM looks, beside variables that begin as the provider's usual one."""

_VARIABLES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SETTINGS = re.compile(
    r"api[_-]?key|secret|password|credential|authorization|(^|[_-])token$", re.IGNORECASE
)
_SENT = re.compile(r"(header|headers|query)$", re.IGNORECASE)
_SENT_SECRETS = re.compile(r"key|auth(?!or)|token|cookie", re.IGNORECASE)
_FROM_ENVIRONMENT = re.compile(r"\$\{oc\.env:(\w+)\}")
_taken: set[str] = set()  # variables that configurations of this process take secrets from
_MIN_LENGTH = 8  # a shorter value is no key, and would be found all over the text
# What keys look like, each by a mark that is looked for first: most texts hold none, and searching
# them for shapes takes a hundred times as long. Variables of kernels (`pk_stride_m`, `sk-offset`)
# are none: without a provider's own beginning, only a long run with a digit in it is a key.
_SHAPES = tuple(
    (mark, re.compile(shape))
    for mark, shape in (
        ("k-", r"\b[spr]k-(?:ant|lf|or|proj|svcacct)-[\w-]{6,}"),
        ("k-", r"\b[spr]k-(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{10,}[\w-]*"),
        ("***", r"\b(?:[spr]k|gsk|hf|nvapi|xai)[-_][\w-]{0,40}\*{3,}[\w*-]*"),  # as they are shown
        ("k_live_", r"\b[spr]k_live_[A-Za-z0-9]{10,}"),
        ("gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
        ("hf_", r"\bhf_[A-Za-z0-9]{20,}"),
        ("r8_", r"\br8_[A-Za-z0-9]{20,}"),
        ("xai-", r"\bxai-[\w-]{20,}"),
        ("nvapi-", r"\bnvapi-[\w-]{20,}"),
        ("dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
        ("AIza", r"\bAIza[\w-]{20,}"),
        ("AKIA", r"\bAKIA[0-9A-Z]{12,}"),
        ("ASIA", r"\bASIA[0-9A-Z]{12,}"),
        ("eyJ", r"\beyJ[\w-]{8,1000}\.[\w-]+\.[\w-]*"),
        ("earer ", r"(?<=earer )[^\s'\",;]{6,}"),
        ("://", r"(?<=://)[^\s/@:'\"]*:[^\s/@'\"]+(?=@)"),
    )
)


def scrub(text: str) -> str:
    """The text without the keys of this process's environment, nor what looks like one."""
    for value in sorted(_values(), key=len, reverse=True):  # one may contain another
        text = text.replace(value, HIDDEN)
    for mark, shape in _SHAPES:
        if mark in text:
            text = shape.sub(HIDDEN, text)
    return text


def looks_like_key(text: str) -> bool:
    """Whether some part of the text has the shape of a key; the environment is not asked."""
    return any(mark in text and shape.search(text) for mark, shape in _SHAPES)


def literal_secret(settings: Any) -> str | None:
    """The dotted name of the first key that nested settings spell out; None if there is none.

    That is a text that looks like a key or is one of this process's environment, and any literal
    under the name of a secret option, or of a header (or part of a query) that carries one. What
    `${oc.env:NAME}` takes from the environment is no literal.
    """
    found = (names for names, text in _leaves(settings) if _is_secret(text, names))
    return next(map(".".join, found), None)


def hide_taken(settings: Any) -> None:
    """From now on `scrub` hides what nested settings take from the environment.

    Whatever the variable is called: `key_variable` names one, `environment` those of a program, and
    options refer to others.
    """
    for names, text in _leaves(settings):
        if names[-1] == "key_variable" or "environment" in names:
            _taken.add(text)
        elif "options" in names:
            _taken.update(_FROM_ENVIRONMENT.findall(text))


def _leaves(settings: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Texts and numbers of nested settings, with the names that lead there."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(settings, Mapping):
        inner = settings.items()
    elif isinstance(settings, Sequence) and not isinstance(settings, str):
        inner = enumerate(settings)
    elif settings is not None and not isinstance(settings, bool):
        yield names, str(settings)
    for name, value in inner:
        yield from _leaves(value, (*names, str(name)))


def _is_secret(value: str, names: Sequence[str]) -> bool:
    literal, references = _FROM_ENVIRONMENT.subn("", value)
    if scrub(literal) != literal:
        return True
    *groups, name = names
    named = "options" in groups and _SETTINGS.search(name)
    sent = any(map(_SENT.search, groups)) and _SENT_SECRETS.search(name)
    return bool(literal and not references and (named or sent))


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable is called as those that hold secrets."""
    return _VARIABLES.search(name) is not None


def _values() -> Iterator[str]:
    for name, value in os.environ.items():
        if (name in _taken or is_secret_variable(name)) and len(value) >= _MIN_LENGTH:
            yield value
