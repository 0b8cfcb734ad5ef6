"""How exact a correct program is and how much memory it takes, as the judge sees them.

Invariants:
1. `error` is the worst of all that was judged; a more exact program has a smaller one. Only a
   correct program has one, and one that the task's own `check` judged has none.
2. `memory_bytes` is what a call takes beyond weights, inputs and outputs, to about a megabyte of
   code; what is set aside before the call, or given back after it, counts.
3. A candidate cannot make either smaller by what it says, by the name of its process, by lowering
   its mark, nor by a process beside it that it waits for: where the books do not tell there is no
   number, and the verdict is what it was. (`scratch` says what it still can.)
4. Where the host or the device keeps no such books there is none, and nothing is started for it.
5. Who takes his time only where he is weighed keeps the others waiting for some seconds at most.
"""

import subprocess
import time

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.task import Task
from evolve.worker.build.cache import BuildCache
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.evidence.peak_memory import MemoryMark, scratch_bytes
from evolve.worker.judge.judge import Judge
from evolve.worker.judge.stages import check
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.sandbox.policy import Mechanism
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.plan import PLANS
from evolve.worker.session.prepared_task import PreparedTasks
from tests.worker.judging import task_source
from tests.worker.launching import Borrowing
from tests.worker.serving import HONEST_CPP, RELU_TASK, forward

MB = 1 << 20
SCRATCH = 24 * MB
SLACK = 10 * MB  # code of a candidate's own, and what torch keeps
TAKES = "scratch = torch.ones(24 << 20, dtype=torch.uint8)"
MAPS = """
import mmap
scratch = mmap.mmap(-1, 24 << 20)
for page in range(0, 24 << 20, 4096):
    scratch[page] = 1
scratch.close()
"""
LOWERS = """
try:
    open("/proc/self/clear_refs", "w").write("5")
except OSError:
    pass
"""


def named(name: bytes) -> str:
    """A line that gives a thread this name."""
    return f"import ctypes; ctypes.CDLL(None).prctl(15, {name!r})"


NO_TEXT, LIKE_A_MARK = named(b"\xff"), named(b"\rVmHWM: 0 kB")


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scratch")
    folder.chmod(0o755)
    judge = Judge(CpuDevice(), folder / "cache")
    if Mechanism.LANDLOCK not in Mechanism(judge.launcher.mechanisms):
        judge.close()
        pytest.skip("no Landlock on this host: its books are not out of a candidate's reach")
    yield judge
    judge.close()


def weighed(judge: Judge, source: str, task: Task = RELU_TASK) -> int | None:
    return scratch_bytes(judge.session, Candidate(source), judge.warm(task))


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_weights_inputs_outputs_and_code_of_the_service_are_not_the_candidates(judge):
    """Weights, inputs and outputs of 12 MB each."""
    setup = "self.weight = nn.Parameter(torch.randn(3, 1 << 20))"
    text = task_source("x * self.weight", "[torch.randn(3, 1 << 20)]", setup=setup)
    source = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 1 << 20))

    def forward(self, x):
        return x * self.weight
"""
    assert weighed(judge, source, Task(name="large", source=text)) < SLACK


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "source",
    [
        forward(f"{TAKES}\ny = right(x)\nreturn y"),
        forward(f"{TAKES}\ny = right(x)\ndel scratch\nreturn y"),
        forward("return right(x)", TAKES),
        forward(f"{TAKES}\ny = right(x)\ndel scratch\n{LOWERS}\nreturn y"),
        forward(f"{LOWERS}\nreturn right(x)", f"{TAKES}\ndel scratch\n{LOWERS}"),
        forward(f"{MAPS}\n{LOWERS}\nreturn right(x)"),
        forward(f"{TAKES}\n{NO_TEXT}\nreturn right(x)"),
        forward(f"{TAKES}\n{LIKE_A_MARK}\nreturn right(x)"),
    ],
    ids=[
        "until the end",
        "given back",
        "set aside before",
        "given back, its mark lowered",
        "touched before, so that it is there already",
        "past the heap",
        "named so that it is no text",
        "named like a mark",
    ],
)
def test_what_a_call_takes_for_itself_counts(judge, source):
    found = weighed(judge, source)
    assert SCRATCH <= found < SCRATCH + 2 * SLACK, found


def test_the_same_program_takes_the_same_each_time(judge):
    source = forward(f"{TAKES}\nreturn right(x)")
    found = [weighed(judge, source) for _ in range(3)]
    assert max(found) - min(found) <= MB
    assert not any(each % MB for each in found)


FLEES = {
    "into another process": """
if not getattr(self, 'child', 0):
    self.child = os.fork()
    if self.child == 0:
        scratch = bytearray(24 << 20)
        time.sleep(60)
return right(x)
""",
    "into a process that has ended": """
child = os.fork()
if child == 0:
    scratch = bytearray(24 << 20)
    os._exit(0)
