"""Builds of candidates: made once for each, read-only afterwards.

The runner that compiles builds into an empty directory of the candidate's own. Once it is right at
a first call, and before it sees anything that decides, the referee copies that directory; a build
that failed or was killed half-way is never kept. What a runner makes of the copy is told in
`buildcache`.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from evolve.worker import leavings

_PIECE = 1 << 20


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

    def keep(self, key: str, directory: str) -> str:
        """A copy of what a build has come to; the earlier of two equal builds stays.

        Whoever built it may go on writing to its own.
        """
        final, copy = self._root / key, Path(self.begin(key))
        try:
            _copy(Path(directory), copy)
            copy.rename(final)
        except OSError:
            self.discard(str(copy))
            if not final.is_dir():
                raise
        return str(final)

    def discard(self, directory: str) -> None:
        shutil.rmtree(directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Files and folders, ours from now on: anybody may read them, nobody write.

    The owner of the source may change it meanwhile. So nothing is opened that is no file, of a file
    no more is read than it has then, and what cannot be read is left out. How much there may be is
    limited where it is written (`leavings`).
    """
    folders = [(source, target, 0)]
    while folders:
        here, there, depth = folders.pop()
        for entry in _entries(here):
            copied = there / entry.name
            if entry.is_dir(follow_symlinks=False) and depth < leavings.DEEPEST:
                copied.mkdir()
                folders.append((Path(entry.path), copied, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.path, copied)
        there.chmod(0o755)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _copy_file(source: str, target: Path) -> None:
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with open(fd, "rb") as file, target.open("wb") as copy:  # noqa: PTH123 (a descriptor)
        facts = os.fstat(fd)
        size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            copy.write(piece)
            size -= len(piece)
    target.chmod(0o555)
