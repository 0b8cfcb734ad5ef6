"""The zygote: imports, forks, nothing else.

Invariants:
- it has exactly one thread before, between and after forks, whatever its children do;
- a child can use all cores, so nothing in the zygote has spoilt OpenMP for it;
- its environment is an allow-list.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.languages.cpp import CPP
from evolve.languages.torch import TORCH
from evolve.worker.base import interpreter as zygote_start
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.base.interpreter import COMPILER, WITH_COMPILER, environment, start
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher
from tests.worker.serving import HONEST_CPP, forward
from tests.worker.sharing import shared


def test_it_has_one_thread_whatever_its_children_do(launcher):
    (zygote,) = launcher.zygotes()
    parallel = forward("return x", "torch.rand(512, 512) @ torch.rand(512, 512)")
    for _ in range(3):
        with launcher.start(CPP) as runner:
            runner.load("candidate", parallel, 20.0)
            assert zygote.threads() == 1
    assert zygote.threads() == 1


def test_a_child_can_compute_on_all_cores(launcher):
    arguments = shared({"init": [], "state": {}})
    inputs = shared([torch.rand(600, 600)])
    with launcher.start(CPP) as runner:
        runner.load("candidate", forward("return x @ x"), 20.0)
        runner.construct(0, 1, arguments, 20.0)
        runner.call(0, inputs, 20.0)
        threads = len(list(Path(f"/proc/{runner.pid}/task").iterdir()))
    assert threads >= CpuDevice().cores


def test_packages_of_any_folder_of_our_path_are_there_and_nothing_else_is(
    led, monkeypatch, tmp_path
):
    for name in ("installed", "lying_about"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").touch()
        monkeypatch.syspath_prepend(tmp_path / name)
    (tmp_path / "installed" / "installed-1.0.dist-info").mkdir()
    with led([]).start(CPP) as runner:
        runner.load("candidate", forward("return x", "import installed"), 20.0)
        with pytest.raises(CandidateFault, match="No module named 'lying_about'"):
            runner.load("candidate", forward("return x", "import lying_about"), 20.0)


@pytest.fixture
def led(monkeypatch, tmp_path):
    """A launcher whose zygote was started ahead, before its variables were known."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)

    def launcher_of(ahead):
        device = CpuDevice()
        device.variables = {**device.variables, "EVOLVE_TOLD_LATER": "yes"}
        opened.append(Launcher(device, "none", (), ahead=ahead))
        return opened[-1]

    opened = []
    yield launcher_of
    for launcher in opened:
        launcher.close()


def test_one_that_was_started_ahead_is_told_its_variables_later(led):
    ahead = start({})
    launcher = led([ahead])
    told = forward("return x", "import os; assert os.environ['EVOLVE_TOLD_LATER'] == 'yes'")
    with launcher.start(CPP) as runner:
        runner.load("candidate", told, 20.0)
    assert [zygote.pid for zygote in launcher.zygotes()] == [ahead.process.pid]


def test_one_that_died_ahead_is_replaced(led):
    ahead = start({})
    ahead.process.kill()
    ahead.process.wait()
    launcher = led([ahead])
    launcher.probe()
    assert launcher.zygotes()[0].pid != ahead.process.pid


HAS_COMPILER = forward("return x", "import sys; assert 'torch._inductor.lowering' in sys.modules")


@pytest.mark.slow
def test_what_compiles_comes_from_one_that_has_the_compiler_and_nothing_else_does(led):
    launcher = led([start({}), start(WITH_COMPILER)])
    with launcher.start(TORCH, compiles=True) as runner:
        runner.load("candidate", HAS_COMPILER, 20.0)
    with (
        launcher.start(TORCH) as runner,
        pytest.raises(CandidateFault, match="AssertionError"),
    ):
        runner.load("candidate", HAS_COMPILER, 20.0)
    assert [zygote.threads() for zygote in launcher.zygotes()] == [1, 1]


# As where torch sees a GPU: what is imported asks for one, and the answer takes a thread.
ASKS_FOR_A_GPU = """
import sys, threading, time, torch
class Asking:
    def find_spec(self, name, *_):
        if name == "torch._inductor.lowering": torch.cuda.is_available()
torch.cuda.is_available = lambda: threading.Thread(target=time.sleep, args=(60,)).start()
sys.meta_path.insert(0, Asking())
"""


@pytest.mark.slow  # for what has no compiler: `test_nothing_that_it_imports_asks_for_devices`
def test_importing_the_compiler_does_not_ask_for_a_gpu(led, monkeypatch, capsys):
    monkeypatch.setattr(zygote_start, "_START", zygote_start._START.replace(
        "from evolve.worker.runner.zygote", f"exec({ASKS_FOR_A_GPU!r}); "
        "from evolve.worker.runner.zygote"
    ))  # fmt: skip
    launcher = led([start({}), start(WITH_COMPILER)])
    with launcher.start(TORCH, compiles=True) as runner:
        runner.load("candidate", HAS_COMPILER, 60.0)
    assert not capsys.readouterr().err
    assert [zygote.threads() for zygote in launcher.zygotes()] == [1]


