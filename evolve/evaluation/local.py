"""`device=cpu` and `device=cuda`: the client of workers on this machine, one for each device."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled, read_compiled
from evolve.core.devices import device_kind
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Stage, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation.place import Place
from evolve.evaluation.pool import Pool
from evolve.evaluation.process import CallFailed, CallOverdue, Deadlines, WorkerDied
from evolve.llm.secrets import is_secret_variable
from evolve.worker.sandbox.packages import package_folders

# The judge needs to find its libraries, compilers and caches; nothing else of the environment
# reaches it, so that no key or token of the user is within reach of what it starts.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CC", "CXX", "VIRTUAL_ENV")
PASSED_ON_PREFIXES = ("LD_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "TORCH", "TRITON_", "XDG_CACHE")

PACKAGE = Path(__file__).resolve().parents[1]


class LocalEvaluator:
    """Starts `python -m evolve.worker serve` for each device, and asks the workers in parallel.

    Use `LocalEvaluator.start(...)`; the constructor starts nothing, the first call does.

    Args:
        commands: the command line of each worker, by the name of its place.
        environment: all of their environment.
        deadlines: how long to wait for one (None: the defaults).
        slots: candidates under way at once at each (None: as many as it suggests).
        scratch: a folder that the workers need; removed by `close`.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        *,
        deadlines: Deadlines | None = None,
        slots: int | None = None,
        scratch: "tempfile.TemporaryDirectory[str] | None" = None,
    ) -> None:
        self._deadlines = deadlines or Deadlines()
        self._scratch = scratch
        self._pool = Pool(
            [
                Place(name, command, environment, self._deadlines, slots)
                for name, command in commands.items()
            ],
            _say,
        )

    @classmethod
    async def start(
        cls,
        *,
        device: str = "cpu",
        ids: Sequence[int] = (0,),
        slots: int | None = None,
        half_width: float | None = None,
        python: str | None = None,
        sandbox_require: str = "none",
        sandbox_read: Sequence[str] = (),
        cuda_include: Sequence[str] = (),
        cuda_flags: Sequence[str] = (),
        cache: Path | None = None,
        compiles: bool = False,
    ) -> "LocalEvaluator":
        """Started workers.

        Args:
            device: name of its kind (`evolve.core.devices`).
            ids: the GPUs, as torch counts them; each gets a worker and its share of the cores.
            slots: candidates under way at once on each device (None: as many as it suggests);
                compiling and checking overlap, timing does not.
            half_width: of an interval, relative, at which timing may stop (None: the device's own).
            python: another interpreter for judges and runners, with torch in it.
            sandbox_require: the weakest sandbox tier that is acceptable.
            sandbox_read: further paths that candidates may read.
            cuda_include: folders of headers for CUDA C++.
            cuda_flags: flags of nvcc, of those that are allowed.
            cache: folder for compiled candidates.
            compiles: whether it will be asked what the compiler makes of references.

        Raises:
            EvaluatorUnavailable: a worker does not come up.
            UsageError: the demanded device or sandbox tier is not to be had here.
        """
        options = ["--device", device, "--sandbox-require", sandbox_require]
        for path in sandbox_read:
            options += ["--read", path]
        options += [f"--cuda-include={Path(folder).absolute()}" for folder in cuda_include]
        options += [f"--cuda-flag={flag}" for flag in cuda_flags]
        if half_width is not None:
            options += ["--half-width", str(half_width)]
        if cache is not None:
            options += ["--cache", str(cache)]
        commands = {}
        for part, number in enumerate(ids):
            commands[f"{device_kind(device).title} {number}"] = [
                *(python or sys.executable, "-m", "evolve.worker", "serve", *options),
                *("--index", str(number), "--share", f"{part}/{len(ids)}"),
                *(["--compiles"] if compiles and part == 0 else []),  # the first one is asked first
            ]
        package_path, scratch = package_path_for(python)
        environment = worker_environment(package_path)
        evaluator = cls(commands, environment, slots=slots, scratch=scratch)
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(evaluator.close)
            await evaluator.up()
            on_failure.pop_all()
        return evaluator

    async def up(self) -> None:
        """Start all workers.

        Raises:
            EvaluatorUnavailable: one does not come up.
            UsageError: one refuses its options, or they are not of one kind.
        """
        await self._pool.up()

    @property
    def hello(self) -> Mapping[str, Any]:
        """A worker's facts about itself; empty before the first start."""
        return next((place.hello for place in self._pool.places if place.hello), {})

    @property
    def slots(self) -> int:
        return sum(place.slots for place in self._pool.in_service)

    @property
    def device_class(self) -> str:
        return str(self.hello["device_class"])

    @property
    def evaluator_version(self) -> str:
        return str(self.hello["evaluator_version"])

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict of a worker on one instance; INFRA where it twice came to none.

        Raises:
            UsageError: the task itself cannot be judged.
            EvaluatorUnavailable: no worker can be started, or the evaluator is closed.
        """
        params = {
            "task": _judged(request.task),
            "source": request.source,
            "fidelity": request.fidelity.value,
            "opponents": dict(request.opponents),
            "target_speedups": dict(request.target_speedups),
        }
        try:
            verdict = await self._call("evaluate", params, request.instance, request.task)
            return Evaluation.from_json(verdict)
        except CallFailed as failure:
            return Evaluation(
                status=Status.INFRA,
                stage=Stage.NONE,
                fidelity=request.fidelity,
                task_revision=request.task.revision,
                device_class=self.device_class,
                evaluator_version=self.evaluator_version,
                feedback=str(failure),
            )

    def phase_of(self, instance: str) -> str:
        """The phase of the evaluation of an instance; empty if no worker has said."""
        return next(filter(None, (place.phase_of(instance) for place in self._pool.places)), "")

    async def audit(self, task: Task) -> list[dict[str, str]]:
        """Null candidates that pass the task's own check; an empty list is a sound task.

        This is where a task's own code runs first. It is not asked twice: where nothing else is
        asked meanwhile, what ends or holds up the worker is the task.

        Raises:
            UsageError: the task file is bad, ends the process that loads it, takes too long, or
                needs more memory than the device has.
            EvaluatorUnavailable: the worker cannot be started, or fails by itself.
        """
        deadline_s = self._deadlines.audit_s
        params = {"task": _judged(task)}
        try:
            async with self._pool.place(task.revision) as place:
                findings: list[dict[str, str]] = await place.ask(
                    "audit", params, deadline_s, task.name
                )
        except WorkerDied as death:
            raise UsageError(
                f"task {task.name}: its file ended the process that loads it ({death}); take out "
                "what exits, or what needs more memory than there is"
            ) from death
        except CallOverdue as overdue:
            raise UsageError(
                f"task {task.name}: loading and auditing it took more than {deadline_s:g} s; take "
                "out what waits or computes when the file is loaded, or take a smaller size "
                "(SIZES in the file, task_config.size=tiny)"
            ) from overdue
        except CallFailed as failure:
            raise EvaluatorUnavailable(str(failure)) from failure
        return findings

    async def noise(self, task: Task) -> dict[str, Any]:
        """Reference time, noise floor and cost of one evaluation on this device."""
        result: dict[str, Any] = await self._ask("noise", {"task": _judged(task)}, task)
        return result

    async def compiled(self, task: Task, variants: Sequence[str]) -> dict[str, Compiled | str]:
        """The reference as PyTorch's compiler writes it, by variant, or the reason for none."""
        params = {"task": _judged(task), "variants": list(variants)}
        return read_compiled(await self._ask("compiled", params, task))

    async def doctor(self) -> dict[str, Any]:
        """Facts about device, compilers and sandbox."""
        result: dict[str, Any] = await self._ask("doctor", {})
        return result

    def abandon(self) -> None:
        """End the workers at once, for evaluations that were given up; the next call starts them.

        A request that is no longer awaited would otherwise go on, and keep the device busy.
        """
        for place in self._pool.places:
            place.kill("it was given up for want of time")

    async def close(self) -> None:
        """End the workers and all they started; calls under way raise EvaluatorUnavailable."""
        await self._pool.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    async def _ask(self, method: str, params: Mapping[str, Any], task: Task | None = None) -> Any:
        """A call whose failure has no other answer than an exception."""
        try:
            return await self._call(method, params, method, task)
        except CallFailed as failure:
            raise EvaluatorUnavailable(str(failure)) from failure

    async def _call(
        self, method: str, params: Mapping[str, Any], about: str, task: Task | None
    ) -> Any:
        revision = task.revision if task else ""
        return await self._pool.call(method, params, self._deadlines.call_s, about, revision)


