"""Requests answered by a person or an agent instead of a model: prompts and replies as files.

A request of ticket 12 in its first round is `000012-0.ticket.json` (all of it, for machines) and
`000012-0.prompt.md` (the conversation, to be read). Its answer goes into `000012-0.reply.md`, or
into `000012-0.reply.json` with `text` and, if known, `model`, `prompt_tokens`, `completion_tokens`
and `cost_usd`. If newer verdicts have changed the request, files begin with `000012-0.1`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.model import (
    BY_HAND,
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
from evolve.llm.secrets import scrub
from evolve.report.text import one_line, write_text
from evolve.store import RunRow, Ticket

_MAX_AMOUNT = 1e12  # tokens or USD of one reply
_MAX_SHOWN = 60  # characters of a value in a message
_AMOUNTS = {"prompt_tokens": (int,), "completion_tokens": (int,), "cost_usd": (int, float)}
_MODEL_REMEDY = "write the model's name as a string, or leave it out"
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # JSON may hold halves of pairs, a database cannot
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
    """Whether a folder holds requests that `write_request` wrote, or replies to some."""
    return path.is_dir() and any(
        next(path.glob(f"*{suffix}"), None) for suffix in (_TICKET, *_REPLIES)
    )


def read_answers(folder: Path) -> Iterator[Answer | str]:
    """Every reply in order; a sentence for one that cannot be taken."""
    found: dict[str, list[Path]] = {}
    for suffix in _REPLIES:
        for path in folder.glob(f"*{suffix}"):
            found.setdefault(path.name.removesuffix(suffix), []).append(path)
    for stem, paths in sorted(found.items()):
        if len(paths) > 1:
            yield f"{paths[0].name} and {paths[1].name} answer the same request; keep one of them"
            continue
        try:
            yield _answer(paths[0], folder / (stem + _TICKET))
        except UsageError as error:
            yield str(error)


def _answer(path: Path, ticket: Path) -> Answer:
    """Raises UsageError if the reply or its ticket cannot be read."""
    if not ticket.exists():
        raise UsageError(
            f"{path.name}: {ticket.name} is missing; keep a reply in the folder of its request"
        )
    kinds = {"run": str, "sequence": int, "round": int, "key": str}
    again = f"remove {ticket.name}, and `evolve ask` writes it again"
    about = _object(ticket, f"it is no ticket; {again}")
    if wrong := [name for name, kind in kinds.items() if type(about.get(name)) is not kind]:
        raise UsageError(f"{ticket.name}: {_said(about, wrong[0])}; {again}")
    return Answer(path=path, **{name: about[name] for name in kinds}, reply=_read(path))


def _read(path: Path) -> ModelReply:
    """Raises UsageError if the file holds no reply."""
    if path.suffix != ".json":
        return written_reply(_text(path))
    given = _object(path, 'write an object such as {"text": "..."}')
    text = _string(path, given, "text", "write the reply as a string")
    is_named = given.get("model") is not None
    model = _string(path, given, "model", _MODEL_REMEDY) if is_named else BY_HAND
    amounts = {name: _amount(path, given, name, kinds) for name, kinds in _AMOUNTS.items()}
    prompt, completion, cost = amounts.values()
    is_counted = prompt is not None and completion is not None
    return replace(
        written_reply(text, model=model),
        usage=Usage(prompt=prompt, completion=completion) if is_counted else None,
        cost_usd=cost,
    )


def written_reply(text: str, *, model: str = BY_HAND) -> ModelReply:
    """The reply that a text is, without what looks like a key: later prompts show it."""
    status = CallStatus.COMPLETED if text.strip() else CallStatus.EMPTY
    return ModelReply(status=status, text=scrub(text), model=scrub(model))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name}: it cannot be read ({error}); write UTF-8 text") from error


def _object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file; raises UsageError if there is none."""
    text = _text(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path.name}: it is not JSON ({error}); {remedy}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path.name}: it holds {_shown(found)}; {remedy}")
    return found


def _string(path: Path, given: dict[str, Any], name: str, remedy: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise UsageError(f"{path.name}: {_said(given, name)}; {remedy}")
    return value


def _amount(path: Path, given: dict[str, Any], name: str, kinds: tuple[type, ...]) -> Any:
    """A count or cost, None if it is left out; raises UsageError if it cannot be one."""
    amount = given.get(name)
    if amount is None or (type(amount) in kinds and 0 <= amount < _MAX_AMOUNT):
        return amount
    kind = "a number" if float in kinds else "a whole number"
    remedy = f"write {kind} from 0 to {_MAX_AMOUNT:g}, or leave it out"
    raise UsageError(f"{path.name}: {_said(given, name)}; {remedy}")


def _said(given: dict[str, Any], name: str) -> str:
    return f"{name} is {_shown(given[name])}" if name in given else f"{name} is missing"


def _shown(value: Any) -> str:
    return one_line(scrub(json.dumps(value)), _MAX_SHOWN)
