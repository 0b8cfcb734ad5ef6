"""The models of a run behind one door."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.model import (
    Commit,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    Sampling,
    not_committed,
)
from evolve.llm.endpoint import Endpoint
from evolve.llm.limits import Gate
from evolve.llm.prices import prompt_estimate
from evolve.llm.settings import DEADLINE_S, MAX_TOKENS, SLOTS, KeyLimits, ModelSettings


class LiteLLM:
    """`evolve.core.model.LanguageModel` over everything that LiteLLM reaches.

    One model by `model`, or several by `models`: settings by name, each with a `model` and a
    `weight` of its own, and what it does not say taken from the settings beside `models`.

    Args:
        models: further models' settings by name; the names are what requests and accounts use.
        roles: names for parts that a model plays (`planner`), each with the name of its model.

    All others are of `ModelSettings`.

    Raises:
        UsageError: a value that cannot be, or no model at all.
    """

    def __init__(
        self,
        *,
        model: str | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        roles: Mapping[str, str] | None = None,
        api_base: str | None = None,
        key_variable: str | None = None,
        price: Mapping[str, float | None] | None = None,
        context_tokens: int | None = None,
        max_tokens: int = MAX_TOKENS,
        temperature: float | None = None,
        top_p: float | None = None,
        reasoning_effort: str | None = None,
        stream: bool = False,
        trace: bool = False,
        options: Mapping[str, Any] | None = None,
        deadline_s: float = DEADLINE_S,
        slots: int = SLOTS,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        shared: dict[str, Any] = {
            "api_base": api_base,
            "key_variable": key_variable,
            "price": price,
            "context_tokens": context_tokens,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "reasoning_effort": reasoning_effort,
            "stream": stream,
            "trace": trace,
            "options": options or {},
            "deadline_s": deadline_s,
            "slots": slots,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        settings = {} if model is None else {model: ModelSettings(model=model, **shared)}
        for name, given in (models or {}).items():
            settings[name] = ModelSettings.named(name, given, shared)
        if not settings:
            raise UsageError(
                "llm.model is not set; give it as provider/name, e.g. llm.model=openai/gpt-5"
            )
        if not any(each.weight for each in settings.values()):
            raise UsageError(
                "llm.models: every weight is 0, so that none of them is ever picked; give one of "
                f"{', '.join(settings)} a weight above 0"
            )
        gates = _gates(settings.values())
        self._endpoints = {
            name: Endpoint(name, each, gate=gates[each.key_limits])
            for name, each in settings.items()
        }
        self._cards = tuple(map(_card, settings, settings.values()))
        self._roles = dict(roles or {})
        for role, name in self._roles.items():
            if name not in settings:
                raise UsageError(
                    f"llm.roles.{role}={name}: there is no such model; there are "
                    f"{', '.join(settings)}"
                )

    @property
    def models(self) -> Sequence[ModelCard]:
        return self._cards

    @property
    def settings(self) -> Sequence[ModelSettings]:
        """How each of them is reached."""
        return [endpoint.settings for endpoint in self._endpoints.values()]

    @property
    def slots(self) -> int:
        return sum(endpoint.settings.slots for endpoint in self._endpoints.values())

    def resolve(self, request: ModelRequest) -> ModelRequest:
        name = self._roles.get(request.model or "", request.model or self._cards[0].name)
        if name not in self._endpoints:
            known = ", ".join([*self._endpoints, *self._roles])
            raise UsageError(f"model {name}: there is no such model or role; there are {known}")
        settings = self._endpoints[name].settings
        asked = request.sampling
        return replace(
            request,
            model=name,
            max_tokens=_fitting(request, settings),
            sampling=Sampling(
                temperature=_first(asked.temperature, settings.temperature),
                top_p=_first(asked.top_p, settings.top_p),
                seed=asked.seed,
                reasoning_effort=asked.reasoning_effort or settings.reasoning_effort,
                stop=asked.stop,
            ),
        )

    def reserve(self, request: ModelRequest) -> Reservation:
        return self._endpoint(request).reserve(request)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        return await self._endpoint(request).complete(request, sample, commit)

    async def close(self) -> None:
        from evolve.llm.client import close

        await close()

    def _endpoint(self, request: ModelRequest) -> Endpoint:
        if request.model not in self._endpoints:
            raise ValueError(f"a request for {request.model!r} is not resolved")
        return self._endpoints[request.model]


def _gates(models: Iterable[ModelSettings]) -> dict[KeyLimits, Gate]:
    """One for each key with its limits: what it allows, it allows all its models together."""
    return {
        each.key_limits: Gate(
            requests_per_minute=each.requests_per_minute, tokens_per_minute=each.tokens_per_minute
        )
        for each in models
    }


def _card(name: str, settings: ModelSettings) -> ModelCard:
    return ModelCard(
        name=name,
        weight=settings.weight,
        context_tokens=settings.context,
        output_tokens=_shorter(settings.max_tokens, settings),
        priced=settings.ceiling is not None,
    )


def _shorter(tokens: int, settings: ModelSettings) -> int:
    """So many tokens, or as many as the model can say at once."""
    listing = settings.listing
    return min(tokens, listing.output_tokens) if listing and listing.output_tokens else tokens


def _fitting(request: ModelRequest, settings: ModelSettings) -> int:
    """The bound on the answer, which is no more than the model's context leaves to it.

    Servers refuse a request whose prompt and bound together are more than they can hold.
    """
    tokens = _shorter(request.max_tokens or settings.max_tokens, settings)
    if settings.context is None:
        return tokens
    return max(min(tokens, settings.context - prompt_estimate(request.messages)), 1)


def _first(asked: float | None, configured: float | None) -> float | None:
    return configured if asked is None else asked
