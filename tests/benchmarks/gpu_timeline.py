"""Where the time of an evaluation goes: every step of the judge, of all its threads.

    python -m tests.benchmarks.gpu_timeline --device cuda --rounds

Runs the judge in this process, with its methods wrapped. Steps contain each other, so their sums
do not add up to the whole; of a lock it is the wait that is shown. `--rounds` also prints what
happened when, from the first session on.
"""

import argparse
import functools
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Fidelity
from evolve.worker.devices.base import Device
from evolve.worker.judge.judge import Judge
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.launcher import Launcher
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.session import prepared_task
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.timing import interleaved_blocks as clock
from tests.benchmarks.conditions import print_conditions
from tests.gpu.programs import RIGHT, TASK
from tests.worker.serving import HONEST_CPP, RELU_TASK

OF_PROCESSES = ("__init__", "open_gpu", "use_pool", "load", "construct", "call", "observe",
                "open_profiler", "events", "stage", "record", "run", "drop", "freeze",
                "use_inputs", "use_signals", "begin", "close")  # fmt: skip


@dataclass(slots=True)
class Timeline:
    """What was done when, in seconds since the beginning; steps of all threads."""

    began: float = field(default_factory=time.perf_counter)
    steps: list[tuple[float, float, str, str]] = field(default_factory=list)

    def wrap(self, owner: Any, names: tuple[str, ...]) -> None:
        """Note every call of these methods or functions."""
        for name in names:
            label = f"{getattr(owner, '__name__', owner)}.{name}".replace("evolve.worker.", "")
            setattr(owner, name, self._noted(getattr(owner, name), label))

    def wrap_entries(self, owner: type, names: tuple[str, ...]) -> None:
        """Note how long it takes to get into these context managers."""
        for name in names:
            setattr(owner, name, self._entered(getattr(owner, name), f"{owner.__name__}.{name}"))

    def note(self, label: str, start: float) -> None:
        ends = time.perf_counter()
        thread = threading.current_thread().name
        self.steps.append((start - self.began, ends - self.began, label, thread))

    def _noted(self, call: Callable[..., Any], label: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def noted(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.note(label, start)

        return noted

    def _entered(self, manager: Callable[..., Any], label: str) -> Callable[..., Any]:
        timeline = self

        class Entered:
            def __init__(self, *given: Any, **named: Any) -> None:
                self._inner = manager(*given, **named)

            def __enter__(self) -> Any:
                start = time.perf_counter()
                value = self._inner.__enter__()
                timeline.note(f"wait for {label}", start)
                return value

            def __exit__(self, *error: Any) -> Any:
                return self._inner.__exit__(*error)

        return lambda *given, **named: Entered(*given, **named)

    def table(self, since: float) -> None:
        """Count, sum, mean and largest of every step that began after `since`."""
        found: dict[str, list[float]] = {}
        for start, end, label, _ in self.steps:
            if start >= since:
                found.setdefault(label, []).append(end - start)
        for label, times in sorted(found.items(), key=lambda item: -sum(item[1])):
            print(
                f"  {sum(times):8.3f} s  {len(times):5d} x {1e3 * sum(times) / len(times):8.2f} ms"
                f"  most {1e3 * max(times):8.1f}  {label}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", action="store_true")
    options = parser.parse_args()
    print_conditions()
    timeline = Timeline()
    timeline.wrap(RunnerProcess, OF_PROCESSES)
    timeline.wrap(clock, ("sit", "judge_samples"))
    timeline.wrap(prepared_task.PreparedCase, ("block", "prepare_blocks"))
    timeline.wrap_entries(HostLock, ("shared", "exclusive"))
    timeline.wrap_entries(DeviceLock, ("alone",))
    timeline.wrap(Launcher, ("start",))
    device, task, source = made(options.device)
    timeline.wrap(type(device), ("prepare", "connect", "is_idle", "inputs_changed", "read"))
    timeline.wrap(type(device.window()), ("run", "rouse", "warm_up"))
    with tempfile.TemporaryDirectory() as cache:
        judge = Judge(device, Path(cache))
        try:
            for round_ in ("first", "second"):
                since = time.perf_counter() - timeline.began
                verdict = judge.evaluate(task, f"{source}\n# {round_}\n", Fidelity.SEARCH, {})
                lasted = time.perf_counter() - timeline.began - since
                print(
                    f"{round_} evaluation: {verdict.status}, {lasted:.2f} s, exclusive "
                    f"{verdict.device_time_s:.2f} s, {verdict.durations_s}, {verdict.ratios}"
                )
                timeline.table(since)
        finally:
            judge.close()
    if options.rounds:
        began = next(s for s, _, label, _ in timeline.steps if label == "wait for DeviceLock.alone")
        for start, end, label, thread in sorted(timeline.steps):
            if start > began - 3.0 and end - start > 1e-3:
                print(f"{start:9.3f} {1e3 * (end - start):9.1f} ms  {thread[-22:]:22s} {label}")


def made(name: str) -> tuple[Device, Any, str]:
    if name == "cpu":
        from evolve.worker.devices.cpu.device import CpuDevice

        return CpuDevice(), RELU_TASK, HONEST_CPP
    from evolve.worker.devices.cuda.device import CudaDevice

    return CudaDevice(), TASK, RIGHT


if __name__ == "__main__":
    main()
