"""Files that a candidate leaves in its writable directories: bounded, and removed whole."""

import contextlib
import itertools
import os
import secrets
from pathlib import Path

MAX_ENTRIES = 20_000
_DEEPEST = 32


def excessive(directory: str, most_bytes: int) -> bool:
    """Whether the directory holds too many bytes or entries, or is nested too deeply.

    Depth matters because a tree may be copied or removed recursively later.
    """
    size = entries = 0
    waiting = [(directory, 0)]
    while waiting:
        path, depth = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(path) as found:
            for entry in found:
                entries += 1
                with contextlib.suppress(OSError):
                    size += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, depth + 1))
                if size > most_bytes or entries > MAX_ENTRIES or depth > _DEEPEST:
                    return True
    return False


def empty(directory: str) -> None:
    """Empty a directory of any depth; entries that cannot be removed stay.

    Folders inside of folders are moved up before their parent is removed, so that no path gets long
    and nothing recurses.
    """
    root = Path(directory)
    prefix, numbers = secrets.token_hex(8), itertools.count()
    with contextlib.suppress(OSError):
        while entries := list(root.iterdir()):
            for entry in entries:
                if not _is_folder(entry):
                    entry.unlink()
                    continue
                entry.chmod(0o700)
                for inner in list(entry.iterdir()):
                    if _is_folder(inner):
                        inner.chmod(0o700)  # moving a folder writes to it
                        inner.rename(root / f"{prefix}-{next(numbers)}")
                    else:
                        inner.unlink()
                entry.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
