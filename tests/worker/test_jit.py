"""Kernels that are compiled while a candidate runs, and who has the device meanwhile.

Invariants:
- while a kernel is compiled another can have the device alone, and not before or after;
- in a process that is stopped then, no deadline comes nearer;
- where nobody wants to know, and in later calls, compiling says nothing;
- whatever a candidate does, the lock is held again afterwards.
"""

import contextlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.languages.cpp import CPP
from evolve.worker.base.faults import CandidateFault
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.runner import precompile
from tests.worker.serving import forward
from tests.worker.sharing import shared

pytest.importorskip("triton")

TIMES = """
import triton.compiler

def compile(seconds):
    time.sleep(seconds)
    return seconds

triton.compile = triton.compiler.compile = compile
"""
"""Compiling takes as long as is said."""

KERNELS = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

@triton.jit
def add_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""
"""A kernel for a GPU that is not there: compiled, never launched."""


class Lock:
    """Whoever has the device alone is let in whenever it is left."""

    def __init__(self):
        self._lock = HostLock("jit")
        self.alone = 0
        self.during = lambda: None

    def shared(self):
        return self._lock.shared()

    @contextlib.contextmanager
    def aside(self):
        with self._lock.let_go(), ThreadPoolExecutor(1) as other:
            other.submit(self._have_it_alone).result(20)
            yield

    def _have_it_alone(self):
        with self._lock.exclusive():
            self.alone += 1
            self.during()

    def keeps_others_out(self):
        """Whether nobody else can have it alone now."""
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(self._have_it_alone)
            with contextlib.suppress(TimeoutError):
                waiting.result(0.3)
            held = not waiting.done()
            with self._lock.let_go():
                waiting.result(20)
            return held


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Lock()


@pytest.fixture
def runner(launcher):
    @contextlib.contextmanager
    def started(body, before=TIMES):
        with launcher.start(CPP) as runner:
            runner.load("candidate", forward(body, before), 20.0)
            runner.construct(0, 1, shared({"init": [], "state": {}}), 20.0)
            yield runner

    return started


INPUTS = [torch.ones(4)]


@pytest.mark.slow
def test_while_a_kernel_is_compiled_another_can_have_the_device_alone(runner, lock, tmp_path):
    body = "\n".join(
        (
            "triton.runtime.driver.set_active(Driver())",
            "self.calls = getattr(self, 'calls', 0) + 1",
            "for block in (128 * self.calls, 512 * self.calls):",
            "    for _ in range(2):",
            "        add_kernel.warmup(torch.float32, torch.float32, 64, BLOCK=block, grid=(1,))",
            "return right(x)",
        )
    )
    with runner(body, KERNELS) as started, lock.shared():
        output = started.call(0, shared(INPUTS), 60.0, aside=lock.aside)
        assert output.tensors[0].shape == (4,)
        assert lock.alone == 2  # what is compiled already is not compiled again
        assert lock.keeps_others_out()
        lock.alone = 0
        started.call(0, shared(INPUTS), 60.0, aside=lock.aside)  # the same kernel, other blocks
        assert lock.alone == 2


MANY = "\n".join(
    (
        "triton.runtime.driver.set_active(Driver())",
        "y = torch.empty_like(x, dtype=torch.int64)",
        "for block in range(4, 12):",
        "    add_kernel.warmup(torch.float32, torch.float32, 64, BLOCK=1 << block, grid=(1,))",
        "{}",
        "self.seen = getattr(self, 'seen', 0) + 1",
        "SEEN.append(1)",
        "assert (self.seen, len(SEEN)) == (1, 1)",
        "return right(x)",
    )
)
MANY_KERNELS = f"SEEN = []\n{KERNELS}{''.join('# @triton.jit' for _ in range(precompile.KERNELS))}"


# No quick test has all kernels of a program compiled before their launch; the next has a part of
# them.
@pytest.mark.slow
def test_kernels_of_a_large_program_are_compiled_at_once(runner, lock):
    """While others have the device once; the model and its module have not been called before."""
    with runner(MANY.format("y + 1"), MANY_KERNELS) as started, lock.shared():
        started.call(0, shared(INPUTS), 60.0, aside=lock.aside)
        assert lock.alone == 1
        assert len(list(Path(f"/proc/{started.pid}/cwd/").glob("**/add_kernel.cubin"))) == 8


def test_where_a_large_program_asks_for_values_the_rest_is_compiled_when_it_is_launched(
    runner, lock
):
    later = (
        "y.sum().item()\nadd_kernel.warmup(torch.float32, torch.float32, 64, BLOCK=2, grid=(1,))"
    )
    with runner(MANY.format(later), MANY_KERNELS) as started, lock.shared():
        started.call(0, shared(INPUTS), 60.0, aside=lock.aside)
        assert lock.alone == 1 + 8 + 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "later",
    ["while not y.numpy().any(): y.sum().item()", "add_kernel.warmup(*WANTED).metadata.shared"],
    ids=["a loop until a value comes", "what Triton says of a kernel"],
)
def test_a_large_program_that_waits_for_what_was_not_computed_is_not_kept_waiting(runner, later):
    before = f"{MANY_KERNELS}\nWANTED = torch.float32, torch.float32, 64, 32\n"
    body = MANY.format("if not SEEN: y[0] = 1\n" + later.replace("*WANTED", "*WANTED, grid=(1,)"))
    with runner(body, before) as started:
        started.call(0, shared(INPUTS), 60.0, aside=contextlib.nullcontext)


