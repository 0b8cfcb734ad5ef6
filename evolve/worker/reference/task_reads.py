"""Files that a task reads: only its own, or a verdict could be stale unnoticed."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.worker.reference.task_files import is_of_a_task

_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib64", "/opt/rocm", "/run")
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TVM_FFI_CACHE_DIR", "TORCH_HOME")
_active = threading.local()
_roots: list[Path] = []
_began: dict[str, float] = {}  # when a task's code first ran here


def watch(allowed: Sequence[str]) -> None:
    """From now on a task's code may read its own files, those of Python, and those `allowed`.

    For the judge's own process; a candidate's is confined. It cannot be undone.
    """
    home = Path.home() if os.environ.get("HOME") else Path("/nonexistent")
    named = [*_SYSTEM, sys.prefix, sys.base_prefix, *filter(None, sys.path), *allowed]
    named += [os.environ[name] for name in _CACHES if name in os.environ]
    named += [str(home / ".triton"), str(home / ".cache")]
    is_first = not _roots
    _roots[:] = list(dict.fromkeys([*_roots, *(Path(name).resolve() for name in named)]))
    if is_first:
        sys.addaudithook(_hook)


@contextmanager
def reading(task: str) -> Iterator[None]:
    """Inside, this thread runs the task's code."""
    before = getattr(_active, "task", "")
    _active.task = task
    _began.setdefault(task, time.time())
    try:
        yield
    finally:
        _active.task = before


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not getattr(_active, "task", ""):
        return
    name, mode, flags = arguments
    if not isinstance(name, str | bytes | os.PathLike) or _writes(mode, flags):
        return
    task, _active.task = _active.task, ""  # the lines below open files themselves
    try:
        path = Path(os.fsdecode(name)).resolve()
        if path.is_file() and not _is_known(path, task):
            raise UsageError(
                f"task {task}: it reads {path}, which is not part of the task: when that file "
                "changes, verdicts in a database would be of another task. Put it beside the task "
                "file and open it by Path(__file__).parent / NAME, or allow it by sandbox.read"
            )
    finally:
        _active.task = task


def _writes(mode: str | None, flags: int) -> bool:
    if mode is not None:
        return any(letter in mode for letter in "wxa")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _is_known(path: Path, task: str) -> bool:
    """Python's, the system's or allowed; in a task's folder; or made since the task's code ran."""
    if is_of_a_task(path) or any(path.is_relative_to(root) for root in _roots):
        return True
    return path.stat().st_ctime >= _began[task]
