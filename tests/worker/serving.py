"""A worker as its clients see it: a process that answers JSON lines."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Evaluation
from evolve.core.task import Task

ROOT = Path(__file__).parents[2]
WIDE = 0.2
"""Half-width of intervals for tests that only need a time: a narrow one takes tens of seconds."""

RELU_TASK = Task(
    name="relu",
    source="""
import torch
from torch import nn

SECRET_WORD_OF_THE_TASK = 1

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + x

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
""",
)

HONEST_CPP = '''
import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* a = static_cast<const float*>(x.data_ptr());
  float* b = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = (a[i] > 0 ? a[i] * 2 : 0) + a[i];
}
"""
kernels = load_inline("relu", cpp_sources=CPP, functions="relu", extra_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.relu(x, y)
        return y
'''


def forward(body: str, before: str = "") -> str:
    """The source of a candidate whose forward is `body`; `right` computes the right outcome."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return f"""
import os, signal, sys, threading, time
import torch
from torch import nn

def right(x):
    return torch.relu(x) * 2 + x

{before}

class ModelNew(nn.Module):
    def forward(self, x):
{lines}
"""


# Of a body: whether it is timed shows in its callers (`"_run" in names`).
TIMED = """
frame, names = sys._getframe(), set()
while frame:
    names.add(frame.f_code.co_name)
    frame = frame.f_back
"""


# Where torch's packages are a folder of PYTHONPATH, as on a lent GPU, a worker needs it too.
_PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


class Worker:
    """Starts `python -m evolve.worker serve` and gives a future for every request."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # A temporary folder of its own also means a lock of its own: other tests do not wait.
        env = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": _PATH, **environment}
        folder.chmod(0o755)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "evolve.worker",
                "serve",
                "--cache",
                f"{folder}/cache",
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=folder,
        )
        self._waiting: dict[int | None, Future[dict[str, Any]]] = {}
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            reply = json.loads(line)
            waiting = [reply["id"]] if reply["id"] in self._waiting else list(self._waiting)
            for number in waiting:  # a reply to nobody says why the worker ends
                self._waiting.pop(number).set_result(reply)

    def send(self, method: str, **params: Any) -> "Future[dict[str, Any]]":
        self._number += 1
        request = {"v": 1, "id": self._number, "method": method, "params": params}
        return self.send_line(json.dumps(request), self._number)

    def send_line(self, line: str, id: int | None) -> "Future[dict[str, Any]]":  # noqa: A002
        """Send a line whose reply will carry this id."""
        future = self._waiting[id] = Future()
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return future

    def ask(self, method: str, **params: Any) -> Any:
        reply = self.send(method, **params).result(100)
        assert "result" in reply, reply
        return reply["result"]

    def evaluate(
        self, source: str, task: Task = RELU_TASK, fidelity: str = "screen", **params: Any
    ) -> Evaluation:
        return Evaluation.from_json(
            self.ask("evaluate", task=task.to_json(), source=source, fidelity=fidelity, **params)
        )

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(20)


def family_of(pid: int) -> set[int]:
    """The process and all that came from it, as far as they are its descendants now."""
    found, waiting = {pid}, [pid]
    while waiting:
        parent = waiting.pop()
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids = {int(word) for word in children.read_text().split()}
                waiting += pids
                found |= pids
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; one that has ended and only waits to be reaped does not."""
    return {pid for pid in pids if _state(pid) not in ("", "Z", "X")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
