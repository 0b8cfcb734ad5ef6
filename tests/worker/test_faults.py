"""Whatever a candidate does to its process is data.

Invariants:
- the status says what happened, from the deadline, `waitpid` or trusted bytes, never from text;
- nothing of the candidate is left when its evaluation is answered;
- the next evaluation is correct: no fault outlives its candidate.
"""

import time

import pytest

from evolve.core.evaluation import Stage, Status
from tests.worker.serving import alive, family_of, forward

HONEST = forward("return right(x)")

FAULTS = {
    "a segmentation fault": ("import ctypes; ctypes.string_at(0)", Status.ILLEGAL_ACCESS),
    "an abort": ("os.abort()", Status.ASSERT),
    "a quiet exit": ("os._exit(0)", Status.KILLED),
    "sys.exit": ("sys.exit(0)", Status.RUNTIME_EXCEPTION),
    "a kill of itself": ("os.kill(os.getpid(), signal.SIGKILL)", Status.KILLED),
    "an exception": ("raise ValueError('no')", Status.RUNTIME_EXCEPTION),
    "40 GB at once": ("return torch.empty(10 << 30)", Status.OOM),
    "a shortage that a compiler reports": (
        "raise RuntimeError('while autotuning') from torch.OutOfMemoryError('no room')",
        Status.OOM,
    ),
    "garbage on its channel": (
        "[os.write(int(fd), b'x' * 4096) for fd in os.listdir('/proc/self/fd') if int(fd) > 2]",
        Status.HACK,
    ),
    "a closed channel": ("os.closerange(3, 4096); time.sleep(60)", Status.KILLED),
    "a written input": ("y = right(x); x.add_(1); return y", Status.MUTATED_INPUT),
    "its input as output": ("return x", Status.ALIASED),
    "a view of its input": ("return x.view(256, 64).view(64, 256)", Status.ALIASED),
    "a sparse output": ("return right(x).to_sparse()", Status.WRONG_TREE),
    "a number as output": ("return 1.0", Status.WRONG_TREE),
    "a tuple as output": ("return (right(x),)", Status.WRONG_TREE),
    "another dtype": ("return right(x).double()", Status.WRONG_DTYPE),
    "another shape": ("return right(x)[:32]", Status.WRONG_SHAPE),
    "a huge expanded output": (
        "return right(x)[0, 0].expand(1 << 20, 1 << 20)",
        Status.WRONG_SHAPE,
    ),
    "wrong values": ("return right(x) * 1.001", Status.WRONG_VALUE),
    "not a number": ("return right(x) / 0 * 0", Status.WRONG_VALUE),
    "values that depend on the call": (
        "self.n = getattr(self, 'n', 0) + 1; return right(x) if self.n % 9 else right(x) + 1",
        None,
    ),
    "one buffer for all calls": (
        "self.y = getattr(self, 'y', right(x)).copy_(right(x)); return self.y",
        Status.ALIASED,
    ),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_gets_its_status(worker, name):
    body, status = FAULTS[name]
    verdict = worker.evaluate(forward(body))
    assert verdict.status is not Status.CORRECT
    assert verdict.status is not Status.INFRA
    if status is not None:
        assert verdict.status is status, verdict.feedback
    assert not verdict.ratios
    assert len(verdict.feedback) <= 2000


UNSENDABLE = {
    "many texts": ("right(x), *('a' * 190 for _ in range(300_000))", "65535 characters"),
    "a number of thousands of digits": ("right(x), 10**5000", "output[1] is a number"),
    "a key of thousands of digits": ("{10**5000: right(x)}", "key without a text"),
    "a text that is no Unicode": ("{'\\ud800': right(x)}", "nested as {\\ud800:T}"),
    "a list that holds itself": ("ring(right(x))", "or holds itself"),
    "many tensors": ("[right(x)] * 300", "300 tensors, more than 256"),
    "many dimensions": ("right(x)[(None,) * 20]", "22 dimensions, more than 16"),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_an_outcome_that_no_message_holds_is_a_wrong_tree(worker, name):
    outcome, said = UNSENDABLE[name]
    ring = "def ring(y):\n    found = [y]\n    found.append(found)\n    return found"
    verdict = worker.evaluate(forward(f"return {outcome}", ring))
    assert verdict.status is Status.WRONG_TREE, verdict.feedback
    assert said in verdict.feedback


def test_an_output_of_a_tensor_subclass_is_refused(worker):
    before = "class Lazy(torch.Tensor):\n    pass"
    verdict = worker.evaluate(forward("return right(x).as_subclass(Lazy)", before))
    assert verdict.status is Status.WRONG_TREE


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("", Status.INVALID_INTERFACE),
        ("class ModelNew: pass", Status.INVALID_INTERFACE),
        ("ModelNew = '\ud800'", Status.INVALID_INTERFACE),
        ("ModelNew = 3", Status.INVALID_INTERFACE),
        ("class ModelNew(: pass", Status.COMPILE_ERROR),
        ("import torch.nn\nclass ModelNew(torch.nn.Module):\n    def __init__(self, a, b): pass",
         Status.INVALID_INTERFACE),
        ("ModelNew = undefined", Status.RUNTIME_EXCEPTION),
        ("import os; os._exit(3); ModelNew = 1", Status.KILLED),
    ],
)  # fmt: skip
def test_a_module_that_is_no_candidate_ends_before_it_is_run(worker, source, status):
    verdict = worker.evaluate(source)
    assert verdict.status is status, verdict.feedback
    assert verdict.stage < Stage.COMPILE


