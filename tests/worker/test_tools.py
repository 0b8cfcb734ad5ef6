"""NVIDIA's tools together, without a GPU: who is asked, how many at once, and what counts.

Invariants: each tool is asked once for a program on a task, unless it gave no result: then it alone
is; side by side only where cores and room are there for all; racecheck only if memcheck has soon
given a result, by the time that it worked, and a kernel may have shared memory; an error of
memcheck refuses the candidate, a hazard does not; without a tool no room is asked for.
"""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.feedback import KernelFacts
from evolve.worker.base.infra import InfraFault
from evolve.worker.evidence import tools as observing
from evolve.worker.evidence.tools import Tools
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.memory_budget import MemoryBudget

CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}
COUNTED = (
    '"ID","Kernel Name","gpu__time_duration.sum",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed"\n'
    '"0","kernel","100","50"'
)
WRONG = "========= Invalid __global__ read\n========= ERROR SUMMARY: 1 error"
TASK = SimpleNamespace(cases=[], smallest=SimpleNamespace(case=SimpleNamespace(name="main")),
                       timed=[None], task=SimpleNamespace(revision="1"))  # fmt: skip
OTHER_TASK = SimpleNamespace(**{**vars(TASK), "task": SimpleNamespace(revision="2")})
KERNEL = KernelFacts(name="kernel", is_own=True, shared_bytes=1024)
PLAIN = KernelFacts(name="plain", is_own=True, shared_bytes=0)
UNKNOWN = KernelFacts(name="unknown", is_own=True)
PROGRAM, OTHER = Candidate("import triton"), Candidate("import triton  # another")


class CandidateSession:
    """Says of a call what it is told to, and counts how many ask at once."""

    def __init__(self, cores=16, room=100, **said):
        self.device = SimpleNamespace(cores=cores, room=room, has_profiler=True)
        self.asked, self.most, self._now, self.worked_s = [], 0, 0, 0.2
        self.said, self._lock = CLEAN | said, threading.Lock()

    def observed(self, candidate, case, command):
        kind = command[command.index("--tool") + 1] if "--tool" in command else "ncu"
        with self._lock:
            self.asked.append(kind)
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.2)
        with self._lock:
            self._now -= 1
        if isinstance(text := self.said.get(kind, ""), Exception):
            raise text
        return json.dumps([text, 0, self.worked_s])


