"""Requests answered by a person or an agent instead of a model: prompts and replies as files.

A request of ticket 12 in its first round is `000012-0.ticket.json` (all of it, for machines) and
`000012-0.prompt.md` (the conversation, to be read). Its answer goes into `000012-0.reply.md`, or
into `000012-0.reply.json` with `text` and, if known, `model`, `prompt_tokens`, `completion_tokens`
and `cost_usd`. If newer verdicts have changed the request, files begin with `000012-0.1`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.model import (
    CallStatus,
    Commit,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    Usage,
    conversation,
    not_committed,
)
from evolve.report.text import write_text
from evolve.store import RunRow, Ticket

BY_HAND = "by_hand"
"""Model name of tickets that `evolve ask` writes out; no endpoint is ever asked for them."""

_MAX_AMOUNT = 1e12  # tokens or USD of one reply
_TICKET, _PROMPT = ".ticket.json", ".prompt.md"
_REPLIES = (".reply.md", ".reply.txt", ".reply.json")


class ByHand:
    """`evolve.core.model.LanguageModel` whose requests are written down and never sent."""

    models: Sequence[ModelCard] = (ModelCard(name=BY_HAND, priced=True),)
    slots = 0

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return request

    def reserve(self, request: ModelRequest) -> Reservation:
        return Reservation(tokens=0, usd=0.0)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        raise UsageError("this request is answered by hand: `evolve tell` takes its reply")

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply file, with the request that it belongs to; `key` is the key of the request."""

    path: Path
    run: str
    sequence: int
    round: int
    key: str
    reply: ModelReply


def write_request(folder: Path, run: RunRow, ticket: Ticket) -> Path:
    """Write a ticket's open request, whole or not at all; returns the file that people read.

    Raises:
        UsageError: a reply to another request lies where the one to this will.
    """
    request = ticket.request
    assert request is not None
    stem = _stem(ticket, ticket.revision)
    _refuse_stale(folder, stem, request.key)
    for before in range(ticket.revision):  # asked no more; its ticket stays, for a late reply
        if not _replies(folder, old := _stem(ticket, before)):
            (folder / (old + _PROMPT)).unlink(missing_ok=True)
    about = {
        "run": run.name,
        "task": run.task.name,
        "sequence": ticket.sequence,
        "round": len(ticket.exchanges),
        "operator": ticket.operator,
        "purpose": request.purpose,
        "key": request.key,
        "sample": ticket.sample,
        "max_tokens": request.max_tokens,
        "sampling": asdict(request.sampling),
        "messages": [asdict(message) for message in request.messages],
    }
    prompt = folder / (stem + _PROMPT)
    write_text(prompt, conversation(request))
    write_text(folder / (stem + _TICKET), json.dumps(about, indent=2) + "\n")
    return prompt


def is_answered(folder: Path, ticket: Ticket) -> bool:
    """Whether a reply to a ticket's open request lies in the folder."""
    return bool(_replies(folder, _stem(ticket, ticket.revision)))


def _stem(ticket: Ticket, revision: int) -> str:
    """How the files of a ticket's open round are called."""
    stem = f"{ticket.sequence:06}-{len(ticket.exchanges)}"
    return f"{stem}.{revision}" if revision else stem


def _refuse_stale(folder: Path, stem: str, key: str) -> None:
    """Raise UsageError if a reply would be accepted for a request that it does not belong to."""
    path = folder / (stem + _TICKET)
    replies = _replies(folder, stem)
    if not replies or not path.exists():
        return
    try:
        answered = json.loads(path.read_text())["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; choose another --out") from error
    if answered != key:
        raise UsageError(
            f"{replies[0]} answers another request than step {int(stem.partition('-')[0])} of this "
            "run asks; choose another --out, or move the reply away"
        )


def _replies(folder: Path, stem: str) -> list[Path]:
    return [path for suffix in _REPLIES if (path := folder / (stem + suffix)).exists()]


def is_requests(path: Path) -> bool:
    """Whether a folder holds requests that `write_request` wrote."""
    return path.is_dir() and any(path.glob(f"*{_TICKET}"))


def read_answers(folder: Path) -> Iterator[Answer | str]:
    """Every reply beside a request, in order; a sentence for one that cannot be read."""
    for ticket in sorted(folder.glob(f"*{_TICKET}")):
        stem = ticket.name.removesuffix(_TICKET)
        found = _replies(folder, stem)
        if len(found) > 1:
            yield f"{found[0].name} and {found[1].name} answer the same request; keep one of them"
        elif found:
            try:
                about = json.loads(ticket.read_text())
                yield Answer(
                    path=found[0],
                    run=str(about["run"]),
                    sequence=int(about["sequence"]),
                    round=int(about["round"]),
                    key=str(about["key"]),
                    reply=_read(found[0]),
                )
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                yield f"{found[0].name} or its ticket cannot be read: {error}"


def _read(path: Path) -> ModelReply:
    text = path.read_text(encoding="utf-8-sig")
    given: dict[str, Any] = json.loads(text) if path.suffix == ".json" else {"text": text}
    said, model = str(given["text"]), str(given.get("model", BY_HAND))
    (said + model).encode()  # JSON may hold halves of surrogate pairs, a database cannot
    counted = {"prompt_tokens", "completion_tokens"} <= given.keys()
    return ModelReply(
        status=CallStatus.COMPLETED if said.strip() else CallStatus.EMPTY,
        text=said,
        usage=_usage(given) if counted else None,
        cost_usd=None if given.get("cost_usd") is None else _amount(given, "cost_usd"),
        model=model,
    )


def _usage(given: dict[str, Any]) -> Usage:
    prompt, completion = (_amount(given, name) for name in ("prompt_tokens", "completion_tokens"))
    return Usage(prompt=int(prompt), completion=int(completion))


def _amount(given: dict[str, Any], name: str) -> float:
    """Raises ValueError if it cannot be counted."""
    amount = float(given[name])
    if not 0 <= amount < _MAX_AMOUNT:
        raise ValueError(f"{name} is {given[name]!r}; it is from 0 to {_MAX_AMOUNT:g}, or left out")
    return amount
