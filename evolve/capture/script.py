"""Running a user's script in this process, as `python script.py` or `python -m module` does."""

import builtins
import importlib.machinery
import importlib.util
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from evolve.capture.binding import reporting

_OWN = f"{Path(__file__).parent.parent}/"
_CALLS = re.compile(  # at which the script goes on, or is read
    r"\b(run|original|script|_model|__new__|ast\.parse|compile)\("
)

_FRAMES = 3  # of a call of the script's: its own, and those of observers


class Failed(Exception):
    """The script left with another status than 0, or cannot be found; the message says which."""


def run_script(
    script: str,
    is_module: bool,
    words: Sequence[str],
    binder_of: Callable[[ModuleType], Callable[[str], None]],
) -> None:
    """Execute it as `__main__`; `binder_of` gives for that module what its names are reported to.

    Raises:
        Failed: see there.
        Exception: whatever the script raises, or what observes it (`fault_of`).
    """
    try:
        _execute(script, is_module, words, binder_of)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise Failed(f"ended with exit status {end.code}") from end


def fault_of(error: BaseException) -> tuple[str, bool]:
    """What to say of an exception that ended a run, and whether it is this package's.

    Prints the traceback of what is the script's, without frames of this package.
    """
    if isinstance(error, Failed):
        return str(error), False
    every = traceback.extract_tb(error.__traceback__)
    frames = [f for f in every if not _is_own(f)]
    head = ["Traceback (most recent call last):\n"] if frames else []
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    sys.stderr.writelines([*head, *lines])
    where, said = _place_and_message(error, frames)
    if at := _observer_at(every):
        return f"{type(error).__name__} at {at}: {said}", True
    return f"raised {type(error).__name__}{where}: {said}", False


def _place_and_message(
    error: BaseException, frames: list[traceback.FrameSummary]
) -> tuple[str, str]:
    """The line that raised, or that has the syntax error, and the first line of the message."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError) and Path(error.filename or "").is_file():
        return f" at line {error.lineno} of {error.filename}", error.msg
    if not frames:
        return "", said
    return f" at line {frames[-1].lineno} of {frames[-1].filename}", said


def _observer_at(frames: traceback.StackSummary) -> str:
    """The line of this package whose call raised; empty if the script's own code did."""
    last = next(f for f in reversed(frames) if _is_own(f))
    if last.filename == __file__ or _CALLS.search(last.line or ""):
        return ""
    return f"line {last.lineno} of {last.filename}"


def _execute(
    script: str,
    is_module: bool,
    words: Sequence[str],
    binder_of: Callable[[ModuleType], Callable[[str], None]],
) -> None:
    spec = _spec(script) if is_module else None
    path = str(spec.origin) if spec else str(Path.cwd() / script)
    sys.argv[:] = [path if is_module else script, *words]
    sys.path.insert(0, str(Path.cwd() if is_module else Path(path).resolve().parent))
    main = _main_module(path, spec)
    code = reporting(Path(path).read_bytes(), path, binder_of(main))
    sys.modules["__main__"] = main  # where pickles and data loaders look classes up
    linecache.checkcache(path)
    # Observers add up to two frames to each of the script's, whose recursion has its own limit.
    sys.setrecursionlimit(_FRAMES * sys.getrecursionlimit())
    exec(code, main.__dict__)


def _main_module(path: str, spec: importlib.machinery.ModuleSpec | None) -> ModuleType:
    """The module with the names that Python gives it."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __package__=spec.parent if spec else None,
        __loader__=spec.loader if spec else importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=spec,
        __annotations__={},
        __builtins__=builtins,
        __file__=path,
        __cached__=spec.cached if spec else None,
    )
    return main


def _spec(name: str) -> importlib.machinery.ModuleSpec:
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a package above it has imported something else
        raise Failed(f"cannot be found from {Path.cwd()}: no module named {error.name}") from error
    finally:
        sys.path.pop(0)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise Failed(f"is no module of Python text that can be found from {Path.cwd()}")
    return spec


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OWN)
