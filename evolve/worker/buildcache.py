"""In a runner: what a candidate builds is kept in its directory, or found there.

Runners that come after the one that compiled find the shared library of a C++ extension and need
neither ninja nor a compiler: `tvm_ffi.cpp.load_inline` and torch's are replaced to do so.
"""

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolve.core.digest import framed_digest


class BuildError(Exception):
    """The compiler or linker refused the candidate's source; the message is the compiler's."""


def install(source: str, directory: str | None, may_build: bool) -> None:
    """In a runner: have everything that `source` builds come from `directory`, or go there."""
    _keep_triton(Path(directory or "/nonexistent") / "triton", may_build)
    keep_libraries(source, directory, may_build)


def keep_libraries(source: str, directory: str | None, may_build: bool) -> None:
    """The same for C++ alone."""
    if "cpp_extension" in source:
        _keep_torch(directory, may_build)
    _keep_tvm_ffi(directory, may_build)


def _keep_triton(place: Path, may_build: bool) -> None:
    """Triton's own cache: written in the building process, a private copy in all others."""
    if may_build:
        place.mkdir(exist_ok=True)
    elif place.is_dir():
        place = private_copy(place)
    else:
        place = Path.cwd()
    os.environ["TRITON_CACHE_DIR"] = str(place)


def private_copy(place: Path) -> Path:
    """A copy of a cache in the process's own folder, where Triton finds its kernels again.

    It notes by whole paths which files make up a kernel, and compiles it anew where one is gone.
    """
    copy = Path(shutil.copytree(place, Path.cwd() / place.name, copy_function=shutil.copyfile))
    for group in copy.rglob("__grp__*.json"):
        # What is no such note is the candidate's own doing, and stays as it is.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            children = dict[str, str](json.loads(group.read_text())["child_paths"])
            here = {name: str(group.parent / name) for name in children}
            group.write_text(json.dumps({"child_paths": here}))
    return copy


def _keep_torch(directory: str | None, may_build: bool) -> None:
    """`torch.utils.cpp_extension.load_inline`, which else asks ninja about every old build."""
    from torch.utils import cpp_extension

    build = cpp_extension.load_inline

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        key = framed_digest(name, repr(arguments), repr(sorted(options.items())))[:24]
        place = Path(directory or tempfile.gettempdir()) / f"torch-{key}"
        if not may_build and (place / f"{name}.so").exists():
            return cpp_extension._import_module_from_library(name, str(place), True)
        if not may_build:  # an extension that is only built when forward runs
            place = Path(tempfile.mkdtemp())
        place.mkdir(exist_ok=True)
        try:
            return build(name, *arguments, **(options | {"build_directory": str(place)}))
        except RuntimeError as error:
            raise BuildError(first_errors(str(error))) from error

    cpp_extension.load_inline = functools.update_wrapper(load, build)


def _keep_tvm_ffi(directory: str | None, may_build: bool) -> None:
    try:
        import tvm_ffi.cpp
        from tvm_ffi.cpp import extension
    except ImportError:
        return
    load = functools.partial(_load_inline, extension.build_inline, directory, may_build)
    functools.update_wrapper(load, extension.load_inline)
    tvm_ffi.cpp.load_inline = extension.load_inline = load


def _load_inline(
    build: Callable[..., str],
    directory: str | None,
    may_build: bool,
    name: str,
    *,
    keep_module_alive: bool = True,
    build_directory: str | None = None,
    **options: Any,
) -> Any:
    import tvm_ffi

    key = framed_digest(name, *(f"{key}={options[key]!r}" for key in sorted(options)))[:24]
    place = Path(directory or tempfile.gettempdir()) / key
    library = place / f"{name}.so"
    if may_build or not library.exists():
        if not may_build:  # an extension that is only built when forward runs
            place = Path(tempfile.mkdtemp())
        place.mkdir(exist_ok=True)
        try:
            library = Path(build(name, build_directory=str(place), **options))
        except RuntimeError as error:
            raise BuildError(first_errors(str(error))) from error
    return tvm_ffi.load_module(str(library), keep_module_alive=keep_module_alive)


def first_errors(log: str, limit: int = 12) -> str:
    """The lines of a compiler's log that say what is wrong, each with the two lines after it."""
    lines = log.splitlines()
    kept: dict[int, None] = {}
    for number, line in enumerate(lines):
        if "error:" in line or "undefined reference" in line or "undefined symbol" in line:
            kept.update(dict.fromkeys(range(number, min(number + 3, len(lines)))))
    chosen = [lines[number] for number in kept] or lines[-limit:]
    return "\n".join(
        line.rpartition("/")[2] if "error:" in line else line for line in chosen[:limit]
    )
