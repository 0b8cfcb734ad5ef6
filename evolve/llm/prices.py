"""Prices and context sizes of models: from LiteLLM's own list, or as the user says.

The list is a JSON file inside the LiteLLM package. It is read without importing LiteLLM (seconds)
and without the network, so that a budget can be checked before anything is started.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.model import Message, Usage
from evolve.core.source.tokens import estimate_tokens
from evolve.llm.providers import litellm_file

PRICE_FILE = "model_prices_and_context_window_backup.json"

# Base prices and those for long prompts; not those of batches and of other service tiers.
_PROMPT = re.compile(r"(input_cost_per_token|cache_creation_input_token_cost)(_above_\d+k_tokens)?")
_COMPLETION = re.compile(r"output_cost_per_(reasoning_)?token(_above_\d+k_tokens)?")
_BY_TIME = ("input_cost_per_second", "output_cost_per_second", "cost_per_second")

_ANSWERING = ("chat", "responses", "completion")
_TURN_TOKENS = 8  # what a chat template puts around a message
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens; `cached` is for prompt tokens from the provider's cache.

    Raises:
        UsageError: a price is not a number from 0.
    """

    prompt: float
    completion: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            value = getattr(self, name)
            if value is None and name == "cached":
                continue
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise UsageError(
                    f"llm.price.{name}: {value!r} is no price; give USD per million tokens, from 0"
                )

    def cost(self, usage: Usage) -> float:
        """USD for what was used."""
        cached = min(usage.cached or 0, usage.prompt)
        rate = self.prompt if self.cached is None else self.cached
        return (
            (usage.prompt - cached) * self.prompt
            + cached * rate
            + usage.completion * self.completion
        ) / _MILLION

    def worst(self, prompt: int, completion: int) -> float:
        """USD for so many tokens, cached or not."""
        dearest = max(self.prompt, self.cached or 0.0)
        return (prompt * dearest + completion * self.completion) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A model as LiteLLM lists it.

    `ceiling` has its highest prices (of long prompts, cache writes, reasoning); None if it is
    not priced by the token.
    """

    name: str
    ceiling: Price | None
    context_tokens: int | None
    output_tokens: int | None


def price_from(settings: Mapping[str, Any] | None) -> Price | None:
    """The price that a user gave; None if all of it is left open.

    Raises:
        UsageError: half of a price.
    """
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    if unknown := sorted(given.keys() - {"prompt", "completion", "cached"}):
        raise UsageError(
            f"llm.price.{unknown[0]}: there is no such price; it has prompt, completion and cached"
        )
    if not given:
        return None
    for name in ("prompt", "completion"):
        if name not in given:
            raise UsageError(
                f"llm.price.{name} is not set although llm.price.{next(iter(given))} is; "
                "give both, in USD per million tokens"
            )
    return Price(**given)


def listed(model: str) -> Listing | None:
    """A model of LiteLLM's list by `provider/name`, or by `name` under that provider."""
    provider, _, bare = model.partition("/")
    entry, name = _list().get(model), model
    if entry is None and provider_of(bare) == provider:
        entry, name = _list()[bare], bare
    if entry is None:
        return None
    prompt, output = entry.get("max_input_tokens"), entry.get("max_output_tokens")
    return Listing(
        name=name,
        ceiling=_ceiling(entry),
        context_tokens=_whole(prompt) or _whole(entry.get("max_tokens")),
        output_tokens=_whole(output),
    )


def provider_of(name: str) -> str:
    """The provider that lists a model under its bare name; empty if none does."""
    return str(_list().get(name, {}).get("litellm_provider", ""))


def models_of(provider: str) -> frozenset[str]:
    """The models of a provider that answer prompts, without its name before them."""
    return frozenset(
        name.removeprefix(f"{provider}/")
        for name, entry in _list().items()
        if entry.get("litellm_provider") == provider and entry.get("mode") in _ANSWERING
    )


def prompt_bound(messages: Sequence[Message]) -> int:
    """No less than the tokens of a prompt, for any tokenizer over bytes: none is shorter than one.

    Less would not do: of digits, of signs, of words of no language each may be a token of its own.
    """
    return sum(_size(message) + _TURN_TOKENS for message in messages) + _TURN_TOKENS


def prompt_estimate(messages: Sequence[Message]) -> int:
    """About the tokens of a prompt of code and prose, rather more than fewer."""
    total = sum(estimate_tokens(message.content) + _TURN_TOKENS for message in messages)
    return total + _TURN_TOKENS


def _size(message: Message) -> int:
    return len(message.content.encode("utf-8", "replace"))


def _ceiling(entry: Mapping[str, Any]) -> Price | None:
    if any(entry.get(name) for name in _BY_TIME):
        return None
    prompt = [rate for name, rate in entry.items() if _PROMPT.fullmatch(name) and rate is not None]
    said = [
        rate for name, rate in entry.items() if _COMPLETION.fullmatch(name) and rate is not None
    ]
    if entry.get("input_cost_per_token") is None or entry.get("output_cost_per_token") is None:
        return None
    return Price(prompt=max(prompt) * _MILLION, completion=max(said) * _MILLION)


def _whole(value: Any) -> int | None:
    try:
        return int(value) or None
    except (TypeError, ValueError):
        return None


@cache
def _list() -> dict[str, dict[str, Any]]:
    path = litellm_file(PRICE_FILE)
    models: dict[str, dict[str, Any]] = json.loads(path.read_bytes()) if path else {}
    return models
