"""The HTTP interface of a search for workers that fetch evaluations (ASGI, behind a `Guard`)."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import evolve
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.serve.asgi import Receive, Scope, Send, send_json
from evolve.serve.pull.broker import Session
from evolve.serve.pull.protocol import VERSION
from evolve.serve.pull.registry import Registry
from evolve.worker.service.dispatch.faults import CallFailed, CallOverdue, PlaceLost, WorkerDied

MAX_SLOTS = 256  # of one worker
MAX_TEXT = 200  # characters of a name
MAX_HELD = 256  # keys that one hello may name
_TOLD = {kind.__name__: kind for kind in (CallFailed, CallOverdue, UsageError, WorkerDied)}


class Refused(Exception):
    """A request that is not served; the message says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class PullApp:
    """The operations of `evolve.serve.pull.protocol`.

    Args:
        registry: of the workers.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._operations: Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "/v1/check": self._check,
            "/v1/hello": self._hello,
            "/v1/poll": self._poll,
            "/v1/answer": self._answer,
            "/v1/leave": self._leave,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            operation = self._operations.get(scope["path"])
            if operation is None or scope["method"] != "POST":
                raise Refused(404, "there is no such operation")
            status, told = 200, await operation(_read((await receive()).get("body", b"")))
        except Refused as refusal:
            status, told = refusal.status, {"detail": str(refusal)}
        await send_json(send, status, told)

    async def _check(self, said: dict[str, Any]) -> dict[str, Any]:
        _require_same_release(said)
        return {}

    async def _hello(self, said: dict[str, Any]) -> dict[str, Any]:
        name, instance, holds = _text(said, "name"), _text(said, "instance"), said.get("holds", [])
        facts = said.get("facts")
        if not isinstance(facts, dict):
            raise Refused(422, "facts: an object")
        for field in ("device_class", "evaluator_version"):
            _text(facts, field)
        if not isinstance(facts.get("slots"), int) or not 0 < facts["slots"] <= MAX_SLOTS:
            raise Refused(422, f"slots: a number from 1 to {MAX_SLOTS}")
        if not isinstance(holds, list) or not all(isinstance(key, str) for key in holds):
            raise Refused(422, "holds: a list of texts")
        _require_same_release(said)
        try:
            session = await self._registry.enter(name, instance, facts, holds[-MAX_HELD:])
        except UsageError as error:
            raise Refused(409, str(error)) from error
        except (EvaluatorUnavailable, PlaceLost) as error:
            raise Refused(503, str(error)) from error
        return {"session": session.id, "lease_s": self._registry.broker.lease_s}

    async def _poll(self, said: dict[str, Any]) -> dict[str, Any]:
        has = said.get("has")
        if not isinstance(has, dict) or not all(isinstance(each, str) for each in has.values()):
            raise Refused(422, "has: an object of texts")
        session = self._session(said)
        self._registry.look(session)
        return await self._registry.broker.poll(session, has)

    async def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        id_, key = _text(said, "id"), _text(said, "key")
        answer = self._registry.broker.answer
        match said:
            case {"result": str() as text}:
                return {"accepted": answer(id_, key, _parsed(text), None)}
            case {"error": {"kind": str() as kind, "message": str() as message}}:
                return {"accepted": answer(id_, key, None, _TOLD.get(kind, CallFailed)(message))}
        raise Refused(422, "result, or error with kind and message, is missing")

    async def _leave(self, said: dict[str, Any]) -> dict[str, Any]:
        self._registry.broker.end(self._session(said), str(said.get("why") or "it was stopped"))
        return {}

    def _session(self, said: dict[str, Any]) -> Session:
        session = self._registry.broker.get(_text(said, "session"))
        if session is None:
            raise Refused(410, "the lease has ended; say hello again")
        return session


def _require_same_release(said: Mapping[str, Any]) -> None:
    if (said.get("protocol"), said.get("version")) != (VERSION, evolve.__version__):
        raise Refused(
            409,
            f"this worker is evolve-kernels {said.get('version')}, and the search is "
            f"{evolve.__version__}; install the same version on both hosts",
        )


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "this is no JSON") from error


def _read(body: bytes) -> dict[str, Any]:
    said = _parsed(body)
    if not isinstance(said, dict):
        raise Refused(422, "the body is no object")
    return said


def _text(said: Mapping[str, Any], field: str) -> str:
    value = said.get(field)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise Refused(422, f"{field}: a printable text of at most {MAX_TEXT} characters")
    return value
