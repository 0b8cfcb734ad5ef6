"""Clients that want the server for themselves, on a host where a process may open 1,024 files.

Invariants, while each of them goes on:
- a request that asks for little is answered in under a second;
- the server takes less than 300 MB, and its log less than 1 MB.
"""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.serve.serving import Server, serving, submission

LAST_S = 2.0  # how long a flood goes on
HALF_REQUESTS = 1100
MAX_ANSWER_S = 1.0
MAX_MEMORY = 300 << 20
MAX_LOG = 1 << 20

Flood = Callable[[int], AbstractContextManager[None]]


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def _head(length: str, path: str = "/v1/jobs") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", length)
    return "\r\n".join((*lines, "", "")).encode()


def _send(port: int, *pieces: bytes) -> bytes:
    """The beginning of the answer to this."""
    with _connect(port) as connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
        connection.settimeout(5)
        return connection.recv(4096)
    return b""


@contextlib.contextmanager
def _open_with(
    port: int, number: int, *pieces: bytes, pause_s: float = 0.0
) -> Iterator[list[socket.socket]]:
    """So many connections that send this and then keep silent."""
    held: list[socket.socket] = []
    try:
        for _ in range(number):
            with contextlib.suppress(OSError):
                held.append(_connect(port))
                for piece in pieces:
                    held[-1].sendall(piece)
            time.sleep(pause_s)
        yield held
    finally:
        for connection in held:
            connection.close()


@contextlib.contextmanager
def half_requests(port: int) -> Iterator[None]:
    with _open_with(port, HALF_REQUESTS, b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0"):
        yield


@contextlib.contextmanager
def half_requests_after_a_whole_one(port: int) -> Iterator[None]:
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with _open_with(port, HALF_REQUESTS, whole, b"GET /health HTTP", pause_s=0.002):
        yield


@contextlib.contextmanager
def slow_bodies(port: int) -> Iterator[None]:
    """Nearly whole ones of 15 MiB, and then a byte now and then."""
    length = 15 << 20
    begun = _head(f"Content-Length: {length}") + b"x" * (length - 1000)
    done = threading.Event()

    def drip() -> None:
        with _open_with(port, 24, begun) as held:
            while not done.wait(0.5):
                for connection in held:
                    with contextlib.suppress(OSError):
                        connection.send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        yield
    finally:
        done.set()
        dripping.join()


def _again_and_again(made: Callable[[], tuple[bytes, ...]]) -> Flood:
    """A client that sends the same once more as soon as it has an answer.

    What it sends is made when it begins, for some is large.
    """

    @contextlib.contextmanager
    def flood(port: int) -> Iterator[None]:
        done, pieces = threading.Event(), made()

        def send() -> None:
            while not done.is_set():
                _send(port, *pieces)

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            done.set()
            sending.join()

    return flood


def _declared(body: bytes, path: str = "/v1/jobs") -> tuple[bytes, bytes]:
    return _head(f"Content-Length: {len(body)}", path), body


@cache
def _million_keys() -> bytes:
    return json.dumps(dict.fromkeys(map(str, range(1_000_000)), 1)).encode()


_UPGRADE = (
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
)
FLOODS: dict[str, Flood] = {
    "half requests": half_requests,
    "half requests after a whole one": half_requests_after_a_whole_one,
    "slow bodies": slow_bodies,
    "a million unknown keys": _again_and_again(lambda: _declared(_million_keys())),
    "a million keys that KernelGYM passes over": _again_and_again(
        lambda: _declared(_million_keys(), "/kernelgym/evaluate")
    ),
    "5 million empty items": _again_and_again(
        lambda: _declared(b'{"jobs":[' + b"{}," * 5_000_000 + b"{}]}", "/v1/batches")
    ),
    "50 MB declared": _again_and_again(lambda: _declared(b"x" * (50 << 20))),
    "50 MB chunked": _again_and_again(
        lambda: (
            _head("Transfer-Encoding: chunked"),
            *[b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"] * 50,
        )
    ),
    "a text of 15 MB of escapes": _again_and_again(
        lambda: _declared(b'{"source": "' + b'\\"' * 7_500_000 + b'"}')
    ),
    "a text of 15 MB with an emoji": _again_and_again(
        lambda: _declared(b'{"source": "' + b"x" * 15_000_000 + "🌱".encode() + b'"}')
    ),
    "what is no HTTP": _again_and_again(lambda: (b"\x00\r\n\r\n",)),
    "web sockets": _again_and_again(lambda: (_UPGRADE,)),
}
FAST = ("half requests", "slow bodies", "a million unknown keys", "5 million empty items")


def _answers(server: Server) -> Iterator[float]:
    """Seconds that clients of one small request each wait for its answer, for a while."""
    end = time.monotonic() + LAST_S
    number = 0
    while time.monotonic() < end:
        number += 1
        began = time.monotonic()
        response = httpx.post(f"{server.url}/v1/jobs", json=submission(id=f"n{number}"), timeout=20)
        assert response.status_code in (200, 202), response.text
        yield time.monotonic() - began
        time.sleep(0.05)


def _most_memory(pid: int) -> int:
    """The most that a process has had in memory, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


@pytest.mark.sample(1)
@pytest.mark.quiet
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FLOODS],
)
def test_a_flood_keeps_nobody_from_an_answer(tmp_path, name):
    with serving(tmp_path, open_files=1024) as server:
        with FLOODS[name](server.port):
            waits = list(_answers(server))
        memory, log = _most_memory(server.process.pid), server.process.errors.stat().st_size
    print(
        f"{name}: {len(waits)} answers, the longest after {max(waits):.2f} s; "
        f"{memory >> 20} MB of memory, {log >> 10} KB of log"
    )
    assert max(waits) < MAX_ANSWER_S
    assert memory < MAX_MEMORY
    assert log < MAX_LOG


def test_answers_that_are_not_read_hold_no_connection(tmp_path):
    """As many as there may be with 480 open files; each has answers under way that do not fit."""
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40
    with serving(tmp_path, open_files=480) as server, _open_with(server.port, 90, asked):
        deadline = time.monotonic() + 20  # until their buffers are full they are being answered
        while True:
            with contextlib.suppress(httpx.TransportError):
                assert server.ask.get("/v1/tasks").status_code == 200
                break
            assert time.monotonic() < deadline
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("begun", "answer"),
    [
        (b"GET /health HTTP/1.1\r\nHost: ", b""),
        (_head("Content-Length: 100") + b"{", b"HTTP/1.1 408 "),
    ],
)
def test_a_request_that_does_not_end_is_ended(tmp_path, begun, answer):
    with serving(tmp_path) as server, _connect(server.port) as connection:
        connection.sendall(begun)
        connection.settimeout(100)
        told = b""
        with contextlib.suppress(ConnectionResetError):
            while said := connection.recv(4096):
                told += said
        assert told.startswith(answer)
        assert bool(told) == bool(answer)


def test_a_wrong_field_is_named_without_what_was_sent(tmp_path):
    with serving(tmp_path) as server:
        response = server.ask.post("/v1/jobs", json={"n" * 10_000: "x" * 10_000, "task": 3})
        assert response.status_code == 422
        assert len(response.text) < 1000
        assert {fault["loc"][-1][:5] for fault in response.json()["detail"]} == {"nnnnn", "task"}
