"""A worker of `bench_tuner measure`: compiles instances beside others, and times them alone.

What it says to its parent is what it is at (a key of `LIMITS`), or a row of the table's file.
"""

import importlib.util
import linecache
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from evolve.core.program import Assignment
from evolve.core.source import tunables
from evolve.core.task import Task
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.reference.task_files import folder_of
from evolve.worker.reference.task_module import execute
from tests.benchmarks.gpu_forks import FAULTS, Compiling, Turns, is_lost
from tests.benchmarks.tuner_problems import (
    DEVICE,
    PROBLEMS,
    Problem,
    made,
    planned,
    program,
    task_of,
)

LIMITS = {
    "starting": 60.0,
    "writing the program": 60.0,
    "making inputs": 30.0,
    "compiling": 15.0 if DEVICE == "cuda" else 120.0,
    "waiting": float("inf"),  # for its turn
    "running": 15.0,
    "through with it": 15.0,
    "ready": float("inf"),
}
"""Seconds for what a worker is at; one that takes longer is killed."""
KEPT = 3  # tasks whose inputs a worker has at a time
_OFF = 1e-2  # of the largest expected value; an outcome that is further off is wrong
_MILLISECONDS = 20.0  # of timing
_SLOW = 60.0  # milliseconds; what takes longer is not timed again
_FLUSHED = 256 << 20  # bytes, more than a second-level cache
_CYCLES = 2_000_000  # of a GPU in a millisecond, about


def work(orders: Connection, turns: Turns) -> None:
    """Rows for orders, as long as the device is there and somebody orders."""
    worker = Worker(orders, turns)
    worker.begin()
    while not is_lost():
        orders.send("ready")
        name, source, assignment = orders.recv()
        try:
            row = worker.row(name, source, assignment)
        except FAULTS as error:
            row = {"error": f"{type(error).__name__}: {error}"[:200]}
        orders.send({"problem": name, "assignment": assignment} | row)


class Worker:
    """Makes rows of the table's file.

    Args:
        orders: where it says what it is at.
        turns: on the device.
    """

    def __init__(self, orders: Connection, turns: Turns) -> None:
        self._say, self._turns = orders.send, turns
        self._scenes: dict[str, Scene] = {}  # by the task's source, the last used last

    def begin(self) -> None:
        if DEVICE == "cuda":
            torch.set_num_threads(1)
            with self._turns.together():
                torch.cuda.init()

    @torch.no_grad()
    def row(self, name: str, source: str | None, assignment: Assignment | None) -> dict[str, Any]:
        """For an instance of a program, for the reference (no assignment), or for a program."""
        if source is None:
            return self._program(PROBLEMS[name])
        known = self._scene(task_of(PROBLEMS[name]))
        if assignment is None:
            with self._alone():
                return {"reference_ms": milliseconds(known.reference)}
        call = self._compiled(known, tunables.render(source, assignment))
        with self._alone():
            off = known.off(call())
            return {"error": off, "time_ms": milliseconds(call) if off <= _OFF else None}

    def _program(self, problem: Problem) -> dict[str, Any]:
        """With the instances to measure, and what they run on."""
        with self._turn("writing the program"):
            source = program(problem)
        found: dict[str, Any] = {"source": source, "planned": planned(source, problem)}
        if DEVICE == "cuda":
            memory = torch.cuda.mem_get_info()[1]
            return found | {"device": torch.cuda.get_device_name(), "memory": memory}
        return found | {"device": CpuDevice().device_class}

    def _scene(self, task: Task) -> "Scene":
        if task.source not in self._scenes:
            for old in list(self._scenes)[: 1 - KEPT]:
                del self._scenes[old]
            with self._turn("making inputs"):
                self._scenes[task.source] = Scene(task)
        self._scenes[task.source] = found = self._scenes.pop(task.source)
        return found

    def _compiled(self, known: "Scene", source: str) -> Callable[[], torch.Tensor]:
        """Without a turn on a GPU; compilers and what is timed on a CPU have the same cores."""
        if DEVICE == "cpu":
            with self._turn("compiling"):
                return known.candidate(source)
        self._say("compiling")
        return known.candidate(source)

    @contextmanager
    def _turn(self, what: str) -> Iterator[None]:
        self._say("waiting")
        with self._turns.together():
            self._say(what)
            yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._say("waiting")
        with self._turns.alone():
            self._say("running")
            yield


class Scene:
    """A task's reference, its inputs and what it gives for them, on the device."""

    def __init__(self, task: Task) -> None:
        module = execute(task.name, task.source, {}, folder_of(task))
        self._arguments = module.get_init_inputs()
        self._model, self._inputs = made(module)
        with torch.backends.cudnn.flags(allow_tf32=False):
            self._expected = self.reference()
        self._largest = self._expected.abs().max()

    def reference(self) -> torch.Tensor:
        return self._model(*self._inputs)

    def off(self, outcome: torch.Tensor) -> float:
        """An outcome, relative to the largest expected value; it is changed."""
        assert outcome.shape == self._expected.shape, f"shape {tuple(outcome.shape)}"
        return float(outcome.sub_(self._expected).abs_().max() / self._largest)

    def candidate(self, source: str) -> Callable[[], torch.Tensor]:
        """What an instance gives for the same inputs, with the same weights; compiled."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(source)
            file.flush()
            spec = importlib.util.spec_from_file_location("candidate", file.name)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            linecache.getlines(file.name)  # Triton reads a kernel's text when it is launched
            model = module.ModelNew(*self._arguments).eval().to(DEVICE)
            model.load_state_dict(self._model.state_dict())
            if DEVICE == "cuda":
                with Compiling():
                    model.forward(*self._inputs)
        return lambda: model(*self._inputs)


# --- time -----------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], object]) -> float:
    """The median of runs that together take 20 ms; on a GPU with a cold second-level cache."""
    return _on_a_gpu(call) if DEVICE == "cuda" else _on_a_cpu(call)


def _on_a_cpu(call: Callable[[], object]) -> float:
    """The fastest of three, for others may use it too."""
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    seconds = _MILLISECONDS / 1000
    return 1e3 * min(
        timer.adaptive_autorange(min_run_time=seconds, max_run_time=5 * seconds).median
        for _ in range(3)
    )


def _on_a_gpu(call: Callable[[], object]) -> float:
    """By events around each call, all of which wait on the device until the host has sent them.

    The host is busy with others' compilers, and a program of several kernels takes longer to launch
    than the cache takes to flush: without the wait a kernel of 20 us would have launches in its
    time.
    """
    cache = torch.empty(_FLUSHED, dtype=torch.uint8, device=DEVICE)
    times, host = _cold(call, cache, 3, 5.0)
    usual = statistics.median(times)
    if usual > _SLOW:
        return usual
    flush = 0.1  # milliseconds, about
    count = max(5, min(100, int(_MILLISECONDS / (usual + flush))))
    return statistics.median(_cold(call, cache, count, min(20.0, 1.5 * count * host))[0])


def _cold(
    call: Callable[[], object], cache: torch.Tensor, count: int, wait: float
) -> tuple[list[float], float]:
    """Milliseconds of each call, and those that the host takes for one; `wait` is in them too."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    torch.cuda.synchronize()
    torch.cuda._sleep(int(wait * _CYCLES))
    began = time.perf_counter()
    for start, end in pairs:
        cache.zero_()
        start.record()
        call()
        end.record()
    host = 1000 * (time.perf_counter() - began) / count
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs], host
