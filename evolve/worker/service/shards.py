"""The writing side of a batch's answers: shards that are only ever appended to."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.worker.service.batch_files import to_line

SHARD_BYTES = 8_000_000


class Shards:
    """A folder that this process alone writes to; every line is on the disk when `write` returns.

    Each start begins a shard of its own, so that nothing follows a line that a kill has torn.

    Raises:
        UsageError: the folder cannot be used, or another batch is writing to it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self._size = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{folder}: another batch is writing there; wait for it, or name another folder"
            ) from error
        except OSError as error:
            raise UsageError(f"{folder} cannot be written to: {error.strerror}") from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, beginning the next shard if this one would grow too large."""
        line = to_line(record).encode()
        if len(line) > SHARD_BYTES:  # only raw samples are ever that long
            line = to_line(_without_samples(record)).encode()
        if self._fd < 0 or self._size + len(line) > SHARD_BYTES:
            self._next()
        self._size += len(line)
        while line:
            line = line[os.write(self._fd, line) :]
        os.fsync(self._fd)

    def close(self) -> None:
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)

    def _next(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        numbers = [int(path.stem) for path in self._folder.glob("*.jsonl") if path.stem.isdigit()]
        path = self._folder / f"{max(numbers, default=0) + 1:04}.jsonl"
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        self._size = 0
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)  # the name too
        os.close(folder)


def _without_samples(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "result": {**record["result"], "samples": {}}}
