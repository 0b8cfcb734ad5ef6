"""The replies of a scripted model, and their HTTP bodies.

The bodies are those of the OpenAI chat completions API, with the fields that vLLM adds to it
(`reasoning_content`, `token_ids`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

CHARACTERS_PER_TOKEN = 4
STREAM_PIECES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came in; `number` counts from 0. Headers have lower-case names."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        messages = self.body.get("messages") or [{}]
        return str(messages[-1].get("content", ""))


@dataclass(frozen=True, slots=True)
class Answer:
    """An ordinary completion.

    Args:
        text: of the reply; a request for `n` samples gets it n times. None leaves the content null,
            as some endpoints do when they have filtered it.
        samples: different texts for the samples of one request, instead of `text`.
        reasoning: the separate reasoning text, if any.
        refusal: the separate text of a refusal, if any; not in streams.
        finish_reason: `stop`, `length`, `content_filter`, ...
        delay_s: silence before the first byte.
        spread_s: over how long the text is streamed; without streaming it adds to the delay.
        cached_tokens: how many of the prompt's tokens came from the provider's cache.
        usage: whether token counts are sent, or a replacement for them.
        token_ids: whether token ids and log-probabilities are sent, or the values sent as ids.
    """

    text: str | None = ""
    samples: Sequence[str] = ()
    reasoning: str = ""
    refusal: str = ""
    finish_reason: str = "stop"
    delay_s: float = 0.0
    spread_s: float = 0.0
    cached_tokens: int = 0
    usage: bool | Mapping[str, Any] = True
    token_ids: Any = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error status with an OpenAI-style body, and `retry-after` in seconds or as given."""

    status: int
    retry_after: float | str | None = None
    code: str = ""
    message: str = "scripted refusal"


class Broken(Enum):
    """A body with status 200 that is no completion.

    Without streaming, the last two are as `MALFORMED`.
    """

    MALFORMED = "malformed"  # ends in the middle of the JSON, at its announced length
    TRUNCATED = "truncated"  # the connection closes before the announced length
    NO_CHOICES = "no choices"
    WRONG_SHAPE = "wrong shape"  # a choice without a message
    WRONG_TYPE = "wrong type"  # an HTML page
    CUT_OFF = "cut off"  # streams only: ends in order, but in the middle of the answer
    ERROR_INSIDE = "error inside"  # streams only: an error event in the middle of the answer


@dataclass(frozen=True, slots=True)
class Hang:
    """Says nothing for so long, then closes the connection."""

    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Raw:
    """A response as it stands, for what no other reply here can say.

    Args:
        body: JSON data, or a text that is sent as it is; a sequence of either, if `events`.
        status: of HTTP.
        headers: beside the length and the type.
        events: whether `body` is sent as server-sent events, one for each of its items.
        delivers: whether it holds an answer, which counts as a delivery.
    """

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    events: bool = False
    delivers: bool = False


Reply = Answer | Refusal | Broken | Hang | Raw
Script = Sequence[str | Reply] | Callable[[Request], str | Reply]


def kind(reply: Reply) -> str:
    """A word for a reply: `answer`, `hang`, `429`, `malformed`, ..."""
    match reply:
        case Refusal(status) | Raw(status=status):
            return str(status)
        case Broken():
            return reply.value
    return type(reply).__name__.lower()


def completion(request: Request, answer: Answer) -> dict[str, Any]:
    """The body of a completion."""
    beside = {"reasoning_content": answer.reasoning, "refusal": answer.refusal}
    given = {name: text for name, text in beside.items() if text}
    body = _head(request, "chat.completion")
    body["choices"] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text} | given,
            "finish_reason": answer.finish_reason,
        }
        | _traced(text or "", answer.token_ids)
        for index, text in enumerate(_samples(request, answer))
    ]
    if answer.usage:
        body["usage"] = usage(request, answer)
    return body


def chunks(request: Request, answer: Answer) -> Iterator[dict[str, Any]]:
    """The events of a streamed completion."""
    head = _head(request, "chat.completion.chunk")
    for index, text in enumerate(_samples(request, answer)):
        yield head | _delta(index, {"role": "assistant", "content": ""})
        if answer.reasoning:
            yield head | _delta(index, {"reasoning_content": answer.reasoning})
        for piece in _pieces(text or "", STREAM_PIECES):
            yield head | _delta(index, {"content": piece}, token_ids=answer.token_ids)
        yield head | _delta(index, {}, answer.finish_reason)
    if answer.usage and (request.body.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": usage(request, answer)}


def usage(request: Request, answer: Answer) -> dict[str, Any]:
    """Token counts of a request and its answer."""
    if isinstance(answer.usage, Mapping):
        return dict(answer.usage)
    prompt = tokens("".join(str(m.get("content")) for m in request.body.get("messages", [])))
    texts = _samples(request, answer)
    reasoning = tokens(answer.reasoning) * len(texts)
    said = sum(tokens(text or "") for text in texts) + reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def tokens(text: str) -> int:
    """How many tokens the scripted model takes a text for: one per four characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _samples(request: Request, answer: Answer) -> Sequence[str | None]:
    count = int(request.body.get("n") or 1)
    return answer.samples[:count] if answer.samples else [answer.text] * count


def _head(request: Request, kind: str) -> dict[str, Any]:
    model = str(request.body.get("model", "scripted"))
    return {"id": f"scripted-{request.number}", "object": kind, "created": 0, "model": model}


def _delta(
    index: int, delta: dict[str, Any], finish_reason: str | None = None, *, token_ids: Any = False
) -> dict[str, Any]:
    traced = _traced(delta.get("content", ""), token_ids)
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish_reason} | traced]}


def _traced(text: str, token_ids: Any) -> dict[str, Any]:
    """The part of a text's tokens that is sent, if any."""
    if token_ids is False:
        return {}
    pieces = list(_pieces(text, tokens(text)))
    content: list[dict[str, Any]] = [
        {"token": piece, "logprob": -0.5, "bytes": None, "top_logprobs": []} for piece in pieces
    ]
    ids = [len(piece) for piece in pieces] if token_ids is True else token_ids
    return {"logprobs": {"content": content}, "token_ids": ids}


def _pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // max(1, count)))
    yield from (text[start : start + size] for start in range(0, len(text), size))