def test_kernels_that_a_program_shares_with_itself_are_there_afterwards(runner):
    shares = "sys.modules.setdefault('shared_kernels', types.SimpleNamespace(add=add_kernel))"
    body = MANY.format("").replace("add_kernel.", "sys.modules['shared_kernels'].add.")
    body = body.replace(".warmup(", ".warmup(").replace("grid=(1,))", "grid=(1,)).metadata.shared")
    with runner(body, f"import sys, types\n{MANY_KERNELS}\n{shares}") as started:
        started.call(0, shared(INPUTS), 60.0, aside=contextlib.nullcontext)


def test_a_program_that_tunes_itself_is_not_called_in_vain():
    assert precompile.is_worth_it(MANY_KERNELS)
    assert not precompile.is_worth_it(f"{MANY_KERNELS}\n@triton.autotune(configs=[])")


@pytest.mark.slow
def test_while_a_process_stands_no_deadline_comes_nearer(runner, lock):
    with runner("triton.compiler.compile(0.5)\nreturn right(x)") as started, lock.shared():

        def stop():
            started.freeze()
            time.sleep(2.5)
            started.thaw()

        @contextlib.contextmanager
        def aside():
            with lock.aside(), ThreadPoolExecutor(1) as other:
                stopping = other.submit(stop)
                yield
                stopping.result()

        started.call(0, shared(INPUTS), 2.0, aside=aside)


def test_compiling_itself_has_a_deadline(runner, lock):
    with runner("triton.compiler.compile(20)\nreturn right(x)") as started, lock.shared():
        with pytest.raises(CandidateFault, match="longer than 1 s") as caught:
            started.call(0, shared(INPUTS), 1.0, aside=lock.aside)
        assert caught.value.status is Status.TIMEOUT
        assert lock.keeps_others_out()


def test_who_talks_without_listening_has_no_more_time_than_others(runner, lock):
    """It says that it compiles until nobody can answer, and listens when its time is nearly up."""
    body = """
from evolve.worker.ipc import messages
frame = sys._getframe()
while "channel" not in frame.f_locals:
    frame = frame.f_back
channel = frame.f_locals["channel"]
channel.setblocking(False)
began = time.monotonic()
while time.monotonic() - began < 8:
    filling = time.monotonic()
    with contextlib.suppress(BlockingIOError):
        while time.monotonic() - filling < 0.8:
            messages.send_aside(channel)
            messages._send(channel, messages.Reply.BACK, b"")
            time.sleep(0.0005)
    time.sleep(max(0.8 - (time.monotonic() - filling), 0))
    with contextlib.suppress(BlockingIOError):
        while channel.recv(4096):
            pass
channel.setblocking(True)
return right(x)
"""
    with runner(body, "import contextlib, sys, time") as started, lock.shared():
        began = time.monotonic()
        with pytest.raises(CandidateFault, match="longer than 1 s") as caught:
            started.call(0, shared(INPUTS), 1.0, aside=contextlib.nullcontext)
        assert caught.value.status is Status.TIMEOUT
        assert time.monotonic() - began < 4


def test_what_the_compiler_of_pytorch_compiles_is_told_of_too(runner, lock):
    with runner("import triton\ntriton.compile(0.2)\nreturn right(x)") as started, lock.shared():
        started.call(0, shared(INPUTS), 10.0, aside=lock.aside)
        assert lock.alone == 1


def test_what_ends_while_it_compiles_leaves_the_lock_as_it_was(runner, lock):
    before = TIMES.replace("time.sleep(seconds)", "os._exit(3)")
    with runner("triton.compiler.compile(0)\nreturn right(x)", before) as started, lock.shared():
        with pytest.raises(CandidateFault):
            started.call(0, shared(INPUTS), 10.0, aside=lock.aside)
        assert lock.keeps_others_out()


def test_a_kernel_that_does_not_compile_says_so(runner, lock):
    before = TIMES.replace("time.sleep(seconds)", "raise ValueError('no such operation')")
    with runner("triton.compiler.compile(0)\nreturn right(x)", before) as started, lock.shared():
        with pytest.raises(CandidateFault, match="no such operation"):
            started.call(0, shared(INPUTS), 10.0, aside=lock.aside)
        assert lock.alone == 1


@pytest.mark.parametrize(
    "compiling",
    [
        "kept = getattr(self, 'kept', triton.compiler.compile)\nself.kept = kept\nkept(0)",
        "t = threading.Thread(target=triton.compiler.compile, args=(0,))\nt.start()\nt.join()",
        "os.fork() or os._exit(triton.compiler.compile(0))\nassert not os.wait()[1]",
    ],
    ids=["a function kept from an earlier call", "another thread", "a child"],
)
def test_who_may_not_leave_says_nothing(runner, lock, compiling):
    with runner(f"{compiling}\nreturn right(x)") as started, lock.shared():
        started.call(0, shared(INPUTS), 10.0, aside=lock.aside)
        first = lock.alone
        started.call(0, shared(INPUTS), 10.0)
        assert first == lock.alone == ("kept" in compiling)


def test_what_is_compiled_for_a_kernel_that_is_compiled_is_part_of_it(runner, lock):
    before = TIMES.replace("time.sleep(seconds)", "seconds and triton.compiler.compile(0)")
    with runner("triton.compiler.compile(1)\nreturn right(x)", before) as started, lock.shared():
        started.call(0, shared(INPUTS), 10.0, aside=lock.aside)
        assert lock.alone == 1


def test_who_leaves_unasked_is_refused(runner, lock):
    body = """
from evolve.worker.ipc import messages
frame = sys._getframe()
while "channel" not in frame.f_locals:
    frame = frame.f_back
messages.send_aside(frame.f_locals["channel"])
return right(x)
"""
    with runner(body) as started, pytest.raises(CandidateFault) as caught:
        started.call(0, shared(INPUTS), 10.0)
    assert caught.value.status is Status.HACK
