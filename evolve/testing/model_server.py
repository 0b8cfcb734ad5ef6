"""A scripted model behind real HTTP: an OpenAI-compatible endpoint on the loopback interface.

    with ModelServer(["first", Refusal(429, retry_after=0.2), "second"]) as server:
        ...  # llm.model=openai/scripted llm.api_base=<server.api_base>, and any key

Its reaction to a request follows from a script: a sequence of replies, used in order with the last
one repeated, or a function from the `Request` to a reply. A plain string is an ordinary answer.
Each fault is a reply of its own: `Refusal` (an error status), `Broken` (an invalid body) and
`Hang`. `Raw` is a complete response.

The server counts what it has delivered in full, so that a test can compare a client's records and
charges with the completions sent.
"""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any, Self

from evolve.testing.model_replies import (
    STREAM_PIECES,
    Answer,
    Broken,
    Hang,
    Raw,
    Refusal,
    Reply,
    Request,
    Script,
    chunks,
    completion,
    kind,
)

__all__ = ["Answer", "Broken", "Hang", "Log", "ModelServer", "Raw", "Refusal", "Request"]

_TICK_S = 0.05  # how soon a wait sees that the server closes or the client is gone


@dataclass(slots=True)
class Log:
    """A server's record of requests and replies.

    `delivered` holds the completions that were sent in full, by number of their request; `replies`
    counts the script's replies, by kind (`answer`, `429`, `malformed`, ...); `connections` how
    often a client connected.
    """

    requests: list[Request] = field(default_factory=list)
    delivered: dict[int, Answer | Raw] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    under_way: int = 0
    most_at_once: int = 0


