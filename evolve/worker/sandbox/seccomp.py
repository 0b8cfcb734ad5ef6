"""A system-call filter: calls that a kernel under test never needs and an attacker does."""

import ctypes
import struct

from evolve.worker.sandbox import syscalls

_EPERM, _ENOSYS, _EACCES = 1, 38, 13
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_MODE_FILTER = 2
_AF_UNIX = 1
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND = 0x54
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_2 = 0, 4, 16, 32  # offsets in struct seccomp_data

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
_PRCTL = {"x86_64": 157, "aarch64": 167}
# Their first argument names a process: kill, tgkill, sched_setparam, sched_setscheduler,
# sched_setaffinity, sched_setattr, migrate_pages, move_pages, prlimit64.
_ON_OTHERS = {
    "x86_64": (62, 234, 142, 144, 203, 314, 256, 279, 302),
    "aarch64": (129, 131, 118, 119, 122, 274, 238, 239, 261),
}
# tkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
_SIGNALS_OF_ALL_KINDS = {"x86_64": (200, 129, 297, 424), "aarch64": (130, 138, 240, 424)}
_CLONE3, _CLOSE_RANGE = 435, 436
_CLOSE_RANGE_UNSHARE = 2
_X32 = 0x40000000

# Numbers that all architectures share (424 and up), then those of each.
_DENIED_EVERYWHERE = (
    425, 426, 427,  # io_uring
    428, 429, 430, 431, 432, 433, 442,  # mounts by descriptor
    438,  # pidfd_getfd
    440, 448,  # process_madvise, process_mrelease
    447,  # memfd_secret
    463,  # setxattrat
)  # fmt: skip
_DENIED = {
    # ptrace, acct, settimeofday, mount, umount2, swapon, swapoff, reboot, sethostname,
    # setdomainname, iopl, ioperm, init_module, delete_module, quotactl, kexec_load, add_key,
    # request_key, keyctl, unshare, pivot_root, chroot, perf_event_open, name_to_handle_at,
    # open_by_handle_at, setns, process_vm_readv, process_vm_writev, kcmp, finit_module,
    # kexec_file_load, bpf, userfaultfd, clock_settime, adjtimex, clock_adjtime; and memory that
    # no limit counts: shmget, memfd_create, setxattr, lsetxattr, fsetxattr
    "x86_64": (
        101, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 246, 248, 249,
        250, 272, 155, 161, 298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323, 227, 159, 305,
        29, 319, 188, 189, 190,
    ),
    "aarch64": (
        117, 89, 170, 40, 39, 224, 225, 142, 161, 162, 105, 106, 60, 104, 217, 218, 219, 97, 41,
        51, 241, 264, 265, 268, 270, 271, 272, 273, 294, 280, 282, 112, 171, 266,
        194, 279, 5, 6, 7,
    ),
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def restrict(own_pid: int | None = None) -> None:
    """Install the filter, for this process and all that it starts. Needs `no_new_privs`.

    With `own_pid`, signals, scheduling and limits reach that process only: if the candidate shares
    its user and sees other processes, these are the user's and the judge.

    Raises:
        OSError: the kernel has no seccomp, or we have no numbers for this architecture.
    """
    machine = syscalls.MACHINE
    if machine not in _ARCHITECTURES:
        raise OSError(_ENOSYS, f"no system-call numbers for {machine}")
    code = b"".join(_instructions(machine, own_pid))
    buffer = ctypes.create_string_buffer(code)
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


def _instructions(machine: str, own_pid: int | None) -> list[bytes]:
    """The filter as BPF: each test either returns at once or falls through to the next."""
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        # clone3 hides its flags from a filter: say that there is none, and libc takes clone.
        _step(_JUMP_EQUAL, _CLONE3, 0, 1),
        _step(_RETURN, _ERRNO | _ENOSYS),
    ]
    denied = (*_DENIED_EVERYWHERE, *_DENIED[machine])
    if own_pid is not None:
        denied += _SIGNALS_OF_ALL_KINDS[machine]
        for number in _ON_OTHERS[machine]:
            code += _allow_only(number, own_pid, 0)
    for number in denied:
        code += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | _EPERM)]
    code += [
        # A process that is not dumpable for a while cannot be looked at meanwhile
        # (`stack_sampling`).
        _step(_JUMP_EQUAL, _PRCTL[machine], 0, 4),
        _step(_LOAD, _ARGUMENT_0),
        _step(_JUMP_EQUAL, syscalls.PR_SET_DUMPABLE, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_JUMP_EQUAL, _SOCKET[machine], 0, 4),
        _step(_LOAD, _ARGUMENT_0),
        _step(_JUMP_EQUAL, _AF_UNIX, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _ERRNO | _EACCES),
        _step(_JUMP_EQUAL, _CLONE[machine], 0, 6),
        _step(_LOAD, _ARGUMENT_0),
        _step(_JUMP_SET, syscalls.CLONE_NEWUSER, 2, 0),
        # What one thread has open would not be seen in another (`open_files`).
        _step(_AND, syscalls.CLONE_THREAD | syscalls.CLONE_FILES),
        _step(_JUMP_EQUAL, syscalls.CLONE_THREAD, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_JUMP_EQUAL, _CLOSE_RANGE, 0, 3),
        _step(_LOAD, _ARGUMENT_2),
        _step(_JUMP_SET, _CLOSE_RANGE_UNSHARE, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return code


def _allow_only(number: int, *values: int) -> list[bytes]:
    """A system call whose first argument has to be one of some values."""
    tests = [_step(_JUMP_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [
        _step(_JUMP_EQUAL, number, 0, len(values) + 3),
        _step(_LOAD, _ARGUMENT_0),
        *tests,
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]


def _step(operation: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", operation, if_true, if_false, operand)
