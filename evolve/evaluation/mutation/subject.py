"""One mutant in a process of its own, forked so that it need not import torch and harms no other.

Mutants are trusted code with a mistake in it: the process is no sandbox, it only bounds time and
memory and takes a crash with it.
"""

import contextlib
import io
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL, SIGXCPU
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from evolve.worker.base.scratch import ScratchFolder
from evolve.worker.build import cache
from evolve.worker.correctness.cases import LoadedCase
from evolve.worker.ipc.pytree import flatten, map_tensors
from evolve.worker.sandbox import syscalls

CPU_S = 20  # of one call; time of its own, so that on a busy host no program looks hung
WALL_S = 60.0  # of one call, for what waits without working
MEMORY = 12 << 30  # bytes of address space

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The call of a mutant: a case by its number, seeds of its model and of its inputs."""

    case: int
    model_seed: int
    seed: int
    family: str


@dataclass(frozen=True, slots=True)
class Outputs:
    """The tensors that a call gave, on the CPU, and their nesting."""

    tensors: list[Tensor]
    spec: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that gave nothing: `raised`, `died` (a signal, an exit) or `hung`."""

    how: str
    detail: str = ""


class Subject:
    """Runs a source on inputs; a fresh process after each that died or hung.

    Args:
        source: text of a module with `ModelNew`.
        build: folder with its finished build, None to build where it is needed.
        cases: of the task.
        device: where tensors live in the forked process.
    """

    def __init__(
        self, source: str, build: str | None, cases: Sequence[LoadedCase], device: str
    ) -> None:
        self._scratch = ScratchFolder("oracle")
        self._serve: Callable[[Connection], None] = _Served(
            source, build, cases, device, self._scratch.path
        ).serve
        self._process: Any = None
        self._channel: Any = None

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._scratch.close()

    def call(self, inputs: Inputs) -> Outputs | Fault:
        """One call on freshly made inputs."""
        if self._process is None:
            self._start()
        try:
            self._channel.send(inputs)
            if not self._channel.poll(WALL_S):
                self._end()
                return Fault("hung", f"no answer in {WALL_S:g} s")
            data = self._channel.recv_bytes()
        except (EOFError, OSError):
            return self._died()
        answer = torch.load(io.BytesIO(data), weights_only=True)
        if isinstance(answer, str):
            return Fault("raised", answer)
        return Outputs(*answer)

    def _start(self) -> None:
        ours, theirs = _fork.Pipe()
        self._process = _fork.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._channel = ours

    def _died(self) -> Fault:
        self._process.join(5)
        code = self._process.exitcode
        self._end()
        if code is not None and -code in (SIGKILL, SIGXCPU):
            return Fault("hung", f"more than {CPU_S} s of CPU time")
        return Fault("died", f"exit code {code}")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._channel.close()
            self._process = self._channel = None


@dataclass(frozen=True)
class _Served:
    """The work of the forked process."""

    source: str
    build: str | None
    cases: Sequence[LoadedCase]
    device: str
    folder: Path

    def serve(self, channel: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            self._prepare()
            module: Any = None
            models: dict[tuple[int, int], torch.nn.Module] = {}
            while True:
                inputs = channel.recv()
                buffer = io.BytesIO()
                try:
                    module = module or self._execute()
                    _limit_cpu()
                    torch.save(self._outputs(module, models, inputs), buffer)
                except BaseException as error:  # noqa: BLE001 - the boundary around a mutant
                    buffer = io.BytesIO()
                    torch.save(f"{type(error).__name__}: {error}"[:300], buffer)
                channel.send_bytes(buffer.getvalue())

    def _prepare(self) -> None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, SIGKILL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.chdir(self.folder)
        tempfile.tempdir = str(self.folder)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.device == "cpu":
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        cache.install(self.source, self.build, False)

    def _execute(self) -> ModuleType:
        path = self.folder / "mutant.py"  # Triton reads the text of kernels from their file
        path.write_text(self.source)
        module = ModuleType("mutant")
        module.__file__ = str(path)
        sys.modules["mutant"] = module
        exec(compile(self.source, str(path), "exec"), module.__dict__)
        return module

    def _outputs(
        self, module: ModuleType, models: dict[Any, torch.nn.Module], asked: Inputs
    ) -> tuple[list[Tensor], str]:
        case = self.cases[asked.case]
        model = models.get((asked.case, asked.model_seed))
        if model is None:
            model = self._model(module, case, asked.model_seed)
            models[asked.case, asked.model_seed] = model
        inputs = map_tensors(lambda t: t.to(self.device), case.inputs(asked.seed, asked.family))
        with torch.no_grad():
            tensors, spec = flatten(model(*inputs))
        return [tensor.detach().cpu().contiguous() for tensor in tensors], spec

    def _model(self, module: ModuleType, case: LoadedCase, seed: int) -> torch.nn.Module:
        state = case.model(seed).state_dict()
        model: torch.nn.Module = module.ModelNew(*case.init_inputs(seed))
        floating = {value.dtype for value in state.values() if value.is_floating_point()}
        if len(floating) == 1:
            model.to(floating.pop())
        model.load_state_dict(state, strict=False)
        return model.eval().requires_grad_(False).to(self.device)


def _limit_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + CPU_S + 1
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
