"""What this machine has for asking models: for `evolve doctor`, without network and import."""

import importlib.util
import os
from collections.abc import Iterator
from importlib import metadata

from evolve.llm.secrets import KEY_VARIABLES
from evolve.llm.settings import ModelSettings


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


def price_finding(settings: ModelSettings) -> tuple[str, str, str]:
    """The same about its price."""
    what, ceiling = f"{settings.model} price", settings.ceiling
    if ceiling is None:
        price = "no price known: USD budgets need llm.price.prompt and llm.price.completion"
        return "note", what, price
    source = "as you gave it" if settings.own_price else "by LiteLLM's list"
    rates = f"at most {ceiling.prompt:g} and {ceiling.completion:g} USD per million tokens"
    return "ok", what, f"{rates} of prompt and answer, {source}"
