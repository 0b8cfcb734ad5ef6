"""One run of a user's script in this process, with an observer; its findings as plain data."""

import ast
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evolve.capture.interpose import Observer, interpose
from evolve.capture.jobs import APPLY, RECORD, TIME, part_from
from evolve.capture.origin import keep_constructors
from evolve.capture.patching.patcher import Patcher
from evolve.capture.patching.replacement import Winner
from evolve.capture.record import Recorder
from evolve.capture.script import fault_of, run_script
from evolve.capture.shares import Shares
from evolve.testing.suite_tasks.captured import key_of_described


@dataclass(frozen=True, slots=True)
class _Purpose:
    """What observes the script, its findings at the end, and what it blames a winner for."""

    observer: Observer
    found: Callable[[], dict[str, Any]]
    failure: Callable[[], str] = str


class Performance:
    """A job under way, whose findings or fault are written to its `result`."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        keep_constructors()
        self._job = job
        self._purpose = _PURPOSES[job["purpose"]](job)

    def run(self) -> None:
        """Run the script; what it raises is for `fail`."""
        job, own = self._job, interpose(self._purpose.observer)
        began = time.perf_counter()
        run_script(job["script"], job["is_module"], job["words"], own.binder_of)
        wall_s = time.perf_counter() - began
        self._write(self._failure() or {"wall_s": wall_s, **self._purpose.found()})

    def fail(self, error: BaseException) -> None:
        """The script, what observes it, or a winner has raised this."""
        said, is_ours = fault_of(error)
        self._write(self._failure() or {"observer_fault" if is_ours else "fault": said})

    def _failure(self) -> dict[str, str]:
        failure = self._purpose.failure()
        return {"failure": failure} if failure else {}

    def _write(self, found: Mapping[str, Any]) -> None:
        Path(self._job["result"]).write_text(json.dumps(found))


def _time(job: Mapping[str, Any]) -> _Purpose:
    shares = Shares()
    return _Purpose(
        shares, lambda: {"total_s": shares.clock.total(), "parts": list(shares.found())}
    )


def _record(job: Mapping[str, Any]) -> _Purpose:
    folder = Path(job["folder"])
    wanted = {part_from(one["part"]): (one["name"], set(one["kinds"])) for one in job["wanted"]}
    recorder = Recorder(wanted, folder)
    return _Purpose(recorder, lambda: {"recorded": _recorded(recorder, folder)})


def _recorded(recorder: Recorder, folder: Path) -> list[dict[str, Any]]:
    for recorded in recorder.found.values():
        for name, tensor in () if recorded.fault else recorded.files.items():
            torch.save(tensor, folder / name)
    return [
        {
            "part": part,
            "text": one.text,
            "fault": one.fault,
            "withheld": one.withheld,
            "calls": repr(one.calls),
            "backward_text": one.backward_text,
            "backward_fault": one.backward_fault,
            "backward_calls": repr(one.backward_calls),
        }
        for part, one in recorder.found.items()
    ]


def _apply(job: Mapping[str, Any]) -> _Purpose:
    patcher = Patcher([_winner(one) for one in job["winners"]], checks=job["checks"])

    def found() -> dict[str, Any]:
        return {
            "total_s": patcher.clock.total(),
            "built_s": patcher.clock.built,
            "tallies": [vars(tally) for tally in patcher.tallies],
        }

    return _Purpose(patcher, found, lambda: patcher.failure)


def _winner(one: Mapping[str, Any]) -> Winner:
    calls = ast.literal_eval(one["calls"])
    return Winner(
        name=one["name"],
        part=part_from(one["part"]),
        device=one["device"],
        architecture=one["architecture"],
        kinds=frozenset(map(key_of_described, calls)),
        is_backward=one["is_backward"],
        forward_kinds=frozenset(key_of_described(call[1:]) for call in calls),
        source=one["source"],
        compared=frozenset(one["compared"]),
    )


_PURPOSES = {TIME: _time, RECORD: _record, APPLY: _apply}
