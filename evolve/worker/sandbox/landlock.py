"""Landlock: file access by path, for this process and all that it starts (Linux 5.13 and later)."""

import ctypes
import os

from evolve.worker.sandbox import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NEWEST = (1 << 16) - 1  # from ABI 5 on: ioctl on devices
_NET_ALL = 3  # bind and connect of TCP, from ABI 4 on
_SCOPE_ALL = 3  # abstract sockets and signals, from ABI 6 on
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """The version that the kernel offers.

    Raises:
        OSError: the kernel has no Landlock, or it is disabled.
    """
    return syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)


def restrict(
    readable: tuple[str, ...], writable: tuple[str, ...], *, network: bool = False
) -> None:
    """Allow reading and executing below `readable`, everything below `writable`, nothing else.

    Paths that do not exist are left out. Needs `no_new_privs`. TCP (unless `network`), signals to
    processes outside, and abstract sockets are denied if the kernel can.
    """
    version = abi()
    everything = _ALL_BY_ABI.get(version, _ALL_NEWEST)
    tcp = _NET_ALL if version >= 4 and not network else 0
    ruleset = _Ruleset(everything, tcp, _SCOPE_ALL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    fd = syscalls.syscall(
        syscalls.LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0
    )
    try:
        for path in readable:
            _allow(fd, path, _READ)
        for path in writable:
            _allow(fd, path, everything)
        syscalls.syscall(syscalls.LANDLOCK_RESTRICT_SELF, fd, 0)
    finally:
        os.close(fd)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 (no pathlib in a process about to be confined)
            access &= _OF_A_FILE
        rule = _PathBeneath(access, fd)
        syscalls.syscall(
            syscalls.LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0
        )
    finally:
        os.close(fd)
