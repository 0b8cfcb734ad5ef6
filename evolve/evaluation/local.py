"""`device=cpu` and `device=cuda`: the client of workers on this machine, one for each device."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from evolve.core.devices import device_kind
from evolve.evaluation.pooled import PooledEvaluator, say
from evolve.llm.secrets import is_secret_variable
from evolve.worker.base.scratch import ScratchFolder
from evolve.worker.sandbox.packages import package_folders
from evolve.worker.service.dispatch.place import Deadlines, Place
from evolve.worker.service.dispatch.pool import Pool
from evolve.worker.service.dispatch.process import WorkerProcess

# The judge needs to find its libraries, compilers and caches; nothing else of the environment
# reaches it, so that no key or token of the user is within reach of what it starts.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CC", "CXX", "VIRTUAL_ENV")
PASSED_ON_PREFIXES = ("LD_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "TORCH", "TRITON_", "XDG_CACHE")

PACKAGE = Path(__file__).resolve().parents[1]


class LocalEvaluator(PooledEvaluator):
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
        scratch: ScratchFolder | None = None,
    ) -> None:
        self._scratch = scratch
        deadlines = deadlines or Deadlines()
        places = [
            Place(name, partial(WorkerProcess.spawn, command, environment), deadlines, slots)
            for name, command in commands.items()
        ]
        super().__init__(Pool(places, say), deadlines)

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
        options = worker_options(
            device=device,
            half_width=half_width,
            sandbox_require=sandbox_require,
            sandbox_read=sandbox_read,
            cuda_include=cuda_include,
            cuda_flags=cuda_flags,
            cache=cache,
        )
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

    async def close(self) -> None:
        """End the workers and all they started; calls under way raise EvaluatorUnavailable."""
        await super().close()
        if self._scratch is not None:
            self._scratch.close()


def worker_options(
    *,
    device: str,
    half_width: float | None,
    sandbox_require: str,
    sandbox_read: Sequence[str],
    cuda_include: Sequence[str],
    cuda_flags: Sequence[str],
    cache: Path | None = None,
) -> list[str]:
    """Words for `python -m evolve.worker serve`; `LocalEvaluator.start` says what each means."""
    options = ["--device", device, "--sandbox-require", sandbox_require]
    for path in sandbox_read:
        options += ["--read", path]
    options += [f"--cuda-include={Path(folder).absolute()}" for folder in cuda_include]
    options += [f"--cuda-flag={flag}" for flag in cuda_flags]
    if half_width is not None:
        options += ["--half-width", str(half_width)]
    if cache is not None:
        options += ["--cache", str(cache)]
    return options


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
) -> tuple[str, ScratchFolder | None]:
    """Where an interpreter finds our package, and the folder to remove afterwards.

    For another interpreter that is a folder with this package alone in it, so that none of
    our libraries shadow its own.
    """
    if python is None:
        return package_path(), None
    folder = ScratchFolder("path")
    (folder.path / PACKAGE.name).symlink_to(PACKAGE)
    return str(folder.path), folder
