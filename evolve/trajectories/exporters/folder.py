"""The folder of an export: built beside its place, and moved there whole."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.trajectories.exporters import card, manifest
from evolve.trajectories.exporters.manifest import Manifest
from evolve.trajectories.exporters.shards import write_atomically


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """The folder `FOLDER.partial`, locked; it may hold the output of a killed export.

    An export that is refused leaves none behind.

    Raises:
        UsageError: the export is there already, another process is writing it, or its place is
            where this process is.
    """
    if folder.resolve() == Path.cwd():
        raise UsageError(
            f"-o {folder} is where you are, and an export takes its place as a whole; name a "
            f"folder in it: -o {folder / 'export'}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"-o {folder} exists already; name another folder, or remove it")
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    lock = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"another process is writing {partial}; wait for it") from error
    try:
        yield partial
    finally:
        with suppress(OSError):  # rows of a stopped export are in it, or it is published
            partial.rmdir()
        os.close(lock)


def publish(partial: Path, folder: Path, made: Manifest, extras: Mapping[str, str]) -> None:
    """Write the description of the shards, and move everything to its place by one rename."""
    texts = {**extras, card.NAME: card.card(made), manifest.NAME: made.to_json()}
    for name, text in texts.items():
        write_atomically(partial / name, text)
    if folder.is_dir():
        folder.rmdir()  # empty, as `building` has seen
    partial.replace(folder)