@pytest.fixture(autouse=True)
def _a_host_with_tools(monkeypatch, tmp_path):
    for name in ("compute-sanitizer", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(
        observing, "room_for", lambda cases, device, processes, judges=True: 10 * processes
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(("cores", "room", "most"), [(16, 100, 2), (3, 100, 1), (16, 30, 1)])
def test_each_is_asked_once_and_beside_others_only_where_there_is_room(cores, room, most):
    session = CandidateSession(cores, room)
    labels = list(observing.observe(session, None, TASK, [KERNEL]))
    assert sorted(session.asked) == ["memcheck", "ncu", "racecheck"]
    assert session.most == most
    assert [label.name for label in labels] == ["memcheck", "racecheck"]
    assert observing.processes(TASK, session.device) == 2 * most


@pytest.mark.parametrize(
    ("own", "said", "asked", "label"),
    [
        ([PLAIN, KERNEL], {}, True, ("racecheck", "no error in one call")),
        ([PLAIN, UNKNOWN], {}, True, ("racecheck", "no error in one call")),
        ([], {}, True, ("racecheck", "no error in one call")),
        ([PLAIN], {}, False, ("racecheck", "its kernels have no shared memory")),
        ([PLAIN, KERNEL], {"memcheck": "it hangs"}, False,
         ("no_racecheck", "not tried: memcheck gave no result")),
    ],
)  # fmt: skip
def test_racecheck_is_asked_only_where_it_can_say_something(own, said, asked, label):
    session = CandidateSession(**said)
    labels = list(observing.observe(session, None, TASK, own))
    assert ("racecheck" in session.asked) is asked
    assert (labels[-1].name, labels[-1].evidence) == label


@pytest.mark.parametrize(("worked_s", "asked"), [(0.1, True), (9.0, False)])
def test_racecheck_is_tried_by_the_time_that_memcheck_worked_without_its_stops(
    monkeypatch, worked_s, asked
):
    monkeypatch.setattr(observing, "_SOON_S", 0.15)  # less than a call takes here
    session = CandidateSession()
    session.worked_s = worked_s
    labels = list(observing.observe(session, None, TASK, [KERNEL]))
    assert ("racecheck" in session.asked) is asked
    said = [(label.name, label.evidence) for label in labels]
    refused = ("no_racecheck", "not tried: memcheck worked 9.0 s")
    assert said[1] == (("racecheck", "no error in one call") if asked else refused)


def test_what_memcheck_finds_refuses_the_candidate():
    with pytest.raises(CandidateFault, match="memcheck"):
        list(observing.observe(CandidateSession(memcheck=WRONG), None, TASK, [KERNEL]))


def test_hazards_are_a_label():
    text = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
    labels = list(observing.observe(CandidateSession(racecheck=text), None, TASK, []))
    assert [label.evidence for label in labels] == ["no error in one call", "1 errors in one call"]


@pytest.fixture
def tools():
    """Tools of a session, and the session."""
    session = CandidateSession()
    tools = Tools(session, MemoryBudget(100))
    yield tools, session
    tools.close()


def names(findings):
    return [label.name for label in findings.result(10)]


def test_a_program_is_looked_at_once_on_a_task(tools):
    tools, session = tools
    first, again = (tools.look(PROGRAM, TASK, [KERNEL]) for _ in range(2))  # both under way
    assert names(first) == names(again) == ["memcheck", "racecheck"]
    assert names(tools.look(PROGRAM, TASK, [KERNEL])) == ["memcheck", "racecheck"]
    assert len(session.asked) == 3
    names(tools.look(OTHER, TASK, [KERNEL]))
    names(tools.look(PROGRAM, OTHER_TASK, [KERNEL]))
    assert len(session.asked) == 9


def test_an_error_that_counts_is_kept(tools):
    tools, session = tools
    session.said["memcheck"] = WRONG
    for _ in range(2):
        with pytest.raises(CandidateFault, match="memcheck"):
            tools.look(PROGRAM, TASK, []).result(10)
    assert session.asked.count("memcheck") == 1


@pytest.mark.parametrize(
    ("kind", "said", "label", "again"),
    [
        ("memcheck", "it hangs", "no_memcheck", ["memcheck", "racecheck"]),
        ("racecheck", "it hangs", "no_racecheck", ["racecheck"]),
        ("memcheck", InfraFault("no process"), "no_tools", ["memcheck", "ncu", "racecheck"]),
    ],
)
def test_only_a_tool_without_a_result_is_asked_again(tools, kind, said, label, again):
    tools, session = tools
    session.said |= {kind: said, "ncu": COUNTED}
    assert label in names(tools.look(PROGRAM, TASK, [KERNEL]))
    session.said |= CLEAN
    session.asked.clear()
    assert names(tools.look(PROGRAM, TASK, [KERNEL])) == ["memcheck", "racecheck", "counters"]
    assert sorted(session.asked) == again


def test_counters_that_could_not_be_read_are_asked_for_in_the_next_look(tools):
    tools, session = tools
    session.said["racecheck"] = "it hangs"
    assert names(tools.look(PROGRAM, TASK, [KERNEL])) == ["memcheck", "no_racecheck"]
    session.said |= CLEAN | {"ncu": COUNTED}
    assert names(tools.look(PROGRAM, TASK, [KERNEL])) == ["memcheck", "racecheck", "counters"]
    assert session.asked.count("memcheck") == 1


def test_a_racecheck_that_would_not_end_is_not_asked_for_again(tools):
    tools, session = tools
    session.worked_s = 9.0
    for _ in range(2):
        assert names(tools.look(PROGRAM, TASK, [KERNEL])) == ["memcheck", "no_racecheck"]
    assert session.asked.count("memcheck") == 1


def test_tools_wait_for_room_and_not_those_that_wait_for_them():
    room, session = MemoryBudget(60), CandidateSession()
    tools = Tools(session, room)
    with room.taken(30):
        findings = tools.look(PROGRAM, TASK, [])
        time.sleep(0.3)
        assert not session.asked
    assert names(findings) == ["memcheck", "racecheck"]
    tools.close()


def test_without_a_tool_no_room_is_asked_for(monkeypatch):
    monkeypatch.setattr(observing, "find_tool", lambda name: None)
    assert observing.processes(TASK, CandidateSession().device) == 0
