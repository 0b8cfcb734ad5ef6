"""The kernel's facts of a process that chooses its own names (Linux, proc(5)).

Names stand in these texts as they were given: any bytes, brackets, and every end of a line but the
one that the kernel itself uses. OSError if the process has ended.
"""

import contextlib
import os
from pathlib import Path

_STANDING = "TtZX"  # states of threads: stopped, traced, ended


def stat(pid: int, thread: int | None = None) -> list[str]:
    """The fields of `stat` behind the name: the state, the parent, and so on."""
    folder = Path(f"/proc/{pid}" if thread is None else f"/proc/{pid}/task/{thread}")
    return (folder / "stat").read_bytes().rpartition(b")")[2].decode().split()


def is_moving(pid: int) -> bool:
    """Whether a thread has yet to notice that the process is stopped; False once it has ended."""
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            if stat(pid, thread)[0] not in _STANDING:
                return True
    return False


def threads(pid: int) -> list[int]:
    """Numbers of its threads, the first thread's too where it has ended; none if it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 (often called)
    except OSError:
        return []


def status(pid: int, thread: int | None = None) -> dict[str, str]:
    """The lines of `status`, by the word before the colon; a thread that has ended has no sizes."""
    folder = Path(f"/proc/{pid}" if thread is None else f"/proc/{pid}/task/{thread}")
    lines = (folder / "status").read_bytes().decode(errors="replace").split("\n")
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def size_of(entry: str) -> int:
    """Bytes of a size as `status` and `meminfo` have them."""
    return 1024 * int(entry.split()[0])


def meminfo() -> dict[str, int]:
    """Bytes of the host's memory, by kind."""
    lines = (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return {name: size_of(text) for name, _, text in lines if text.endswith("kB")}


def maps(pid: int) -> str:
    """The text of `maps`, with lines that end as the kernel ends them."""
    return Path(f"/proc/{pid}/maps").read_bytes().decode(errors="replace")


def children(pid: int) -> list[int]:
    """Processes that it has started and that are alive; none if it has ended."""
    found: list[int] = []
    for thread in threads(pid):
        path = f"/proc/{pid}/task/{thread}/children"
        # A thread may have ended meanwhile.
        with contextlib.suppress(OSError), open(path, "rb", 0) as file:  # noqa: PTH123
            found += map(int, file.read().split())
    return found


def flocks(file: os.stat_result) -> list[int]:
    """Processes that have taken a lock of this file by flock; waiting ones are not listed.

    Those of other containers are left out, and all if the file system gives files another device
    number than its own.
    """
    of_file = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    found = {int(words[4]) for words in lines if words[1] == "FLOCK" and words[5] == of_file}
    return sorted(pid for pid in found if pid > 0)
