"""The parent of `bench_tuner measure`: orders, the file of lines, and the table that it becomes."""

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from evolve.core.program import Assignment
from tests.benchmarks import json_lines
from tests.benchmarks.gpu_forks import Turns, fork, kill, until_stopped
from tests.benchmarks.tuner_child import KEPT, LIMITS, work
from tests.benchmarks.tuner_problems import PROBLEMS

_ROOM_OF_ONE = 6 << 30  # bytes of the device for a worker
_AHEAD = 10  # instances that a problem may be ahead of others where a worker has its inputs
_FIRST = 2  # orders of a problem that come before all others
_NEWS = 30.0  # seconds from one line about how far it is to the next

Order = tuple[str, str | None, Assignment | None]
"""A problem, its program (None: to be written) and an instance (None: torch's own)."""


@dataclass(eq=False)
class Worker:
    """A process that was forked for orders.

    Attributes:
        orders: to it; rows from it.
        at: what it is doing (a key of `LIMITS`), and `since` when.
        order: what it is doing it for.
        has: tasks whose inputs it has, the last used last.
    """

    process: BaseProcess
    orders: Connection
    at: str = "starting"
    since: float = field(default_factory=time.monotonic)
    order: Order | None = None
    has: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    @classmethod
    def forked(cls, turns: Turns, log: Path) -> "Worker":
        mine, its = Pipe()
        process = fork(log, work, its, turns)
        its.close()  # or its end would go unnoticed
        return cls(process, mine)

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.since > LIMITS[self.at]

    def give(self, order: Order) -> bool:
        """Whether it could be told; it may have died."""
        try:
            self.orders.send(order)
        except OSError:
            return False
        self.order, (name, source, _) = order, order
        if source is not None:
            self._uses(PROBLEMS[name].task)
        return True

    def _uses(self, task: str) -> None:
        if task in self.has:
            self.has.remove(task)
        self.has.append(task)

    def says(self, what: str) -> None:
        self.at, self.since = what, time.monotonic()


