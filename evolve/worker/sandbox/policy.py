"""Confinement of a runner: every mechanism that the host grants, and the resulting tier.

Nothing in a runner decides anything, so a weaker tier does not change a verdict. It changes which
data a hostile candidate could read or disturb on the host, and is recorded with every evaluation.
"""

import os
import resource
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Any

from evolve.worker.sandbox import landlock, rootfs, seccomp, syscalls
from evolve.worker.sandbox.packages import package_folders

TIERS = ("none", "uid", "landlock", "namespaces")  # weakest first
_OWN_UIDS = 1 << 30  # far above any account; plus the guard's process id it is unique on the host
_OWN = str(Path(__file__).absolute().parents[2])  # of this package
_SYSTEM_PATHS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime",
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
_LANDLOCK_PATHS = ("/dev", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
                   "/proc/loadavg", "/proc/sys")  # fmt: skip


class Mechanism(IntFlag):
    """One thing that confines; a runner reports which are in force."""

    PID_NAMESPACE = 1
    NET_NAMESPACE = 2
    IPC_NAMESPACE = 4
    MOUNT_NAMESPACE = 8
    OWN_UID = 16
    NO_NEW_PRIVILEGES = 32
    LANDLOCK = 64
    SECCOMP = 128
    LIMITS = 256


