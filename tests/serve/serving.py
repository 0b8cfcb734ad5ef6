"""A server in a process of its own, for tests that ask it over HTTP."""

import contextlib
import json
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
TASK = "rmsnorm"


def candidate(*words: str, marker: str = "") -> str:
    """The text of a candidate that the stub judge obeys."""
    lines = [f"# {word}" for word in words] + ([f"# marker {marker}"] if marker else [])
    return "\n".join([*lines, "class ModelNew:", "    pass", ""])


def submission(*words: str, **fields: Any) -> dict[str, Any]:
    """A submission of such a candidate."""
    source = candidate(*words, marker=fields.pop("marker", ""))
    return {"task": TASK, "source": source, **fields}


@dataclass
class Server:
    """A running server; `ask` is a client of it."""

    process: forked.Forked
    folder: Path
    port: int
    token: str | None = None
    ask: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.ask = httpx.Client(base_url=self.url, headers=headers, timeout=60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def submit(self, *words: str, wait_s: float = 30, **fields: Any) -> dict[str, Any]:
        """The answer on one candidate."""
        response = self.ask.post(
            "/v1/jobs", params={"wait_s": wait_s}, json=submission(*words, **fields)
        )
        assert response.status_code in (200, 202), response.text
        return response.json()

    def kill(self) -> None:
        """End it as a crash does, its workers with it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def judged(self) -> list[str]:
        """Markers of the candidates that the stub judge has answered on."""
        path = self.folder / "judged"
        return path.read_text().split() if path.exists() else []


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    port: int = 0,
    workers: int = 1,
    slots: int = 4,
    latency_s: float = 0.0,
    token: str | None = None,
    references: str = "known",
    tasks: tuple[str, ...] = (),
    version: str = "stub-1",
    open_files: int | None = None,
    **settings: Any,
) -> Iterator[Server]:
    """A server over stub workers, whose files lie in `folder`.

    `open_files` bounds what its process may have open.
    """
    options = {
        "port": port,
        "workers": workers,
        "slots": slots,
        "latency_s": latency_s,
        "token": token,
        "references": references,
        "tasks": tasks,
        "settings": settings,
    }
    environment = {**os.environ, "STUB_VERSION": version}
    process = forked.start(
        "tests.serve.stub_server", json.dumps(options), cwd=folder, env=environment
    )
    try:
        if open_files is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        line = process.line("serving")  # what the service says to its operator comes before
        yield Server(process, folder, int(line.split()[1]), token)
    finally:
        process.kill()
        process.wait()