class ModelServer:
    """The server, a context manager. When it is left, its threads and sockets are gone.

    Args:
        script: the replies; see the module.
        port: 0 takes a free one.
    """

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self._script = script
        self._lock = threading.Lock()
        self.log = Log()
        self.closing = threading.Event()
        self._http = _Http(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_TICK_S,))

    @property
    def api_base(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def deliveries(self) -> int:
        """How many completions were sent in full."""
        return len(self.log.delivered)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def take(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Request:
        """Log a request that came in; `leave` has to follow."""
        with self._lock:
            request = Request(number=len(self.log.requests), path=path, headers=headers, body=body)
            self.log.requests.append(request)
            self.log.under_way += 1
            self.log.most_at_once = max(self.log.most_at_once, self.log.under_way)
        return request

    def reply(self, request: Request) -> Reply:
        """The script's answer to a request."""
        script = self._script
        said = script(request) if callable(script) else script[min(request.number, len(script) - 1)]
        reply = Answer(said) if isinstance(said, str) else said
        with self._lock:
            self.log.replies[kind(reply)] += 1
        return reply

    @contextmanager
    def delivering(self, request: Request, answer: Answer | Raw) -> Iterator[None]:
        """Count the completion whose last byte is handed over in this context, unless that fails.

        Counted first, so that a client that has read the completion finds it in the log.
        """
        with self._lock:
            self.log.delivered[request.number] = answer
        try:
            yield
        except OSError:
            with self._lock:
                del self.log.delivered[request.number]
            raise

    def leave(self) -> None:
        """The request is done, in any way."""
        with self._lock:
            self.log.under_way -= 1


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # `server_close` waits for them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], scripted: ModelServer) -> None:
        self.scripted = scripted
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        self.scripted.log.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in list(self._connections):  # idle ones wait for a next request
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is part of the game."""


class _Gone(ConnectionError):
    """The client has closed, or the server is closing: no answer can be delivered."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed; `ModelServer.log` has it."""

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
        self._send(200, json.dumps(models).encode())

    def do_POST(self) -> None:
        scripted = self.server.scripted
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = scripted.take(self.path, headers, json.loads(text))
        try:
            self._reply(request, scripted.reply(request))
        except ConnectionError:
            self.close_connection = True
        finally:
            scripted.leave()

    def _reply(self, request: Request, reply: Reply) -> None:
        streamed = bool(request.body.get("stream"))
        match reply:
            case Refusal():
                self._refuse(reply)
            case Raw(delivers=True):
                with self.server.scripted.delivering(request, reply):
                    self._send_raw(reply)
            case Raw():
                self._send_raw(reply)
            case Hang(seconds):
                self._wait(seconds)
                self.close_connection = True
            case Broken.TRUNCATED | Broken.CUT_OFF | Broken.ERROR_INSIDE if streamed:
                self._stream(request, Answer("never to be seen in full"), events=4)
                self._end_badly(reply)
            case Broken():
                self._break(reply)
            case Answer():
                self._wait(reply.delay_s)
                if streamed:
                    self._stream(request, reply)
                    # In one write, as servers do: a client that stops at DONE has then seen the
                    # end of the response too, and can use the connection again.
                    with self.server.scripted.delivering(request, reply):
                        self._chunk(b"data: [DONE]\n\n", is_last=True)
                else:
                    self._wait(reply.spread_s)
                    body = json.dumps(completion(request, reply)).encode()
                    with self.server.scripted.delivering(request, reply):
                        self._send(200, body)

    def _refuse(self, refusal: Refusal) -> None:
        error = {"message": refusal.message, "type": "scripted", "code": refusal.code or None}
        after = refusal.retry_after
        wait = (
            {}
            if after is None
            else {"retry-after": after if isinstance(after, str) else f"{after:g}"}
        )
        self._send(refusal.status, json.dumps({"error": error}).encode(), headers=wait)

    def _send_raw(self, raw: Raw) -> None:
        items = raw.body if raw.events else [raw.body]
        texts = [item if isinstance(item, str) else json.dumps(item) for item in items]
        if raw.events:
            body = "".join(f"data: {text}\n\n" for text in texts)
            self._send(raw.status, body.encode(), "text/event-stream", headers=raw.headers)
        else:
            self._send(raw.status, texts[0].encode(), headers=raw.headers)

    def _break(self, how: Broken) -> None:
        head = {"id": "broken", "object": "chat.completion", "created": 0, "model": "scripted"}
        whole = json.dumps(head | {"choices": []}).encode()
        half = whole[: len(whole) // 2]
        match how:
            case Broken.NO_CHOICES:
                self._send(200, whole)
            case Broken.WRONG_SHAPE:
                self._send(200, json.dumps(head | {"choices": [{"index": 0}]}).encode())
            case Broken.WRONG_TYPE:
                self._send(200, b"<html><body>Welcome!</body></html>", content_type="text/html")
            case Broken.TRUNCATED:
                self._send(200, half, length=len(whole))
                self.close_connection = True
            case _:
                self._send(200, half)

    def _send(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        *,
        length: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request: Request, answer: Answer, *, events: int | None = None) -> None:
        """Server-sent events, all or the first few; the caller ends the stream."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in islice(chunks(request, answer), events):
            self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
            self._wait(answer.spread_s / STREAM_PIECES)

    def _end_badly(self, how: Broken) -> None:
        self.close_connection = True
        if how is Broken.ERROR_INSIDE:
            error = {"error": {"message": "scripted error", "code": 502}}
            self._chunk(b"data: " + json.dumps(error).encode() + b"\n\n")
        if how is not Broken.TRUNCATED:
            self._chunk(b"")

    def _chunk(self, data: bytes, is_last: bool = False) -> None:
        self.wfile.write(b"%x\r\n%s\r\n%s" % (len(data), data, b"0\r\n\r\n" if is_last else b""))

    def _wait(self, seconds: float) -> None:
        """Sleep, but no longer than a client waits."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.server.scripted.closing.wait(min(left, _TICK_S)):
                raise _Gone
            self._require_client()

    def _require_client(self) -> None:
        with suppress(BlockingIOError):
            if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise _Gone
