"""NVIDIA's tools together, without a GPU: who is asked, how many at once, and what counts.

Invariants: each tool is asked once; side by side only where cores and room are there for all; an
error of memcheck refuses the candidate, a hazard does not; without a tool no room is asked for.
"""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from evolve.worker import observing
from evolve.worker.faults import CandidateFault

CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}
WRONG = "========= Invalid __global__ read\n========= ERROR SUMMARY: 1 error"
TASK = SimpleNamespace(cases=[], smallest=SimpleNamespace(case=SimpleNamespace(name="main")),
                       timed=[None])  # fmt: skip


class Workshop:
    """Says of a call what it is told to, and counts how many ask at once."""

    def __init__(self, cores=16, room=100, **said):
        self.device = SimpleNamespace(cores=cores, room=room, has_profiler=True)
        self.asked, self.most, self._now = [], 0, 0
        self._said, self._lock = CLEAN | said, threading.Lock()

    def observed(self, candidate, case, command):
        kind = command[command.index("--tool") + 1] if "--tool" in command else "ncu"
        with self._lock:
            self.asked.append(kind)
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.2)
        with self._lock:
            self._now -= 1
        return json.dumps([self._said.get(kind, ""), 0])


@pytest.fixture(autouse=True)
def _a_host_with_tools(monkeypatch, tmp_path):
    for name in ("compute-sanitizer", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(observing, "room_for", lambda cases, device, processes: 10 * processes)


@pytest.mark.parametrize(("cores", "room", "most"), [(16, 100, 3), (4, 100, 1), (16, 50, 1)])
def test_each_is_asked_once_and_beside_others_only_where_there_is_room(cores, room, most):
    workshop = Workshop(cores, room)
    labels = list(observing.observe(workshop, None, TASK, ["kernel"]))
    assert sorted(workshop.asked) == ["memcheck", "ncu", "racecheck"]
    assert workshop.most == most
    assert [label.name for label in labels] == ["memcheck", "racecheck"]
    assert observing.processes(TASK, workshop.device) == 2 * most


def test_what_memcheck_finds_refuses_the_candidate():
    with pytest.raises(CandidateFault, match="memcheck"):
        list(observing.observe(Workshop(memcheck=WRONG), None, TASK, ["kernel"]))


def test_hazards_are_a_label():
    text = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
    labels = list(observing.observe(Workshop(racecheck=text), None, TASK, []))
    assert [label.evidence for label in labels] == ["no error in one call", "1 errors in one call"]


def test_without_a_tool_no_room_is_asked_for(monkeypatch):
    monkeypatch.setattr(observing, "find_tool", lambda name: None)
    assert observing.processes(TASK, Workshop().device) == 0
