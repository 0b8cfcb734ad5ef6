"""The few Linux calls that Python lacks, by ctypes; failures are `OSError`."""

import ctypes
import os
import platform

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_FILES = 0x00000400
CLONE_THREAD = 0x00010000
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446

MACHINE = platform.machine()


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """Set an attribute of this process."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(option, *padded), "prctl")


def syscall(number: int, *arguments: object) -> int:
    """A system call by number, for those without a wrapper in libc."""
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _checked(result, f"mount {target}")


def change_root(new_root: str) -> None:
    """Make `new_root`, a mount point, the root of this mount namespace and drop the old one."""
    os.chdir(new_root)
    _checked(_libc.pivot_root(b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up every capability, for this process and all that it starts."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # the kernel knows no more
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def read_memory(pid: int, address: int, into: int, size: int) -> None:
    """Copy `size` bytes at `address` of another process to address `into` of this one.

    Raises:
        OSError: the process is gone, may not be read, or has no such memory.
    """
    done = 0
    while done < size:
        local = _IoVec(into + done, size - done)
        remote = _IoVec(address + done, size - done)
        count = _checked(
            _libc.process_vm_readv(
                pid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote),
                ctypes.c_ulong(1), ctypes.c_ulong(0),
            ),
            "process_vm_readv",
        )  # fmt: skip
        if count == 0:
            raise OSError("process_vm_readv: nothing to read there")
        done += count


def same_bytes(first: int, second: int, size: int) -> bool:
    """Whether so many bytes at two addresses of this process are the same."""
    of = (ctypes.c_void_p(first), ctypes.c_void_p(second), ctypes.c_size_t(size))
    return bool(_libc.memcmp(*of) == 0)


_libc.process_vm_readv.restype = ctypes.c_ssize_t
