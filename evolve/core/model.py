"""Language models as the search sees them: requests, replies and their costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.program import TunableValue

BY_HAND = "by_hand"
"""Model of requests that `evolve ask` writes out; no endpoint is ever asked for them.

Their replies may name the model that gave them (`ModelReply.model`)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an answer is drawn; None leaves a parameter to the model's configuration."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request of an operator.

    Attributes:
        messages: the conversation as it will be sent.
        model: a model's name, or a role that the configuration maps to one (`planner`); None is
            the model that the scheduler picked (`Context.model`).
        samples: how many independent answers; each becomes a ticket of its own. Only of what
            `propose` returns.
        max_tokens: bound on the answer, reasoning included; None is the configuration's.
        purpose: one word (`propose`, `repair`, `plan`, `summarise`).
        memo: plain facts that the operator needs again when it reads the answer. Stored, never
            sent, no part of `key`.
    """

    messages: tuple[Message, ...]
    model: str | None = None
    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    purpose: str = "propose"
    memo: Mapping[str, TunableValue] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identity of the sent text: equal for requests that a model cannot tell apart."""
        sent = {
            "messages": [[message.role, message.content] for message in self.messages],
            "model": self.model,
            "sampling": asdict(self.sampling),
            "max_tokens": self.max_tokens,
        }
        return framed_digest("request", canonical_json(sent))


def conversation(request: ModelRequest) -> str:
    """The messages as one text, each under its role."""
    return "\n\n".join(
        f"<!-- {message.role} -->\n\n{message.content.strip()}" for message in request.messages
    ) + ("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens by kind as the endpoint counted them; None if it does not say.

    `completion` includes `reasoning`, `prompt` includes `cached`.
    """

    prompt: int
    completion: int
    cached: int | None = None
    reasoning: int | None = None

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The most that a call can use; `usd` is None if the model has no price."""

    tokens: int
    usd: float | None


class CallStatus(StrEnum):
    """How a call ended. Operators read `COMPLETED` and `TRUNCATED` replies only."""

    PENDING = "pending"  # committed with its reservation; nothing is known yet
    COMPLETED = "completed"
    TRUNCATED = "truncated"  # ended by max_tokens
    EMPTY = "empty"  # no choice, or one without text
    REFUSED = "refused"  # by the model or by a content filter
    FAILED = "failed"  # the endpoint will not answer this request (too long, malformed); unbilled
    UNAVAILABLE = "unavailable"  # not accepted: endpoint down or overloaded; unbilled, sent again
    UNKNOWN = "unknown"  # sent, and no outcome arrived; charged as reserved, never sent again


class ReplyStatus(StrEnum):
    """An operator's reading of a reply."""

    PROGRAM = "program"  # a program to evaluate
    STEP = "step"  # a plan, choice or summary that the next request builds upon
    NO_CODE = "no_code"
    DIFF = "diff"  # changes to a program where a whole program was asked for
    SEVERAL_BLOCKS = "several_blocks"  # and none of them is clearly the answer
    SYNTAX_ERROR = "syntax_error"
    NO_MODEL = "no_model"  # code, but no ModelNew
    BAD_TUNABLES = "bad_tunables"
    EDIT_FAILED = "edit_failed"  # a search text that does not occur, or occurs more than once
    OUT_OF_SCOPE = "out_of_scope"  # changes a part that the edit scope protects
    UNCHANGED = "unchanged"  # says the same as a parent
    BAD_PLAN = "bad_plan"  # a structured answer that cannot be read
    TRUNCATED = "truncated"  # ended by max_tokens before the answer was whole
    EMPTY = "empty"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTrace:
    """Token ids and log-probabilities, if the endpoint gives them."""

    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The result of one call, after the client's own retries.

    Attributes:
        status: never `PENDING` or `UNAVAILABLE` (`LanguageModel.complete` raises for the latter).
        text: the answer, without reasoning.
        reasoning: the reasoning text, if the endpoint shows it.
        finish_reason: as the endpoint worded it.
        usage: None if the endpoint gave no count.
        cost_usd: None if the price or the usage is unknown.
        latency_s: from the first send to the end, retries included.
        attempts: how many times the request was sent; 0 of a recorded answer that is given again.
        model: the endpoint's name of the model that answered.
        error: a phrase for people, if the call did not complete.
    """

    status: CallStatus
    text: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    model: str = ""
    error: str = ""
    trace: TokenTrace | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives an equal object back."""
        return asdict(self) | {"status": self.status.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ModelReply":
        fields = dict(data)
        fields["status"] = CallStatus(data["status"])
        fields["usage"] = None if data["usage"] is None else Usage(**data["usage"])
        if trace := data["trace"]:
            fields["trace"] = TokenTrace(**{name: tuple(trace[name]) for name in trace})
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One round of a ticket: the request as sent, and the reply."""

    request: ModelRequest
    reply: ModelReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model that may be chosen. `name` is how requests, tickets and accounts call it.

    `weight` is its share if several may be picked (0: only by name or role). `context_tokens`
    bounds prompt and answer together, `output_tokens` the answer; None if unknown. `slots` is how
    many calls of this model may be under way; None: as many as of all models together.
    """

    name: str
    weight: float = 1.0
    context_tokens: int | None = None
    output_tokens: int | None = None
    priced: bool = False
    slots: int | None = None


Commit = Callable[[], None]
"""Stores that a request is about to be sent, so that it is charged in any case."""


def not_committed() -> None:
    """For a request that no budget pays for."""


class LanguageModel(Protocol):
    """The models of a run behind one door. Owns retries, deadlines, rate limits and prices.

    `complete` commits a call, with `reserve`'s worst case, right before it sends the request, and
    the engine stores the reply before anything reads it. Cancelling `complete` gives the call up at
    once; it ends in `ModelUnavailable` then if nothing was under way that could be billed.
    """

    @property
    def models(self) -> Sequence[ModelCard]:
        """Possible requests; the first is the default."""
        ...

    @property
    def slots(self) -> int:
        """How many calls may be under way at once."""
        ...

    def resolve(self, request: ModelRequest) -> ModelRequest:
        """The request with its model's name and all that the configuration fixes filled in.

        The result is stored, keyed and sent; resolving it again changes nothing.

        Raises:
            UsageError: no such model or role.
        """
        ...

    def reserve(self, request: ModelRequest) -> Reservation:
        """The worst case of a resolved request. Cheap, and without the network."""
        ...

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        """One answer to a resolved request.

        `sample` counts equal requests of a run from 0, for replay. `commit` is called once, when
        nothing but sending is left to do; if it raises, nothing is sent.

        Raises:
            ModelUnavailable: not accepted within the deadline, and surely not billed.
            UsageError: an error for the user to correct: a refused key, an unknown model.
        """
        ...

    async def close(self) -> None: ...
