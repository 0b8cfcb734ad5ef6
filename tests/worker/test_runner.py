"""Runners as the judge handles them: sealed inputs, outputs in custody, builds that are whole.

Invariants:
- a runner can write to its view of the inputs and nobody else sees it;
- the judge reads what lies in the runner's memory, whatever the runner says;
- a build that failed or was killed half-way is never used;
- processes that end together do not wait for each other, and none is left by what failed;
- where the end of a process disturbs the device, it waits until nothing is timed.
"""

import contextlib
import json
import os
import signal
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.languages.builds import first_errors
from evolve.languages.cpp import CPP
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.build.cache import BuildCache
from evolve.worker.devices import output_snapshot as custody
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc import tensor_buffer
from evolve.worker.ipc.memfd import map_privately
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.launcher import Launcher
from evolve.worker.processes.runner_process import RunnerProcess, close_all
from evolve.worker.sandbox.policy import Confinement
from tests.worker.launching import Borrowing
from tests.worker.serving import HONEST_CPP, forward
from tests.worker.sharing import shared


@pytest.fixture
def arguments():
    return shared({"init": [], "state": {}})


def loaded(launcher, source, arguments):
    runner = launcher.start(CPP)
    runner.load("candidate", source, 20.0)
    runner.construct(0, 1, arguments, 20.0)
    return runner


class Unwilling:
    """A zygote that forks nothing, or something that ends without a word."""

    def __init__(self, word):
        self._word = word
        self.theirs = []

    def fork(self, confinement):
        if self._word is None:
            raise ConnectionError("the zygote is gone")
        ours = []
        for word in (self._word, b""):
            mine, other = socket.socketpair()
            other.sendall(word)
            other.close()
            ours.append(mine)
        self.theirs = ours
        return tuple(ours)


@pytest.mark.parametrize("word", [None, b"", b"no message"])
def test_a_process_that_does_not_start_leaves_nothing_open(tmp_path, word):
    zygote = Unwilling(word)
    with pytest.raises((InfraFault, ConnectionError)):
        RunnerProcess(zygote, Confinement(work="", readable=()), tmp_path)
    assert not list(tmp_path.iterdir())
    assert all(one.fileno() < 0 for one in zygote.theirs)


