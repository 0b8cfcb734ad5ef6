"""A plain client of `evolve serve`: candidates in, outcomes out, in spite of failures between."""

import asyncio
import json
import os
import ssl
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.core.errors import UsageError
from evolve.rl.outcome import UNREACHABLE, Outcome, PinMismatch, read_answer

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "EVOLVE_SERVE_TOKEN"
MAX_AT_ONCE = 64  # submissions in one request
MAX_BYTES = 8 << 20  # of one request; the server takes twice as much
MAX_TEXT = 400_000  # characters of a program or a reply; a longer one is not read
WAIT_S = 20.0  # that the server holds a question
MAX_PAUSE_S = 30.0
_WORTH_REPEATING = ("infra", "expired")


class Client:
    """Asks one server; safe to use from many coroutines, and cheap to make.

    A text that is empty or too long to be read is sent as a reply without a program: a failure of
    the model's, and no reason to stop.

    A request repeated after a lost answer is not judged again. If the server cannot be reached, is
    full or restarts, the client waits; only after `patience_s` it says so in the outcome.

    Args:
        url: of the server, e.g. `http://127.0.0.1:8642`.
        token: that it asks for; None for the content of EVOLVE_SERVE_TOKEN.
        token_file: a file whose first line is the token instead.
        rewards: of every candidate, pinned: `kevin@1`.
        baseline: of speedups, overriding that of submissions; None to keep it.
        pins: whose verdicts are wanted, by `evaluator` and `device_class`; see `GET /v1/service`.
        patience_s: how long to wait for the outcome of a call.
        again: how often to submit a candidate anew that the server has given up for its own fault.

    Raises:
        UsageError: a token file that cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        rewards: Sequence[str] = (),
        baseline: str | None = None,
        pins: Mapping[str, str] | None = None,
        patience_s: float = 3600.0,
        again: int = 1,
    ) -> None:
        self.rewards = tuple(rewards)
        self._url = url.rstrip("/")
        self._token = _read_token(token_file) if token_file else token
        self._pins = dict(pins or {})
        self._baseline = {"baseline": baseline} if baseline else {}
        self._patience_s = patience_s
        self._again = again
        self._tls = ssl.create_default_context()  # once: it takes longer than a request

    def judge(self, submissions: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """`judge_async` from ordinary code."""
        return asyncio.run(self.judge_async(submissions))

    async def judge_async(self, submissions: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """The outcomes of candidates, in order.

        Args:
            submissions: each as `POST /v1/jobs` takes it: `task` or `reference`, `source` or
                `completion`, and further fields.

        Raises:
            UsageError: the server refuses a submission or the token; the message says why.
            PinMismatch: it has another judge or other rewards than were asked for.
        """
        outcomes = await self._all(submissions)
        for _ in range(self._again):
            failed = [n for n, one in enumerate(outcomes) if one.fault in _WORTH_REPEATING]
            anew = await self._all([{**submissions[n], "id": uuid.uuid4().hex} for n in failed])
            for place, outcome in zip(failed, anew, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def about(self) -> dict[str, Any]:
        """The judge there, and its rewards: a training run should pin both."""
        async with self._connected() as http, asyncio.timeout(self._patience_s):
            found: dict[str, Any] = await self._ask(http, "GET", "/v1/service")
        return found

    async def _all(self, submissions: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        orders = [self._completed(one) for one in submissions]
        outcomes = {order["id"]: Outcome(job=order["id"], fault=UNREACHABLE) for order in orders}
        try:
            async with self._connected() as http, asyncio.timeout(self._patience_s):
                await self._submit(http, orders, outcomes)
                await self._collect(http, orders, outcomes)
        except TimeoutError:
            why = f"no outcome within {self._patience_s:g} s"
            outcomes = {
                id_: replace(one, message=why) if one.fault == UNREACHABLE else one
                for id_, one in outcomes.items()
            }
        return [outcomes[order["id"]] for order in orders]

    def _completed(self, submission: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"id": uuid.uuid4().hex, "rewards": list(self.rewards), "pins": self._pins}
        return _readable({**fixed, **submission, **self._baseline})

    async def _submit(
        self,
        http: "httpx.AsyncClient",
        orders: Sequence[Mapping[str, Any]],
        outcomes: dict[str, Outcome],
    ) -> None:
        for body in _bodies(orders):
            _take(await self._ask(http, "POST", "/v1/batches", body), outcomes)

    async def _collect(
        self,
        http: "httpx.AsyncClient",
        orders: Sequence[Mapping[str, Any]],
        outcomes: dict[str, Outcome],
    ) -> None:
        """Ask for the open ones until none is left."""
        while waiting := [o for o in orders if outcomes[o["id"]].fault == UNREACHABLE]:
            some = waiting[:MAX_AT_ONCE]
            wanted = {"ids": [order["id"] for order in some], "wait_s": WAIT_S}
            body = json.dumps(wanted).encode()
            answers = await self._ask(http, "POST", "/v1/wait", body, may_lack=True)
            if answers is None:  # a server that does not know them: its file was replaced
                await self._submit(http, some, outcomes)
            else:
                _take(answers, outcomes)

    async def _ask(
        self,
        http: "httpx.AsyncClient",
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        may_lack: bool = False,
    ) -> Any:
        """The answer to a request, as often as it takes.

        None if the named object is missing and `may_lack` allows it.
        """
        import httpx

        pause_s = 0.5
        while True:
            wait_s = pause_s = min(2 * pause_s, MAX_PAUSE_S)
            try:
                response = await http.request(method, path, content=body)
            except httpx.TransportError:
                await asyncio.sleep(wait_s)
                continue
            if response.is_success:
                return response.json()
            if response.status_code == 404 and may_lack:
                return None
            self._require_worth_waiting(response)
            retry_after = response.headers.get("retry-after", "")
            await asyncio.sleep(float(retry_after) if retry_after.isdigit() else wait_s)

    def _require_worth_waiting(self, response: "httpx.Response") -> None:
        """Raise for an answer that would be the same again."""
        said = f"{_without_user(self._url)} says {response.status_code}: {response.text[:2000]}"
        if response.status_code == 409:
            raise PinMismatch(said)
        if response.status_code in (401, 403):
            raise UsageError(f"{said}; give token, token_file or {TOKEN_VARIABLE}")
        if response.status_code == 404:
            raise UsageError(
                f"{said}; give the address as `evolve serve` prints it, without a path"
            )
        if response.status_code < 500 and response.status_code != 429:
            raise UsageError(said)

    def _connected(self) -> "httpx.AsyncClient":
        import httpx

        token = self._token or os.environ.get(TOKEN_VARIABLE)
        return httpx.AsyncClient(
            base_url=self._url,
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=httpx.Timeout(30.0, read=WAIT_S + 40.0),
            verify=self._tls,
        )


def _without_user(url: str) -> str:
    """An address may hold a token (`http://any:TOKEN@host`), and messages end in logs."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]


