"""Builds of C++ extensions: made once per candidate, read-only afterwards.

The compile runner builds into an empty directory of the candidate's own. Only when that runner has
ended well does the referee give the directory its final name; a build that failed or was killed
half-way never gets one. Runners that come later find the shared library there and need neither
ninja nor a compiler. Inside a runner `tvm_ffi.cpp.load_inline` is replaced to do so.
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

HEADERS = "EVOLVE_HEADERS"
"""Variable of a runner's environment: where precompiled headers are (`headers`)."""


class BuildError(Exception):
    """The compiler or linker refused the candidate's source; the message is the compiler's."""


class BuildCache:
    """Directories of finished builds below `root`, one per key."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)

    def finished(self, key: str) -> str | None:
        """The directory of a finished build."""
        path = self._root / key
        return str(path) if path.is_dir() else None

    def begin(self, key: str) -> str:
        """A new empty directory to build in."""
        return tempfile.mkdtemp(prefix=f".{key[:16]}-", dir=self._root)

    def commit(self, key: str, directory: str) -> str:
        """Give a build that ended well its name; the earlier of two equal builds stays."""
        final = self._root / key
        _own(Path(directory))
        try:
            Path(directory).rename(final)
        except OSError:
            self.discard(directory)
        return str(final)

    def discard(self, directory: str) -> None:
        """Remove it, with folders in which a candidate has forbidden to write."""
        for folder, names, _ in os.walk(directory):
            for name in names:  # before they are walked
                with contextlib.suppress(OSError):
                    if not (below := Path(folder, name)).is_symlink():
                        below.chmod(0o700)
        shutil.rmtree(directory, ignore_errors=True)


def _own(directory: Path) -> None:
    """Take the files over from the runner's user; anybody may read them, nobody write."""
    uid, gid = os.getuid(), os.getgid()
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o555)


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
        flags = [f"-I{os.environ.get(HEADERS, '.')}", *(options.get("extra_cflags") or ())]
        options["extra_cflags"] = flags
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
