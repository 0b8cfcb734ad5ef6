"""Builds of a candidate: failures of compilers, caches that are kept, and code for one GPU.

The program of a tool's process carries this file as text (`evolve.worker.runner.tool_process`), so
it imports the standard library only.
"""

import contextlib
import functools
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FOLDERS = re.compile(r"(?<=\s)/\S*/(?=\w+\.py:)")
_MAX_LINES = 16  # of a compiler's message


class BuildError(Exception):
    """The compiler or linker refused the candidate's source; the message is the compiler's."""


def plain(said: str) -> str:
    """A compiler's message without colours and folders, its first lines."""
    text = _FOLDERS.sub("", _COLOURS.sub("", said))
    return "\n".join([line for line in text.splitlines() if line.strip()][:_MAX_LINES])


def refusing(
    build: Callable[..., Any],
    refusals: tuple[type[Exception], ...],
    say: Callable[[Exception], str] = lambda error: plain(str(error)),
) -> Callable[..., Any]:
    """A compiler's function whose errors are those of a build.

    Args:
        build: the function.
        refusals: exceptions by which it refuses a source.
        say: the message for one of them.
    """

    def compile_function(*arguments: Any, **options: Any) -> Any:
        try:
            return build(*arguments, **options)
        except refusals as error:
            raise BuildError(say(error)) from error

    return functools.update_wrapper(compile_function, build)


def note_kernel(folder: Path, name: str, stage: str, code: bytes) -> None:
    """Keep a kernel's name and code in the folder of a build.

    Files are named as Triton's are, so that a profile is compared with both in one way.

    Args:
        folder: of the build.
        name: as a profile has it.
        stage: of the code: `ptx`; `cubin`, if its stack is spilled registers.
        code: of the kernel.
    """
    place = Path(tempfile.mkdtemp(prefix="kernel-", dir=folder))
    place.chmod(0o755)  # the judge, which reads it, may be another user
    (place / "kernel.json").write_text(json.dumps({"name": name}))
    (place / f"kernel.{stage}").write_bytes(code)


def first_errors(log: str, limit: int = 12) -> str:
    """The lines of a compiler's log with the error, each with the two lines after it."""
    lines = log.splitlines()
    kept: dict[int, None] = {}
    for number, line in enumerate(lines):
        if "error:" in line or "undefined reference" in line or "undefined symbol" in line:
            kept.update(dict.fromkeys(range(number, min(number + 3, len(lines)))))
    chosen = [lines[number] for number in kept] or lines[-limit:]
    return "\n".join(
        line.rpartition("/")[2] if "error:" in line else line for line in chosen[:limit]
    )


def kept_folder(name: str, folder: Path | str | None, may_build: bool) -> str:
    """A cache of a build: written in the building process, a private copy in all others.

    Without a build it is an empty folder of the process.
    """
    place = Path(folder or "/nonexistent") / name
    if not may_build and place.is_dir():
        return str(_private_copy(place))
    place = place if may_build else Path.cwd() / name
    place.mkdir(parents=True, exist_ok=True)
    return str(place)


def _private_copy(place: Path) -> Path:
    """A copy of a cache in the process's own folder, where Triton finds its kernels again.

    It notes by whole paths which files make up a kernel, and compiles it anew if one is gone.
    """
    own = Path.cwd() / place.name
    copy = shutil.copytree(place, own, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for group in copy.rglob("__grp__*.json"):
        # Any other file is the candidate's own, and stays unchanged.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            children = dict[str, str](json.loads(group.read_text())["child_paths"])
            here = {name: str(group.parent / name) for name in children}
            group.write_text(json.dumps({"child_paths": here}))
    return copy


def cubin_runs_on(wanted: str, capability: int) -> bool:
    """Whether code for an architecture, `90a` or `sm_90a`, runs on a GPU of a capability."""
    found = re.fullmatch(r"(?:sm_)?(\d{2,3})([a-z]?)", wanted, re.ASCII)
    if found is None:
        return False
    number, is_exact = int(found[1]), bool(found[2])
    same = number // 10 == capability // 10
    return same and (number == capability if is_exact else number <= capability)