class Plans:
    """What is left to be ordered.

    Args:
        names: of problems, whose programs are to be written first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._unwritten = list(names)
        self._sources: dict[str, str] = {}
        self._left: dict[str, deque[Assignment | None]] = {}
        self._given = Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._unwritten or any(self._left.values()))

    def add(self, name: str, source: str, instances: Sequence[Assignment]) -> None:
        self._sources[name], self._left[name] = source, deque([None, *instances])

    def next(self, has: Sequence[str]) -> Order | None:
        """Round robin, but rather of a task that the worker has the inputs of.

        First of all come torch's time and the instance that a replay begins with, of each problem.
        """
        if self._unwritten:
            return self._unwritten[0], None, None
        open_ = [name for name, left in self._left.items() if left]
        if not open_:
            return None

        def place(name: str) -> tuple[bool, int]:
            given = self._given[name]
            return given >= _FIRST, given + _AHEAD * (PROBLEMS[name].task not in has)

        name = min(open_, key=place)
        return name, self._sources[name], self._left[name][0]

    def given(self, order: Order) -> None:
        name, source, _ = order
        if source is None:
            self._unwritten.remove(name)
        else:
            self._left[name].popleft()
            self._given[name] += 1


class Measuring:
    """Has workers make rows, and writes each to a file at once.

    Args:
        names: of problems.
        lines: the file.
        turns: on the device.
        count: of workers, at most; where the device has no room for them it is fewer.
    """

    def __init__(self, names: Sequence[str], lines: Path, turns: Turns, count: int) -> None:
        self._plans, self._turns, self._count = Plans(names), turns, count
        self._path, self._log = lines, lines.with_suffix(".log")
        self._workers: list[Worker] = []
        self._rows = self._unstarted = 0

    def go(self, until: float) -> None:
        """Until all is measured, that moment (of `time.monotonic`) is there, or a signal comes."""
        for each in (self._path, self._log):
            each.write_text("")
        try:
            with until_stopped():
                self._go(until)
        finally:
            kill(*(worker.process for worker in self._workers))

    def _go(self, until: float) -> None:
        began = news = time.monotonic()
        while time.monotonic() < until and self._is_open():
            self._hire()
            heard = wait([worker.orders for worker in self._workers], 0.2)
            for worker in [one for one in self._workers if one.orders in heard]:
                self._hear(worker)
            for worker in [one for one in self._workers if one.is_late]:
                self._lose(worker, f"{worker.at} took more than {LIMITS[worker.at]:.0f} s")
            for worker in [one for one in self._workers if one.at == "ready"]:
                self._order(worker)
            if time.monotonic() > news + _NEWS:
                news = time.monotonic()
                print(f"{news - began:.0f} s: {self._rows} lines", flush=True)

    def _is_open(self) -> bool:
        if self._unstarted > 2 * self._count:
            print(f"workers do not start: {self._log} says why")
            return False
        return bool(self._plans) or any(worker.order for worker in self._workers)

    def _hire(self) -> None:
        while len(self._workers) < self._count:
            self._workers.append(Worker.forked(self._turns, self._log))

    def _order(self, worker: Worker) -> None:
        if len(self._workers) > self._count:
            self._dismiss(worker)
            return
        order = self._plans.next(worker.has)
        if order and worker.give(order):
            self._plans.given(order)
            worker.says("waiting")

    def _hear(self, worker: Worker) -> None:
        try:
            said = worker.orders.recv()
        except (EOFError, ConnectionError):
            self._lose(worker, f"its process died while {worker.at}")
            return
        if isinstance(said, str):
            worker.says(said)
            return
        worker.order = None
        worker.says("through with it")
        self._note(said)

    def _lose(self, worker: Worker, error: str) -> None:
        self._unstarted += worker.at == "starting"
        self._dismiss(worker)
        if worker.order:
            name, _, assignment = worker.order
            self._note({"problem": name, "assignment": assignment, "error": error})

    def _dismiss(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.orders.close()
        kill(worker.process, seconds=0)

    def _note(self, row: dict[str, Any]) -> None:
        self._rows += 1
        if instances := row.get("planned"):
            self._plans.add(row["problem"], row["source"], instances)
            row["planned"] = len(instances)
            self._count = min(self._count, max(1, row.pop("memory", 1 << 50) // _ROOM_OF_ONE))
        json_lines.add(self._path, row)


# --- the table ------------------------------------------------------------------------------------


def put_together(lines: Path) -> dict[str, Any]:
    """The table. An instance for which there was no memory beside the others is not in it."""
    found = json_lines.read(lines)
    written = [row for row in found if "source" in row]
    return {
        "device": next((row["device"] for row in written), ""),
        "sources": {row["problem"]: row["source"] for row in written},
        "planned": {row["problem"]: row["planned"] for row in written},
        "reference_ms": {r["problem"]: r["reference_ms"] for r in found if "reference_ms" in r},
        "rows": [
            {"time_ms": None} | row
            for row in found
            if row["assignment"] and not str(row["error"]).startswith("OutOfMemoryError")
        ],
        "trouble": {
            row["problem"]: row["error"]
            for row in found
            if not row["assignment"] and "error" in row
        },
    }


def described(table: dict[str, Any]) -> Iterator[str]:
    """A line for each problem, and one of why instances failed."""
    for name in table["sources"]:
        rows = [row for row in table["rows"] if row["problem"] == name]
        times = [row["time_ms"] for row in rows if row["time_ms"]]
        best = f"{min(times):.4f} ms" if times else "none"
        torch_ms = table["reference_ms"].get(name)
        yield (
            f"{name}: {len(times)} timed, {len(rows) - len(times)} failed, "
            f"{table['planned'][name] - len(rows)} not reached, best {best}, "
            f"torch {f'{torch_ms:.4f} ms' if torch_ms else 'none'}"
        )
    for name, error in table["trouble"].items():
        yield f"{name}: {error}"
    errors = [row["error"] for row in table["rows"] if not row["time_ms"]]
    kinds = Counter(e.partition(":")[0] if isinstance(e, str) else "wrong" for e in errors)
    yield "failed: " + (", ".join(f"{n} {kind}" for kind, n in kinds.most_common(6)) or "none")