def _readable(order: dict[str, Any]) -> dict[str, Any]:
    """The order; with a text that no server reads as the beginning of a reply that is none."""
    name = "completion" if order.get("completion") is not None else "source"
    text = order.get(name)
    if not isinstance(text, str) or 0 < len(text) <= MAX_TEXT:
        return order
    rest = {key: value for key, value in order.items() if key != name}
    return {**rest, "completion": text[: MAX_TEXT + 1] or " "}


def _bodies(orders: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    """The orders as bodies of requests that a server takes."""
    texts: list[bytes] = []
    for order in orders:
        text = json.dumps(order, ensure_ascii=False).encode(errors="replace")
        size = sum(map(len, texts)) + len(text)
        if texts and (len(texts) == MAX_AT_ONCE or size > MAX_BYTES):
            yield b'{"jobs": [%s]}' % b",".join(texts)
            texts = []
        texts.append(text)
    if texts:
        yield b'{"jobs": [%s]}' % b",".join(texts)


def _take(answers: Mapping[str, Any], outcomes: dict[str, Outcome]) -> None:
    """Note the answers on jobs that are over."""
    for answer in answers["jobs"]:
        if answer["state"] in ("done", "failed"):
            outcome = read_answer(answer)
            if outcome.fault == "pin":
                raise PinMismatch(outcome.message)
            outcomes[answer["id"]] = outcome


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"token_file={path}: it cannot be read: {error}") from error
