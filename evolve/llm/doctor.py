"""This machine's means for asking models: for `evolve doctor`, without network and import."""

import difflib
import importlib.util
import os
import re
from collections.abc import Iterator
from importlib import metadata

from evolve.core.errors import UsageError
from evolve.llm.prices import models_of
from evolve.llm.secrets import KEY_VARIABLES, OTHER_VARIABLES
from evolve.llm.settings import ModelSettings

CATALOGUES = ("azure", "fireworks_ai", "nvidia_nim", "openrouter", "together_ai")
"""Providers of other people's models, or under the user's own names: LiteLLM lists some of them."""

_SNAPSHOT = re.compile(r"[-@]\d[\d-]*$")  # the date behind a model's name


def findings() -> Iterator[tuple[str, str, str]]:
    """State (`ok` or `note`), subject and detail, as `evolve doctor` prints them."""
    if importlib.util.find_spec("litellm") is None:
        yield "note", "litellm", "not installed: no model can be asked; pip install litellm"
        return
    yield "ok", "litellm", metadata.version("litellm")
    keys = [variable for variable in KEY_VARIABLES.values() if os.environ.get(variable)]
    if keys:
        yield "ok", "model keys", ", ".join(keys)
    else:
        example = KEY_VARIABLES["openai"]
        yield (
            "note",
            "model keys",
            f"none found; export e.g. {example}, or give llm.api_base of a server of your own",
        )


def key_finding(settings: ModelSettings) -> tuple[str, str, str]:
    """The same about the key of one configured model."""
    variable = settings.expected_variable
    if settings.is_keyless:
        return "ok", settings.model, f"at {settings.api_base}, without a key"
    if variable is None:
        return "ok", settings.model, "LiteLLM knows which variable holds its key"
    if os.environ.get(variable):
        return "ok", settings.model, f"key in {variable}"
    return "note", settings.model, f"no key found: export {variable}"


def refuse_without_key(settings: ModelSettings) -> None:
    """Raise UsageError for a model of a public provider that no key can be meant for.

    An address or headers of one's own, or any variable of the provider's, such as that of its
    gateway, may stand for the key: then only a call shows whether the endpoint takes it.
    """
    usual = KEY_VARIABLES.get(settings.provider)
    if settings.key_variable:
        if not os.environ.get(settings.key_variable):
            raise UsageError(
                f"llm.key_variable={settings.key_variable}: there is no such environment variable; "
                f"export it with the key of {settings.model}"
            )
        return
    if usual is None or settings.api_base or settings.options:
        return
    ours = usual.partition("_")[0] + "_"
    others = OTHER_VARIABLES.get(settings.provider, ())
    given = [name for name, value in os.environ.items() if value]
    if not any(name in others or name.startswith(ours) for name in given):
        raise UsageError(
            f"llm.model={settings.model}: {settings.provider} needs a key, and none is in the "
            f"environment; export {usual}=..., or name the variable that holds it, "
            "llm.key_variable=NAME"
        )


def refuse_unlisted(settings: ModelSettings) -> None:
    """Raise UsageError for a model that its provider does not have, by LiteLLM's list.

    A price or a size that the user gives says that there is one, newer than the list.
    """
    provider, _, name = settings.model.partition("/")
    known = models_of(provider)
    is_public = provider in KEY_VARIABLES and provider not in CATALOGUES and known
    is_stated = settings.api_base or settings.own_price or settings.context_tokens
    if not is_public or is_stated or name.startswith("ft:"):
        return
    if name in known or _SNAPSHOT.sub("", name) in known:
        return
    near = difflib.get_close_matches(name, sorted(known), n=1)
    meant = f"did you mean llm.model={provider}/{near[0]}? " if near else ""
    raise UsageError(
        f"llm.model={settings.model}: LiteLLM lists no such model of {provider}; {meant}"
        "For one that is newer than the list, say how many tokens it takes, "
        "llm.context_tokens=200000"
    )
