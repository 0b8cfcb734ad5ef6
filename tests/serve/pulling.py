"""A search and the workers that fetch from it, for tests: real HTTP between them, stub judges."""

import asyncio
import contextlib
import os
import random
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation import Deadlines
from evolve.serve.pull.client import SearchClient
from evolve.serve.pull.evaluator import PullEvaluator
from evolve.serve.pull.worker import PullWorker
from evolve.worker.service.dispatch.faults import CallFailed
from evolve.worker.service.dispatch.place import Place
from tests.forked import Forked, start
from tests.serve.serving import candidate

TOKEN = "correct-horse-battery-staple"
WORKER = Path(__file__).with_name("stub_worker.py")
HELLO = {"device_class": "cpu-stub", "evaluator_version": "stub-1", "slots": 1}
TASK = Task(name="task", source="class Model: ...")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token_file(folder: Path, token: str = TOKEN) -> Path:
    path = folder / "token"
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path


def request(*words: str, marker: str = "", repeat: int = 0) -> EvaluationRequest:
    """An evaluation of a candidate that the stub judge obeys."""
    source = candidate(*words, marker=marker)
    return EvaluationRequest(
        task=TASK, instance=marker or source, source=source, fidelity=Fidelity.SCREEN, repeat=repeat
    )


@contextlib.asynccontextmanager
async def searching(
    port: int, *, lease_s: float = 2.0, gather_s: float = 0.0, kind: str = "cpu"
) -> AsyncIterator[PullEvaluator]:
    """The judge of a search, once a worker has come to this port."""
    async with asyncio.timeout(60):
        judge = await PullEvaluator.start(
            kind=kind,
            host="127.0.0.1",
            port=port,
            token=TOKEN,
            lease_s=lease_s,
            gather_s=gather_s,
        )
    try:
        yield judge
    finally:
        await judge.close()


class Judge:
    """A judge in this process, whose answers take time, give or take a share, or wait.

    Attributes:
        asked: what its calls were about, in order.
        answered: those that it has answered.
    """

    def __init__(self, latency_s: float = 0.0, spread: float = 0.0, **hello: object) -> None:
        self.hello = HELLO | hello
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.alive = True
        self.phases: dict[str, str] = {}
        self.fails = False
        self.go = asyncio.Event()
        self.go.set()
        self._latency_s = latency_s
        self._spread = spread
        self._finished: set[str] = set()
        self._killed = asyncio.Event()

    async def start(self) -> "Judge":
        self.alive, self._killed = True, asyncio.Event()
        return self

    async def ask(self, method, params, deadline_s, about=""):
        if method == "hello":
            return self.hello
        self.asked.append(about)
        if self.fails:
            raise CallFailed("the judge is broken")
        self.phases[about] = "timing"
        ending = [asyncio.create_task(self._work(about)), asyncio.create_task(self._killed.wait())]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ending:
                task.cancel()
        if not self.alive:
            raise CallFailed("the judge was killed")
        self.answered.append(about)
        return verdict(params["fidelity"], f"judged {len(self.answered)}", self.hello)

    async def _work(self, about: str) -> None:
        await asyncio.sleep(self._latency_s * random.uniform(1 - self._spread, 1 + self._spread))
        while about not in self._finished and not self.go.is_set():
            await asyncio.sleep(0.01)

    def finish(self, about: str) -> None:
        """Let one call go."""
        self._finished.add(about)

    def kill(self, why: str) -> None:
        self.alive = False
        self._killed.set()

    async def close(self, close_s: float) -> None:
        self.kill("closed")


def verdict(fidelity: str, feedback: str, hello: dict[str, Any]) -> dict[str, Any]:
    return Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=Fidelity(fidelity),
        task_revision="stub",
        device_class=hello["device_class"],
        evaluator_version=hello["evaluator_version"],
        custom=True,
        feedback=feedback,
    ).to_json()


@contextlib.asynccontextmanager
async def working(
    port: int,
    judge: Judge,
    *others: Judge,
    name: str = "worker",
    said: list[str] | None = None,
) -> AsyncIterator["asyncio.Task[None]"]:
    """A worker in this process for each judge, over HTTP all the same; gives the first's task."""
    lines = [] if said is None else said
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for number, each in enumerate((judge, *others)):
            client = SearchClient(
                f"http://127.0.0.1:{port}", TOKEN, "a test", float("inf"), lines.append
            )
            stack.push_async_callback(client.close)
            place = Place(f"{name} {number}" if others else name, each.start, Deadlines())
            await place.up()
            tasks.append(
                asyncio.create_task(PullWorker(client, place, place.name, lines.append).run())
            )
            stack.push_async_callback(_end, tasks[-1])
        yield tasks[0]


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def start_work(
    folder: Path,
    port: int,
    *words: str,
    slots: int = 1,
    latency_s: float = 0.0,
    token: str = TOKEN,
    device_class: str = "cpu-stub",
) -> Forked:
    """`evolve work` in a process of its own over a stub judge, whose files lie in the folder."""
    judge = [sys.executable, "-SE", str(WORKER), str(slots), str(latency_s)]
    python = folder / "stub-python"
    python.write_text(f"#!/bin/sh\nCUDA_STUB_CLASS={device_class} exec {shlex.join(judge)}\n")
    python.chmod(0o700)
    token_file(folder, token)
    return start(
        "evolve",
        *("work", "--server", f"http://127.0.0.1:{port}", "--token-file", "token"),
        *("device=cpu", f"device.python={python}", *words),
        cwd=folder,
        env={**os.environ, "EVOLVE_CLUSTER_TOKEN": ""},
    )


def judged(folder: Path) -> list[str]:
    """Markers of the candidates that the stub judge there has answered on, in order."""
    path = folder / "judged"
    return path.read_text().split() if path.exists() else []