ALL_MECHANISMS = int(~Mechanism(0))
_NAMESPACES = (
    Mechanism.PID_NAMESPACE
    | Mechanism.NET_NAMESPACE
    | Mechanism.IPC_NAMESPACE
    | Mechanism.MOUNT_NAMESPACE
)
_TIER_NEEDS = {
    "namespaces": _NAMESPACES | Mechanism.NO_NEW_PRIVILEGES | Mechanism.LIMITS,
    "landlock": Mechanism.LANDLOCK
    | Mechanism.SECCOMP
    | Mechanism.NO_NEW_PRIVILEGES
    | Mechanism.LIMITS,
    "uid": Mechanism.OWN_UID | Mechanism.LIMITS,
    "none": Mechanism(0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """Permissions of one runner. Paths are absolute; sizes in bytes.

    `work` is a directory of its own, empty; `devices` are the nodes below /dev that it may open.
    `other_devices` are absent if it has a file system of its own; if not, it may open them too.
    In one that is `observed` a tool starts the process that it looks at, and reads of it in /proc.
    `allowed` masks the mechanisms to try, all by default.
    """

    work: str
    readable: tuple[str, ...]
    devices: tuple[str, ...] = ()
    other_devices: tuple[str, ...] = ()
    memory: int = 4 << 30
    processes: int = 512
    file_size: int = 1 << 30
    limit_address_space: bool = True
    observed: bool = False
    allowed: int = ALL_MECHANISMS


class Report:
    """The mechanisms in force so far, and why the others are not."""

    def __init__(self, allowed: int) -> None:
        self.mask = Mechanism(0)
        self.reasons: dict[str, str] = {}
        self._allowed = Mechanism(allowed)

    def attempt(self, mechanism: Mechanism, action: Callable[..., Any], *arguments: Any) -> bool:
        """Run one step; a refusal by the host is noted, not raised."""
        name = mechanism.name or ""
        if mechanism not in self._allowed:
            self.reasons[name] = "switched off"
            return False
        try:
            action(*arguments)
        except (OSError, ValueError) as error:
            self.reasons[name] = str(error)
            return False
        self.mask |= mechanism
        return True


def tier(mask: int) -> str:
    """The strongest tier that is complete."""
    have = Mechanism(mask)
    return next(name for name in reversed(TIERS) if _TIER_NEEDS[name] & ~have == 0)


def missing_for(name: str, mask: int) -> list[str]:
    """Names of the mechanisms that the tier needs and that are not in force."""
    lacking = _TIER_NEEDS[name] & ~Mechanism(mask)
    return [mechanism.name or "" for mechanism in Mechanism if mechanism & lacking]


def readable_paths(extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Paths that a runner needs: the system, the compilers, this Python and its packages.

    This package is one of them: task files import helpers of it, also where it is installed as
    editable, and so lies elsewhere.
    """
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()]
    packages = [*package_folders(), _OWN]
    resolved = [os.path.realpath(path) for path in (*python, *packages)]
    paths = [*_SYSTEM_PATHS, *python, *packages, *resolved, *extra]
    existing = dict.fromkeys(path for path in paths if path and Path(path).exists())
    return tuple(path for path in existing if not _inside_another(path, existing))


def _inside_another(path: str, others: dict[str, None]) -> bool:
    return any(path != other and path.startswith(other.rstrip("/") + "/") for other in others)


# --- steps, in the order in which the guard, the init and the runner take them ------------------


def separate_processes(report: Report) -> None:
    """In the guard: its next child lives in a new process namespace."""
    if os.geteuid() != 0:
        report.attempt(Mechanism.PID_NAMESPACE, _new_user_namespace)
        report.mask &= ~Mechanism.PID_NAMESPACE
        if "PID_NAMESPACE" in report.reasons:
            return
    report.attempt(Mechanism.PID_NAMESPACE, syscalls.unshare, syscalls.CLONE_NEWPID)


def _new_user_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def separate_resources(report: Report, confinement: Confinement) -> None:
    """In the first process of the namespace: own network, IPC, host name and file system."""
    report.attempt(Mechanism.NET_NAMESPACE, syscalls.unshare, syscalls.CLONE_NEWNET)
    flags = syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
    report.attempt(Mechanism.IPC_NAMESPACE, syscalls.unshare, flags)
    if Mechanism.PID_NAMESPACE in report.mask:
        report.attempt(Mechanism.MOUNT_NAMESPACE, _own_root, confinement)


def _own_root(confinement: Confinement) -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    rootfs.enter(
        confinement.work,
        confinement.readable,
        confinement.devices,
        confinement.file_size,
    )


def own_uid(guard: int) -> int:
    """A user id that no other process on the host has, if we may choose one."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    largest = max(int(inside) + int(length) for inside, _, length in ranges)
    return _OWN_UIDS + guard if largest > _OWN_UIDS * 2 else 20000 + guard % 40000


def confine(report: Report, confinement: Confinement, uid: int | None) -> None:
    """In the runner, last: limits, user, privileges, paths, system calls."""
    report.attempt(Mechanism.LIMITS, _limit, confinement)
    if uid is not None:
        report.attempt(Mechanism.OWN_UID, _become, uid, confinement)
    else:
        report.reasons["OWN_UID"] = "only root can give a runner a user of its own"
    if Mechanism.OWN_UID not in report.mask:
        _keep_uid(confinement)
    no_new = (syscalls.PR_SET_NO_NEW_PRIVS, 1)
    report.attempt(Mechanism.NO_NEW_PRIVILEGES, syscalls.prctl, *no_new)
    paths = (*confinement.readable, *_LANDLOCK_PATHS)
    writable = (confinement.work, "/dev/null", *confinement.devices)
    if Mechanism.MOUNT_NAMESPACE in report.mask:  # else shared, and the next candidate's too
        writable += ("/dev/shm",)
    else:
        writable += confinement.other_devices
    if confinement.devices:  # CUDA names its threads there, and fails where it may not
        writable += ("/proc/self",)
    if confinement.observed and Mechanism.MOUNT_NAMESPACE in report.mask:  # else it shows others
        paths += ("/proc",)
        if confinement.devices and os.getuid():  # to the host's root it would give /proc/sys too
            writable += ("/proc",)
    report.attempt(Mechanism.LANDLOCK, landlock.restrict, paths, writable)
    # The judge reads outputs from this memory, which a change of user had forbidden.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    exposed = not report.mask & (Mechanism.PID_NAMESPACE | Mechanism.OWN_UID)
    report.attempt(Mechanism.SECCOMP, seccomp.restrict, os.getpid() if exposed else None)


def _limit(confinement: Confinement) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
        resource.RLIMIT_FSIZE: confinement.file_size,
        resource.RLIMIT_NPROC: confinement.processes,
    }
    if confinement.limit_address_space:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + confinement.memory
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _keep_uid(confinement: Confinement) -> None:
    if os.geteuid() == 0:
        os.chown(confinement.work, 0, 0)
    syscalls.drop_capabilities()


def _groups_of(devices: Iterable[str]) -> list[int]:
    """Groups without which no user but root opens these: AMD's are open to one group (`render`)."""
    found = set()
    for path in devices:
        status = Path(path).stat()
        for_all, for_group = status.st_mode & stat.S_IWOTH, status.st_mode & stat.S_IWGRP
        found |= {status.st_gid} if for_group and not for_all and status.st_gid else set()
    return sorted(found)


def _become(uid: int, confinement: Confinement) -> None:
    """Take the user id, after making sure that this Python can still be read under it."""
    os.setgroups(_groups_of(confinement.devices))
    os.setresgid(uid, uid, uid)
    os.setresuid(-1, uid, -1)
    if not os.access(os.__file__, os.R_OK, effective_ids=True):
        os.setresuid(-1, 0, -1)
        raise PermissionError(f"{sys.base_prefix} cannot be read by another user")
    os.setresuid(uid, uid, uid)
