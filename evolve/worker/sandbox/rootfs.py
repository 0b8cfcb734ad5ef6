"""A private file system for a runner: a fresh tmpfs as root, with only the files it may see.

Runs in a mount namespace of its own; the technique is bubblewrap's.
"""

import os
from pathlib import Path

from evolve.worker.sandbox import syscalls
from evolve.worker.sandbox.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ST_RELATIME, _MS_RELATIME = 4096, 1 << 21


def enter(
    work: str,
    readable: tuple[str, ...],
    devices: tuple[str, ...],
    size: int,
) -> None:
    """Make a tmpfs of at most `size` bytes the root, with `readable` read-only in their places.

    `work` (an existing directory, used as the mount point) exists in the new root as an empty
    directory; the nodes of `devices` are bound as they are.

    Raises:
        OSError: the host does not let us mount.
    """
    syscalls.mount("none", "/", "", MS_REC | MS_PRIVATE)
    syscalls.mount("tmpfs", work, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},mode=755")
    root = Path(work)
    for path in readable:
        _show(root, path)
    _devices(root, devices)
    _below(root, "/proc").mkdir(parents=True, exist_ok=True)
    syscalls.mount("proc", str(_below(root, "/proc")), "proc", MS_NOSUID | MS_NODEV)
    _below(root, work).mkdir(parents=True, exist_ok=True)
    _below(root, work).chmod(0o777)  # no other process ever sees this tmpfs
    syscalls.change_root(work)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _show(root: Path, path: str) -> None:
    source, target = Path(path), _below(root, path)
    if target.is_symlink() or not os.path.lexists(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    syscalls.mount(path, str(target), "", MS_BIND | MS_REC)
    flags = os.statvfs(target).f_flag
    kept = flags & (MS_NODEV | syscalls.MS_NOEXEC | 1024 | 2048)
    kept |= _MS_RELATIME if flags & _ST_RELATIME else 0
    locked = syscalls.MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID
    syscalls.mount("none", str(target), "", locked | kept)


def _devices(root: Path, more: tuple[str, ...]) -> None:
    for node in (*_DEVICES, *more):
        target = _below(root, node)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        syscalls.mount(node, str(target), "", MS_BIND)
    shared = root / "dev" / "shm"
    shared.mkdir()
    shared.chmod(0o777)