def _say(line: str) -> None:
    print(f"evolve: {line}", file=sys.stderr, flush=True)


def worker_environment(package_path: str) -> dict[str, str]:
    """The environment of the worker: an allow-list, and the way to our package."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON
        or (name.startswith(PASSED_ON_PREFIXES) and not is_secret_variable(name))
    }
    environment["PYTHONPATH"] = package_path
    environment["PYTHONSAFEPATH"] = "1"  # a torch.py in the user's folder is not torch
    environment["OMP_WAIT_POLICY"] = "passive"  # spinning threads disturb the other side's time
    return environment


def package_path() -> str:
    """The path for an interpreter like this one: this package, and those that PYTHONPATH names.

    A folder of modules, such as the one we are in may be, is none of packages.
    """
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    packages = [path for path in package_folders() if path in named]
    return os.pathsep.join(dict.fromkeys([str(PACKAGE.parent), *packages]))


def package_path_for(
    python: str | None,
) -> "tuple[str, tempfile.TemporaryDirectory[str] | None]":
    """Where an interpreter finds our package, and the folder to remove afterwards.

    For another interpreter that is a folder with this package alone in it, so that none of
    our libraries shadow its own.
    """
    if python is None:
        return package_path(), None
    folder = tempfile.TemporaryDirectory(prefix="evolve-path-")
    (Path(folder.name) / PACKAGE.name).symlink_to(PACKAGE)
    return folder.name, folder


def _judged(task: Task) -> dict[str, Any]:
    """The judge's part of a task: seeds are the search's, and can be long."""
    return replace(task, seeds=(), compiled=()).to_json()
