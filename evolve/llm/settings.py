"""One model's settings: what `llm.*` and `llm.models.NAME.*` may say."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from evolve.core.errors import UsageError
from evolve.llm.prices import Listing, Price, listed, price_from, provider_of
from evolve.llm.providers import guess, providers
from evolve.llm.secrets import KEY_VARIABLES, looks_like_key, scrub

_KINDS: Mapping[type, tuple[str, tuple[str, ...]]] = {
    str: ("a text", ("model", "api_base", "key_variable", "reasoning_effort")),
    bool: ("true or false", ("stream", "trace")),
    Mapping: ("a mapping of names to values", ("price", "options")),
}
_SETTINGS = (
    "model",
    "api_base",
    "max_tokens",
    "temperature",
    "top_p",
    "reasoning_effort",
    "stream",
)
_RETRIES = ("max_retries", "num_retries", "fallbacks", "context_window_fallback_dict")
_OWN = {  # parameters of LiteLLM that would undo what is recorded, reserved or promised
    **{name: f"it is a setting of its own, llm.{name}" for name in _SETTINGS},
    **dict.fromkeys(_RETRIES, "only evolve itself repeats a call"),
    **dict.fromkeys(("messages", "seed", "stop"), "operators decide on it"),
    "base_url": "it is a setting of its own, llm.api_base",
    "api_key": "llm.key_variable names the environment variable that holds it",
    "n": "an operator's `samples` asks for several answers",
    "timeout": "llm.deadline_s says how long a call may take",
    "max_completion_tokens": "llm.max_tokens bounds an answer, and LiteLLM translates it",
}
_BODY = "extra_body"  # of options: it is sent as it stands
_NOT_IN_BODY = ("model", "messages", "n", "max_tokens", "max_completion_tokens", "stream")
_USUAL_TIERS = (None, "auto", "default")

MAX_TOKENS = 16384
DEADLINE_S = 1200.0
SLOTS = 8

KeyLimits = tuple[str, str | None, str | None, float | None, float | None]
"""Provider, address and variable of a key, with its requests and tokens per minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How one model is reached, asked and paid.

    Args:
        model: `provider/name` as LiteLLM spells it; `openai/NAME` with `api_base` for any
            OpenAI-compatible server.
        weight: its share where several models may be picked; 0 leaves it to those who name it.
        api_base: URL of the endpoint; None is the provider's own.
        key_variable: environment variable that holds the key; None is the provider's usual one
            (for `openai/` with an `api_base`: no key).
        price: `prompt`, `completion`, `cached` in USD per million tokens; none of them takes
            LiteLLM's list.
        context_tokens: how many tokens fit in prompt and answer; None takes LiteLLM's list.
        max_tokens: bound on an answer, reasoning included.
        temperature, top_p, reasoning_effort: sent where a request does not say; None sends none.
        stream: whether answers are streamed, which keeps impatient gateways from closing.
        trace: ask for log-probabilities and token ids (vLLM's `return_token_ids`); not of streams,
            from which LiteLLM takes the ids.
        options: further parameters as LiteLLM takes them.
        deadline_s: seconds for a call from its first send to its end, retries included.
        slots: calls at once.
        requests_per_minute, tokens_per_minute: what the key allows to all models that have it and
            these limits in common; None is no limit.

    Raises:
        UsageError: a value that cannot be.
    """

    model: str
    weight: float = 1.0
    api_base: str | None = None
    key_variable: str | None = None
    price: Mapping[str, Any] | None = None
    context_tokens: int | None = None
    max_tokens: int = MAX_TOKENS
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    stream: bool = False
    trace: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    deadline_s: float = DEADLINE_S
    slots: int = SLOTS
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_name()
        self._check_numbers()
        self._check_address()
        self._check_options()
        self.own_price  # noqa: B018 - half a price is refused here

    def _check_kinds(self) -> None:
        for kind, (words, names) in _KINDS.items():
            for name in names:
                value = getattr(self, name)
                if value is not None and not isinstance(value, kind):
                    raise UsageError(f"llm.{name}={value!r}: it is {words}")

    def _check_name(self) -> None:
        provider, _, name = str(self.model).partition("/")
        known = providers()
        if not provider or not name:
            listed_by = provider_of(str(self.model))
            example = f"{listed_by}/{self.model}" if listed_by in known else "openai/gpt-5"
            raise UsageError(
                f"llm.model={self.model}: write provider/name, e.g. llm.model={example}, or "
                "openai/NAME with llm.api_base=URL for a server of your own"
            )
        if known and provider not in known:
            close = guess(provider)
            remedy = f"did you mean {close}/{name}?" if close else "write provider/name."
            raise UsageError(
                f"llm.model={self.model}: LiteLLM knows no provider '{provider}'; {remedy} For a "
                f"server of your own write openai/{self.model}, with llm.api_base=URL"
            )

    def _check_numbers(self) -> None:
        for name in ("deadline_s", "slots", "max_tokens", "context_tokens"):
            self._check(name, least=1)
        for name in ("requests_per_minute", "tokens_per_minute"):
            self._check(name, least=1)
        for name in ("weight", "temperature"):
            self._check(name, least=0)
        self._check("top_p", least=0, most=1)

    def _check(self, name: str, *, least: float, most: float = sys.float_info.max) -> None:
        value = getattr(self, name)
        if value is None:
            return
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            upto = f" to {most}" if most < sys.float_info.max else ""
            raise UsageError(f"llm.{name}={value}: it is a number from {least}{upto}")

    def _check_address(self) -> None:
        base = self.api_base
        variable = self.key_variable
        if variable is not None and (not variable.isidentifier() or looks_like_key(variable)):
            raise UsageError(  # which may be the key itself, and is not repeated
                "llm.key_variable is no name of an environment variable; export the key, and give "
                "the name under which that was done, e.g. llm.key_variable=MY_GATEWAY_KEY"
            )
        if base is None:
            return
        scheme, _, rest = base.rpartition("://")
        host = rest.partition("/")[0]
        is_address = scheme in ("http", "https") and bool(host)
        if "@" in (host if is_address else base) or "?" in base or scrub(base) != base:
            raise UsageError(  # messages name the address
                "llm.api_base holds a password, a query or a key; keys stay in the environment: "
                "give the URL without it, and llm.key_variable=NAME_OF_THE_VARIABLE"
            )
        if not is_address:
            raise UsageError(f"llm.api_base={base}: write it as http://HOST:PORT/v1")

    def _check_options(self) -> None:
        if self.stream and self.trace:
            raise UsageError(
                "llm.trace=true with llm.stream=true: LiteLLM takes the token ids from streams; "
                "leave llm.stream=false"
            )
        for option in self.options:
            if why := _OWN.get(option):
                raise UsageError(f"llm.options.{option} is no option: {why}")
        if not isinstance(self._body, Mapping):
            raise UsageError(f"llm.options.{_BODY}={self._body!r}: it is a mapping")
        for option in _NOT_IN_BODY:
            if option in self._body:
                raise UsageError(f"llm.options.{_BODY}.{option} is no option: {_OWN[option]}")

    @property
    def _body(self) -> Any:
        return self.options.get(_BODY) or {}

    @property
    def provider(self) -> str:
        return self.model.partition("/")[0]

    @property
    def is_keyless(self) -> bool:
        """An `openai/` model at an address of its own gets a key only if one is named.

        The key of the OpenAI account, which LiteLLM would send, is not for everybody.
        """
        return self.provider == "openai" and bool(self.api_base) and self.key_variable is None

    @property
    def expected_variable(self) -> str | None:
        """The environment variable that holds the key, as far as is known."""
        return self.key_variable or KEY_VARIABLES.get(self.provider)

    @property
    def key_limits(self) -> KeyLimits:
        """The identity of models that share a key and its limits."""
        key = (self.provider, self.api_base, self.key_variable)
        return (*key, self.requests_per_minute, self.tokens_per_minute)

    @property
    def context(self) -> int | None:
        """How many tokens fit in prompt and answer together; None if that is not known."""
        return self.context_tokens or (self.listing.context_tokens if self.listing else None)

    @property
    def listing(self) -> Listing | None:
        """The model's entry in LiteLLM's list."""
        return listed(self.model)

    @property
    def own_price(self) -> Price | None:
        """The price that the user gave."""
        return price_from(self.price)

    @property
    def ceiling(self) -> Price | None:
        """The highest price of tokens; None if no price is known.

        LiteLLM's list is not asked where the options name another service tier than the usual one.
        """
        tier = self.options.get("service_tier") or self._body.get("service_tier")
        listing = self.listing if tier in _USUAL_TIERS else None
        return self.own_price or (listing.ceiling if listing else None)

    @classmethod
    def named(
        cls, name: str, given: Mapping[str, Any], shared: Mapping[str, Any]
    ) -> "ModelSettings":
        """The settings of one model of several: its own over the shared ones.

        Raises:
            UsageError: it has no `model`, or a setting that there is not.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(given, Mapping):
            raise UsageError(
                f"llm.models.{name}={given!r} describes no model; give llm.models.{name}.model="
                "provider/name"
            )
        if unknown := sorted(set(given) - known):
            raise UsageError(
                f"llm.models.{name}.{unknown[0]}: there is no such setting; there are "
                f"{', '.join(sorted(known))}"
            )
        if not given.get("model"):
            raise UsageError(f"llm.models.{name}.model is not set; give it as provider/name")
        try:
            return cls(**{**shared, **given})
        except UsageError as error:
            raise UsageError(str(error).replace("llm.", f"llm.models.{name}.", 1)) from None
