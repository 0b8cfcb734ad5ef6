"""Notices that the file of a database was taken away, or written to by something else.

SQLite itself goes on: with a file that has no name any more, or with whatever is in it now.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolve.core.errors import EvolveError
from evolve.store.database.schema import APPLICATION_ID

RECHECKED_S = 2.0  # a file that looks wrong is looked at for so long: VACUUM moves what is in it
_MAGIC = b"SQLite format 3\0"
_INTERIOR = bytes([5])  # how a page begins that only refers to others

Identity = tuple[int, int]  # device and inode

# A process loses its locks on a file when it closes any descriptor of it, so one that was opened
# here is closed with the last database of this process on that file.
_users: Counter[Identity] = Counter()
_descriptors: dict[Identity, int] = {}


class TakenAway(Exception):
    """There is no file at the path any more, or another one; SQLite still has the old one open."""


class Overwritten(Exception):
    """The file is cut off, or holds something else."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the file by its number, from 1, and its size in bytes."""

    number: int
    size: int

    def read(self, descriptor: int) -> bytes:
        return os.pread(descriptor, self.size, (self.number - 1) * self.size)


class Watch:
    """Invariants of a file while this process continues a run in it.

    Args:
        path: where it is.
        mark: bytes that this file holds from now on, and no other.
        find: the first page of the table that holds the mark; None if SQLite does not find the
            mark there any more.
    """

    def __init__(self, path: Path, mark: bytes, find: Callable[[], Page | None]) -> None:
        log = path.with_name(path.name + "-wal")
        self._identities = {name: _identity(name) for name in (path, log) if name.exists()}
        self._file = _descriptor(path)
        self._find = find
        self._pages = {page for page in [find()] if page}
        self._mark = mark
        self._size = 0
        if not self._holds_mark():  # its table is longer than a page
            self._mark = b""

    def check(self) -> None:
        """Raise TakenAway or Overwritten."""
        if any(_differs(name, known) for name, known in self._identities.items()):
            raise TakenAway
        deadline = time.monotonic() + RECHECKED_S
        while not self._is_whole():
            if time.monotonic() > deadline:
                raise Overwritten
            self._look_again()
            time.sleep(0.1)

    def _look_again(self) -> None:
        """Ask SQLite where the mark is; what is damaged cannot tell."""
        with suppress(EvolveError):
            page = self._find()
            if page is None:
                self._mark = b""
            else:
                self._pages.add(page)

    def _is_whole(self) -> bool:
        head, size = os.pread(self._file, 100, 0), os.fstat(self._file).st_size
        is_ours = head[:16] == _MAGIC and head[68:72] == APPLICATION_ID.to_bytes(4)
        # A checkpoint says first that the file is longer, and then makes it longer.
        is_cut_off = size < self._size and size < _said_size(head)
        if not is_ours or is_cut_off or not self._holds_mark():
            return False
        self._size = size
        return True

    def _holds_mark(self) -> bool:
        pages = [page.read(self._file) for page in self._pages]
        return not self._mark or any(self._mark in page or page[:1] == _INTERIOR for page in pages)


def _said_size(head: bytes) -> int:
    """The size of the file in bytes, as its first page says; 1 stands for pages of 65,536."""
    size = int.from_bytes(head[16:18])
    return int.from_bytes(head[28:32]) * (65_536 if size == 1 else size)


def opened(path: Path) -> Identity | None:
    """Count a database of this process on the file, if there is one; `closed` has to follow."""
    if not path.exists():
        return None
    identity = _identity(path)
    _users[identity] += 1
    return identity


def closed(identity: Identity | None) -> None:
    """The connections of a database are closed."""
    if identity is None:
        return
    _users[identity] -= 1
    if not _users[identity]:
        del _users[identity]
        if identity in _descriptors:
            os.close(_descriptors.pop(identity))


def _descriptor(path: Path) -> int:
    identity = _identity(path)
    if identity not in _descriptors:
        _descriptors[identity] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return _descriptors[identity]


def _identity(path: Path) -> Identity:
    found = path.stat()
    return found.st_dev, found.st_ino


def _differs(path: Path, identity: Identity) -> bool:
    try:
        return _identity(path) != identity
    except OSError:
        return True


def rescue_places(path: Path) -> Iterator[Path]:
    """Free paths for a copy of a database that was taken away, the best first."""
    for folder in (path.parent, Path.cwd(), Path(tempfile.gettempdir())):
        names = (f"{path.stem}.rescued{number or ''}{path.suffix}" for number in range(100))
        if folder.is_dir():
            yield next(folder / name for name in names if not (folder / name).exists())