def test_a_compiler_error_reaches_the_feedback_with_its_line(worker):
    before = """
from tvm_ffi.cpp import load_inline
load_inline("bad", cpp_sources="int f() { return nothing; }")
"""
    verdict = worker.evaluate(forward("return x", before))
    assert verdict.status is Status.COMPILE_ERROR
    assert "nothing" in verdict.feedback
    assert 'load_inline("bad"' in verdict.feedback  # the lines of the source around it


def test_a_candidate_that_lacks_parameters_of_the_reference_is_told_which(worker):
    from evolve.core.task import Task

    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
    def forward(self, x):
        return x * self.weight
def get_inputs(): return [torch.randn(4, 8)]
def get_init_inputs(): return []
"""
    verdict = worker.evaluate(forward("return x * 1"), Task(name="scale", source=source))
    assert verdict.status is Status.INVALID_INTERFACE
    assert "weight" in verdict.feedback


HANG = """
for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(kind, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "body",
    [
        HANG,
        "while True:\n    os.fork()",
        "while True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
    ],
    ids=["a hang with children of its own session", "a fork bomb", "a thread bomb"],
)
def test_a_bomb_or_hang_is_killed_with_all_that_it_started(worker, body):
    before = family_of(worker.process.pid)
    verdict = worker.evaluate(forward(body))
    assert verdict.status in (Status.TIMEOUT, Status.OOM, Status.KILLED, Status.RUNTIME_EXCEPTION)
    time.sleep(0.2)
    assert alive(family_of(worker.process.pid) - before) == set()
    assert worker.evaluate(HONEST, fidelity="check").status is Status.CORRECT


def test_forged_results_on_standard_output_change_nothing(worker):
    forged = 'print(\'{"v": 1, "id": 1, "result": {"status": "correct"}}\', flush=True)'
    verdict = worker.evaluate(forward(f"{forged}\nos.write(1, b'PASS')\nreturn x * 0 + 3"))
    assert verdict.status is Status.WRONG_VALUE


def test_megabytes_of_output_neither_block_nor_fail_an_honest_candidate(worker):
    verdict = worker.evaluate(
        forward("return right(x)", "print('x' * (8 << 20))"), fidelity="check"
    )
    assert verdict.status is Status.CORRECT


def test_text_of_a_benign_error_does_not_make_a_fault_ours(worker):
    verdict = worker.evaluate(forward("raise RuntimeError('CUDA error: no such file; INFRA')"))
    assert verdict.status is Status.RUNTIME_EXCEPTION


def test_feedback_carries_no_terminal_escapes(worker):
    verdict = worker.evaluate(forward("raise ValueError('\\x1b[31mred\\x00')"))
    assert "\x1b" not in verdict.feedback
    assert "red" in verdict.feedback


def test_after_all_these_faults_the_zygotes_are_the_same_with_one_thread_each(worker):
    before = worker.ask("doctor")["zygotes"]
    assert {zygote["threads"] for zygote in before} == {1}
    assert worker.evaluate(HONEST, fidelity="check").status is Status.CORRECT
    assert worker.ask("doctor")["zygotes"] == before
