"""One run of a user's script in this process, with an observer; its findings as plain data."""

import ast
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from evolve.capture.interpose import Observer, interpose
from evolve.capture.jobs import APPLY, RECORD, TIME, part_from
from evolve.capture.origin import keep_constructors
from evolve.capture.patching.patcher import Patcher
from evolve.capture.patching.replacement import Winner
from evolve.capture.record import Recorder
from evolve.capture.script import Failed, ObserverFailed, run_script
from evolve.capture.shares import Shares
from evolve.testing.suite_tasks.captured import key_of_described


def perform(job: Mapping[str, Any]) -> None:
    """Run the script, and write the findings to the job's `result`; its fault as `fault`."""
    keep_constructors()
    found = _PURPOSES[job["purpose"]](job)
    Path(job["result"]).write_text(json.dumps(found))


def _run(job: Mapping[str, Any], observer: Observer) -> dict[str, Any]:
    own = interpose(observer)
    began = time.perf_counter()
    try:
        run_script(job["script"], job["is_module"], job["words"], own.binder_of)
    except Failed as error:
        return {"fault": str(error)}
    except ObserverFailed as error:
        return {"observer_fault": str(error)}
    return {"wall_s": time.perf_counter() - began}


def _time(job: Mapping[str, Any]) -> dict[str, Any]:
    shares = Shares()
    found = _run(job, shares)
    found["total_s"] = shares.clock.total()
    found["parts"] = list(shares.found())
    return found


def _record(job: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(job["folder"])
    wanted = {part_from(one["part"]): (one["name"], set(one["kinds"])) for one in job["wanted"]}
    recorder = Recorder(wanted, folder)
    found = _run(job, recorder)
    for recorded in recorder.found.values():
        for name, tensor in () if recorded.fault else recorded.files.items():
            torch.save(tensor, folder / name)
    found["recorded"] = [
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
    return found


def _apply(job: Mapping[str, Any]) -> dict[str, Any]:
    observer = Patcher([_winner(one) for one in job["winners"]], checks=job["checks"])
    found = _run(job, observer)
    if observer.failure:
        return {"failure": observer.failure}
    found["total_s"] = observer.clock.total()
    found["built_s"] = observer.clock.paused
    found["tallies"] = [vars(tally) for tally in observer.tallies]
    return found


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
