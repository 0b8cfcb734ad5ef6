"""Builds of C++ extensions: made once per candidate, read-only afterwards.

The process that compiles builds into a folder of its own, `BUILD`. Once it has done so the judge
copies that folder; later changes there are lost. A build that failed is never copied. Processes
that come later find the shared library in the copy and need neither ninja nor a compiler. Inside a
runner `tvm_ffi.cpp.load_inline` is replaced to do so.
"""

import contextlib
import functools
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.core.digest import framed_digest

BUILD = "build"
"""Folder of a runner's own directory that the first process of a candidate builds into."""
HEADERS = "EVOLVE_HEADERS"
"""Variable of a runner's environment: where precompiled headers are (`headers`)."""

_DEEPEST, _MAX_ENTRIES, _MAX_BYTES = 8, 20_000, 256 << 20  # of a build: it is kept on disk
_PIECE = 1 << 20  # bytes that are copied at once


class BuildError(Exception):
    """The compiler or linker refused the candidate's source; the message is the compiler's."""


class BuildCache:
    """Directories of finished builds below `root`, one per key."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)

    def path(self, key: str) -> str:
        """The folder of a finished build."""
        return str(self._root / key)

    def finished(self, key: str) -> str | None:
        """The directory of a finished build."""
        path = self.path(key)
        return path if Path(path).is_dir() else None

    def keep(self, key: str, folder: int, name: str = BUILD) -> str:
        """Copy a build that ended well; the earlier of two equal builds stays.

        Args:
            key: Of the build.
            folder: Descriptor of the folder in which it lies; its processes may still change it.
            name: Of the folder of the build there.

        Returns:
            The path of the copy, which all users may read.

        Raises:
            BuildError: it is too large or too deep.
            OSError: the copy cannot be written.
        """
        final = self._root / key
        fresh = Path(tempfile.mkdtemp(prefix=f".{key[:16]}-", dir=self._root))
        try:
            fresh.chmod(0o755)
            _copy(folder, name, fresh, _Room())
            with contextlib.suppress(OSError):
                fresh.rename(final)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return str(final)


@dataclass(slots=True)
class _Room:
    """The limits that are left for a build."""

    entries: int = _MAX_ENTRIES
    size: int = _MAX_BYTES

    def take(self, entries: int = 0, size: int = 0) -> None:
        self.entries -= entries
        self.size -= size
        if min(self.entries, self.size) < 0:
            most = f"{_MAX_ENTRIES} files and folders or {_MAX_BYTES >> 20} MiB"
            raise BuildError(f"its build has more than {most}")


def _copy(folder: int, name: str, target: Path, room: _Room, depth: int = 0) -> None:
    """Plain files and folders below `name`, as they are met: no link is followed.

    Unreadable entries are left out. So is a name that occurs twice: it is being changed.
    """
    if depth > _DEEPEST:
        raise BuildError(f"its build has folders that are more than {_DEEPEST} deep")
    with contextlib.ExitStack() as ends:
        try:
            here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            ends.callback(os.close, here)
            found = ends.enter_context(os.scandir(here))
        except OSError:  # a program may remove it
            return
        for entry in found:  # as they come: there may be millions
            room.take(entries=1)
            place = target / entry.name
            if place.exists():
                continue
            if _is_folder(entry):
                place.mkdir()
                place.chmod(0o755)
                _copy(here, entry.name, place, room, depth + 1)
            else:
                _copy_file(here, entry.name, place, room)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def _copy_file(folder: int, name: str, target: Path, room: _Room) -> None:
    """Copy a file, if it is a plain one."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:  # a link, gone, or not to be read
        return
    with os.fdopen(source, "rb") as reading:
        about = os.fstat(source)
        if not stat.S_ISREG(about.st_mode):
            return
        room.take(size=about.st_size)
        with target.open("wb") as writing:
            left = about.st_size  # it may grow meanwhile, or shrink
            while data := reading.read(min(left, _PIECE)):
                left -= writing.write(data)
    target.chmod(0o555)


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
        place.mkdir(parents=True, exist_ok=True)
    elif place.is_dir():
        place = private_copy(place)
    else:
        place = Path.cwd()
    os.environ["TRITON_CACHE_DIR"] = str(place)


def private_copy(place: Path) -> Path:
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