def test_a_tree_comes_out_of_a_slab_as_it_went_in():
    x = torch.arange(12.0).view(3, 4)
    tree = [x, {"t": x.t(), "n": None}, (torch.tensor(True), torch.empty(0, 3)), 7, "word"]
    made = shared(tree, [x + 1])
    back = tensor_buffer.unpack(made.trees[0], map_privately(made.fd, made.size))
    assert back[3:] == [7, "word"]
    for mine, theirs in zip(tensors_of(tree), tensors_of(back), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
    assert back[0].data_ptr() == back[1]["t"].data_ptr()  # one storage stays one


def test_a_sealed_slab_cannot_be_changed_by_its_holder():
    made = shared([torch.zeros(4)])
    with pytest.raises(PermissionError):
        os.pwrite(made.fd, b"x", 0)
    mapped = map_privately(made.fd, made.size)
    mapped.fill_(1)
    assert not made.memory[:16].any()


def test_outputs_of_any_layout_are_taken_as_they_are(launcher, arguments):
    inputs = shared([torch.arange(24.0).view(4, 6)])
    x = torch.arange(24.0).view(4, 6)
    source = forward("return (x + 1).t(), {'b': x > 3, 'c': (x * 2)[1:, ::2]}, (x + 5).sum()")
    with loaded(launcher, source, arguments) as runner:
        output = runner.call(0, inputs, 10.0)
        taken = custody.take(CpuDevice(), runner, output, inputs)
    assert output.tree == b"(T,{b:T,c:T},T)"
    wanted = [(x + 1).t(), x > 3, (x * 2)[1:, ::2], (x + 5).sum()]
    for mine, theirs in zip(wanted, taken, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("address", [0, 8, 1 << 46, 2**64 - 4096])
def test_an_address_that_is_none_is_the_candidates_fault(launcher, arguments, address):
    at = TensorAt(torch.float32, (1024,), (1,), address)
    runner = loaded(launcher, forward("return x"), arguments)
    with runner, pytest.raises(CandidateFault) as caught:
        custody.read_all(CpuDevice(), runner, [address], custody.buffers_for(CpuDevice(), (at,)))
    assert caught.value.status is Status.WRONG_VALUE


def test_an_output_spread_over_far_more_memory_than_it_needs_is_refused():
    with pytest.raises(CandidateFault):
        custody.buffers_for(CpuDevice(), (TensorAt(torch.float32, (2,), (1 << 40,), 4096),))


def test_what_one_candidate_does_to_torch_the_next_does_not_see(launcher, arguments):
    inputs = shared([torch.ones(4)])
    broken = forward("return x", "torch.relu = None; torch.set_default_dtype(torch.float64)")
    with loaded(launcher, broken, arguments):
        pass
    with loaded(launcher, forward("return right(x)"), arguments) as runner:
        assert runner.call(0, inputs, 10.0).tensors[0].dtype is torch.float32


def test_a_finished_build_is_loaded_without_a_compiler(launcher, arguments, tmp_path):
    tmp_path.chmod(0o755)
    cache = BuildCache(tmp_path / "builds")
    with launcher.start(CPP) as runner:
        runner.load("candidate", HONEST_CPP, 60.0, may_build=True)
        final = cache.keep("key", runner.folder)
    without = "import os; os.environ['PATH'] = '/nowhere'\n"
    with launcher.start(CPP, (final,)) as runner:
        runner.load("candidate", without + HONEST_CPP, 20.0, final)
    assert cache.finished("key") == final


@pytest.mark.slow  # a finished build is loaded in the test above
def test_a_process_that_has_built_a_program_loads_it_again_without_a_compiler(launcher):
    without = "import os; os.environ['PATH'] = '/nowhere'\n"
    with launcher.start(CPP) as runner:
        runner.load("candidate", HONEST_CPP, 60.0, may_build=True)
        runner.load("candidate", without + HONEST_CPP, 20.0, "/a/copy/not/shown", stub=True)


def test_nothing_is_left_of_a_program_when_it_is_loaded_again(launcher, arguments):
    source = forward(
        "return right(x)",
        """
import builtins, weakref

class Table:
    pass

table, before = Table(), getattr(builtins, "before", lambda: None)
assert before() is None
builtins.before = weakref.ref(table)
""",
    )
    with loaded(launcher, source, arguments) as runner:
        runner.call(0, shared([torch.ones(4)]), 20.0)
        runner.load("candidate", source, 20.0, stub=True)


def test_nothing_is_left_of_a_model_when_it_is_made_again(launcher):
    """Of gigabytes of weights there would be no room for both."""
    source = """
import weakref
import torch

class ModelNew(torch.nn.Module):
    before = None

    def __init__(self):
        super().__init__()
        assert ModelNew.before is None or ModelNew.before() is None
        self.weight = torch.nn.Parameter(torch.ones(1000))
        ModelNew.before = weakref.ref(self.weight.untyped_storage())

    def forward(self, x):
        return x + self.weight[: len(x)]
"""
    arguments = shared({"init": [], "state": {"weight": torch.ones(1000)}})
    with loaded(launcher, source, arguments) as runner:
        runner.call(0, shared([torch.ones(4)]), 20.0)
        runner.construct(0, 1, arguments, 20.0)


def test_torchs_work_is_counted_in_one_call_and_not_that_on_its_inputs(launcher, arguments):
    """To make a sparse one takes work. The counters are there before the call has the device."""
    source = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, sparse, x):
        return torch.relu(x)
"""
    inputs = [torch.eye(4).to_sparse().coalesce(), torch.ones(4)]
    with loaded(launcher, source, arguments) as runner:
        runner.trap_torch(20.0)
        runner.call(0, shared(inputs), 20.0)
        assert [name for name, *_ in json.loads(runner.account(20.0))] == ["aten::relu"]
        runner.call(0, shared(inputs), 20.0)
        assert json.loads(runner.account(20.0)) == []


def test_what_a_process_writes_after_its_build_was_kept_is_not_in_the_copy(launcher, tmp_path):
    cache = BuildCache(tmp_path / "builds")
    with launcher.start(CPP) as runner:
        runner.load("candidate", forward("return x", "open('build/before', 'w')"), 20.0, None, True)
        kept = cache.keep("key", runner.folder)
        runner.load("candidate", forward("return x", "open('build/after', 'w')"), 20.0, None, True)
        assert [path.name for path in Path(kept).iterdir() if path.is_file()] == ["before"]
        cache.keep("other", runner.folder)
    assert sorted(path.name for path in Path(cache.path("other")).glob("[ab]*")) == [
        "after",
        "before",
    ]


def test_a_later_runner_cannot_write_to_a_finished_build(launcher, tmp_path):
    tmp_path.chmod(0o755)
    cache = BuildCache(tmp_path / "builds")
    with launcher.start(CPP) as runner:
        final = cache.keep("key", runner.folder)
    runner = launcher.start(CPP, (final,))
    with runner, pytest.raises(CandidateFault) as caught:
        runner.load("candidate", f"open('{final}/more', 'w')", 20.0)
    assert "Error" in caught.value.feedback


def test_a_compilers_log_is_reduced_to_its_errors():
    log = "[1/2] c++ -c a.cpp\n" * 50 + "/tmp/x/a.cpp:3:5: error: 'y' was not declared\n  y\n  ^\n"
    assert first_errors(log).startswith("a.cpp:3:5: error: 'y' was not declared")
    assert "[1/2]" not in first_errors(log)


def test_processes_end_side_by_side_and_the_dead_do_not_wait_again(launcher):
    together = threading.Barrier(2, timeout=20)

    @contextlib.contextmanager
    def ending():
        together.wait()
        yield

    runners = [launcher.start(CPP) for _ in range(2)]
    for runner in runners:
        runner.end_within(ending)
    close_all(runners)
    assert not any(runner.alive for runner in runners)
    assert not together.broken
    runners[0].close()  # would be alone at the barrier
    assert not together.broken


class BusyWithEnds(CpuDevice):
    """As a GPU, whose driver is busy for a while with the end of a process."""

    ends_alone = True
    preforked = 1

    def __init__(self) -> None:
        super().__init__()
        self.prepared = []

    def prepare(self, process, all_queues=False):
        self.prepared.append(process)


@pytest.fixture
def gpu_launcher(tmp_path, monkeypatch, launcher):
    """With the lock of its device."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    lock = HostLock("gpu")
    borrowing = Borrowing(launcher, BusyWithEnds(), lock=lock)
    yield borrowing, lock
    borrowing.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_dead", [False, True])
def test_no_process_ends_nor_is_its_memory_taken_back_while_another_is_timed(gpu_launcher, is_dead):
    launcher, lock = gpu_launcher
    runner, taken_back = launcher.start(CPP), []
    runner.on_close(lambda: taken_back.append(runner.alive))
    if is_dead:
        os.kill(runner.pid, signal.SIGKILL)
        with pytest.raises(CandidateFault):
            runner.drop(10.0)
    with ThreadPoolExecutor(1) as threads:
        with lock.exclusive():
            ended = threads.submit(runner.close)
            time.sleep(0.3)
            assert runner.alive != is_dead
            assert not ended.done()
            assert not taken_back
        ended.result(10)
    assert taken_back == [False]


def test_a_launcher_that_closes_waits_for_nobody_who_is_timed(gpu_launcher):
    launcher, lock = gpu_launcher
    launcher.start(CPP)
    launcher.start_prefork()
    prepared = launcher._device.prepared
    while len(prepared) < 2 or launcher._prefork._under_way:
        time.sleep(0.05)
    with lock.exclusive():
        launcher.close()
        assert len(prepared) == 2
        assert not any(process.alive for process in prepared)


class CannotBePrepared(CpuDevice):
    """As a GPU whose driver refuses another process."""

    preforked = 1

    def __init__(self) -> None:
        super().__init__()
        self.tried = []

    def prepare(self, process, overlaps=False):
        self.tried.append(process)
        raise OSError("no more")


@pytest.mark.slow
def test_a_spare_that_cannot_use_the_device_does_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    device = CannotBePrepared()
    launcher = Launcher(device, "none", ())
    try:
        launcher.start_prefork()
        deadline = time.monotonic() + 30
        while len(device.tried) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(device.tried) >= 2
        assert not device.tried[0].alive
    finally:
        launcher.close()