os.waitpid(child, 0)
return right(x)
""",
    "into a wrong answer": "return x * 2",
    "into a failure": "raise MemoryError",
}


@pytest.mark.parametrize("body", FLEES.values(), ids=FLEES.keys())
def test_who_flees_from_the_books_has_no_number(judge, body):
    judge.session.call_s = 2.0
    assert weighed(judge, forward(body)) is None


def test_a_program_that_replaced_itself_has_no_mark():
    with subprocess.Popen(["sleep", "60"]) as other:  # forked, and then another program
        assert MemoryMark(other.pid).held() > 0
        assert MemoryMark(other.pid).highest() is None
        other.kill()


def test_where_a_program_could_lower_its_mark_there_is_no_number(tmp_path, launcher):
    device = CpuDevice()
    launcher = Borrowing(launcher, device, ~Mechanism.LANDLOCK)
    launcher.probe()
    device_lock = DeviceLock(device, HostLock("cpu-without-landlock"))
    session = CandidateSession(device, launcher, BuildCache(tmp_path), device_lock, 5.0)
    task = PreparedTasks(device).get(RELU_TASK)
    launcher.close()  # nor is a process started to find that out
    assert scratch_bytes(session, Candidate(forward("return right(x)")), task) is None


WEIGHED = "any(kind.__name__ == 'ModelNew' for kind in nn.Module.__subclasses__())"


@pytest.mark.quiet
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            forward("return right(x)", f"if {WEIGHED}:\n    time.sleep(60)"),
            id="when it is loaded",
        ),
        pytest.param(
            forward("if weighed:\n    time.sleep(60)\nreturn right(x)", f"weighed = {WEIGHED}"),
            id="when it is called",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_who_stalls_only_where_it_is_weighed_holds_nobody_up(judge, source, monkeypatch):
    task, candidate = judge.warm(RELU_TASK), Candidate(source)
    with judge.session.interruptible(candidate, task.cases) as runner:
        assert check(judge.session, runner, candidate, task, PLANS[Fidelity.CHECK])
    start = time.monotonic()
    monkeypatch.setattr(judge.session, "call_s", 60.0)
    assert scratch_bytes(judge.session, candidate, task) is None
    assert time.monotonic() - start < 15


@pytest.mark.slow
def test_a_search_says_it_where_the_device_keeps_books(judge):
    task = Task(name="wide", source=RELU_TASK.source.replace("(64, 256)", "(1024, 1024)"))
    found = judge.evaluate(task, HONEST_CPP, Fidelity.SEARCH, {})
    assert found.strict, found.feedback
    assert 0 <= found.descriptors["memory_bytes"] < SLACK
    judge.device.has_memory_mark = False
    without = judge.evaluate(task, HONEST_CPP, Fidelity.SEARCH, {})
    judge.device.has_memory_mark = True
    assert "memory" in found.durations_s
    assert "timing" in without.durations_s
    assert "memory" not in without.durations_s
    assert "memory_bytes" not in without.descriptors


# --- error --------------------------------------------------------------------------------------


def test_a_more_exact_program_has_a_smaller_error(worker):
    exact, rough = (
        worker.evaluate(forward(body), fidelity="check")
        for body in ("return right(x)", "return right(x) * (1 + 2e-7)")
    )
    assert exact.status is rough.status is Status.CORRECT, rough.feedback
    assert 0 <= exact.descriptors["error"] < rough.descriptors["error"] <= 1
    assert "memory_bytes" not in exact.descriptors  # only full evaluations look


def test_the_terms_of_the_longest_sum_are_told_with_the_error(worker):
    outcome = "(x @ x.t()).sum(dim=1) + x.mean()"
    task = Task(name="sums", source=task_source(outcome, "[torch.randn(8, 300)]"))
    verdict = worker.evaluate(forward(f"return {outcome}"), task=task, fidelity="check")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.descriptors["longest_sum"] == 2400.0  # that of the mean


@pytest.mark.slow
@pytest.mark.quiet
def test_errors_of_timed_calls_count_too(worker):
    """Right in every check, and in a timed block as wrong as is allowed and no more."""
    body = """
self.calls = getattr(self, 'calls', 0) + 1
return right(x) if self.calls < 12 else right(x) * (1 + 2e-7)
"""
    shown = worker.evaluate(forward("return right(x)"), fidelity="check").descriptors["error"]
    verdict = worker.evaluate(forward(body))
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.descriptors["error"] > 2 * shown


ONLY_IN_CHECKS = """
self.calls = getattr(self, 'calls', 0) + 1
return right(x) * (1 if self.calls < 12 else 1.01)
"""


@pytest.mark.sample(1)
@pytest.mark.quiet
@pytest.mark.parametrize(
    "body", ["return x * 2", ONLY_IN_CHECKS], ids=["always", "only when it is timed"]
)
def test_a_wrong_program_has_neither(worker, body):
    verdict = worker.evaluate(forward(body))
    assert verdict.status is Status.WRONG_VALUE, verdict.feedback
    assert not {"error", "memory_bytes"} & verdict.descriptors.keys()


def test_what_the_tasks_own_check_judges_has_no_error(worker):
    check = """

def check(output, reference, inputs):
    return True
"""
    task = Task(name="checked", source=RELU_TASK.source + check)
    verdict = worker.evaluate(forward("return right(x)"), task=task, fidelity="check")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "error" not in verdict.descriptors
