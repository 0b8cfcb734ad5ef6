"""Builds of C++ extensions: made once per candidate, read-only afterwards.

The process that compiles builds into a folder of its own, `BUILD`. Once it has done so the judge
copies that folder; later changes there are lost. A build that failed is never copied. Processes
that come later find the shared library in the copy and need neither ninja nor a compiler: inside a
runner each language's compiler and cache are made to do so (`install`).
"""

import contextlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from evolve.languages.builds import BuildError
from evolve.languages.registry import languages

BUILD = "build"
"""Folder of a runner's own directory that the first process of a candidate builds into."""

_DEEPEST, _MAX_ENTRIES, _MAX_BYTES = 8, 20_000, 256 << 20  # of a build: it is kept on disk
_PIECE = 1 << 20  # bytes that are copied at once


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
    known = languages().values()
    for one in known:
        os.environ.update(one.caches(Path(directory) if directory else None, may_build))
    for keep in dict.fromkeys(one.keep_builds for one in known if one.keep_builds):
        keep(source, directory, may_build)