OPERATOR = HONEST_CPP.replace(
    "class ModelNew",
    """
@torch.library.custom_op("tests::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    kernels.relu(x, y)
    return y

class ModelNew""",
)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "is_there"), [
    pytest.param(HONEST_CPP, False, marks=pytest.mark.slow), (OPERATOR, True),
])  # fmt: skip
def test_what_torch_imports_for_the_first_call_of_an_operator_is_there_before(
    worker, source, is_there
):
    imported = f"import sys; assert ('torch._dynamo' in sys.modules) is {is_there}\n"
    verdict = worker.evaluate(imported + source, fidelity="check")
    assert verdict.status is Status.CORRECT, verdict.feedback


@pytest.mark.slow  # two processes import it
def test_where_no_zygote_can_have_the_compiler_each_process_imports_it_itself(
    led, monkeypatch, capsys
):
    dies = f"import os, sys; '{COMPILER}' in os.environ and sys.exit(1); "
    monkeypatch.setattr(zygote_start, "_START", dies + zygote_start._START)
    launcher = led([start({}), start(WITH_COMPILER)])
    for _ in range(2):
        with launcher.start(TORCH, compiles=True) as runner:
            runner.load("candidate", f"# custom_op\n{HAS_COMPILER}", 60.0)
    assert capsys.readouterr().err.count("cannot be kept imported here") == 1


@pytest.fixture
def importing(led):
    """A launcher, a thread that waits for its runner which compiles, and the zygote of that."""
    slow = start(WITH_COMPILER)
    os.kill(slow.process.pid, signal.SIGSTOP)  # as if it imported for long
    launcher = led([start({}), slow])
    with ThreadPoolExecutor(1) as pool:
        runner = pool.submit(launcher.start, TORCH, compiles=True)
        while not launcher.zygotes():
            time.sleep(0.01)
        yield launcher, runner, slow.process


@pytest.mark.slow
def test_one_that_still_imports_holds_up_nobody_else(importing):
    launcher, waiting, zygote = importing
    with launcher.start(TORCH) as runner:
        runner.load("candidate", forward("return x"), 20.0)
    assert not waiting.done()
    zygote.send_signal(signal.SIGCONT)
    with waiting.result(60) as runner:
        runner.load("candidate", HAS_COMPILER, 20.0)


def test_a_launcher_closes_while_one_still_imports(importing):
    launcher, waiting, zygote = importing
    launcher.close()
    assert zygote.returncode is not None
    with pytest.raises(InfraFault, match="shutting down"):
        waiting.result(20)


def test_one_that_nobody_took_over_ends_with_its_launcher():
    ahead = start({})
    launcher = Launcher(CpuDevice(), "none", (), ahead=[ahead])
    launcher.close()
    assert ahead.process.poll() is not None


def test_its_environment_is_an_allow_list(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HOME", "/home/somebody")
    given = environment({"TRITON_INTERPRET": "1"})
    assert "OPENAI_API_KEY" not in given
    assert given["HOME"] != "/home/somebody"
    assert given["OMP_WAIT_POLICY"] == "passive"
    assert given["TRITON_INTERPRET"] == "1"


@pytest.mark.slow
def test_nothing_that_it_imports_asks_for_devices(tmp_path):
    """The driver starts threads in who asks it, and a process with threads cannot fork."""
    code = (
        "import torch\n"
        "def asked(): raise SystemExit('the driver was asked for devices')\n"
        "torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = asked\n"
        "from evolve.worker.runner.zygote import _import_everything\n"
        "_import_everything()\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment({}), "PYTHONPATH": root, "TMPDIR": os.fspath(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.quiet
def test_a_runner_starts_in_less_than_a_third_of_a_second(launcher):
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        with launcher.start(CPP):
            taken.append(time.perf_counter() - start)
    assert min(taken) < 0.3


def test_no_runner_starts_after_the_launcher_was_closed():
    launcher = Launcher(CpuDevice(), "none", ())
    launcher.close()
    with pytest.raises(InfraFault):
        launcher.start(CPP)


class FullDevice(CpuDevice):
    """Refuses memory so many times, as a GPU that is full."""

    refusals = 0

    def connect(self, process, tensors=0):
        if self.refusals:
            self.refusals -= 1
            raise OSError(2, "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")
        super().connect(process, tensors)


def test_a_device_that_refuses_memory_costs_no_zygote():
    device = FullDevice()
    launcher = Launcher(device, "none", ())
    try:
        launcher.probe()
        (zygote,) = launcher.zygotes()
        device.refusals = 1
        launcher.start(CPP).close()
        device.refusals = 2
        with pytest.raises(InfraFault, match="OUT_OF_MEMORY"):
            launcher.start(CPP)
        assert launcher.zygotes() == [zygote]
        assert zygote.alive
    finally:
        launcher.close()
