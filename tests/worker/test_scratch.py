"""Temporary folders of the product.

Invariants:
1. A folder is removed when its process ends, without a word of its owner.
2. One whose process was killed is removed by the next process that makes a folder of any kind;
   that of a living process never, and a young one not yet.
3. Nothing else is removed: no target of a symbolic link, no folder of another user, host or boot,
   none without the mark, and none because a forked process ends.
4. Where folders cannot be locked they are made, used and removed by their process alone.
5. The product has no other temporary folders.
"""

import ast
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evolve.worker.base import scratch
from evolve.worker.base.scratch import PREFIX, ScratchFolder
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher

ROOT = Path(__file__).parents[2]
MAKERS = {
    "a task": "from evolve.core.task import Task; from evolve.worker.reference import task_files; "
    "task_files.folder_of(Task(name='one', source='x = 1'))",
    "a path for another interpreter": "from evolve.evaluation.local import package_path_for; "
    "made = package_path_for('python')",
    "a capture": "from evolve.capture import processes; "
    "made = processes.started(processes.Script(name='json', is_module=True)); made.__enter__()",
    "a program that the user has chosen": "from evolve.report.export import program; "
    "program.load('class ModelNew: pass')",
}
ENDS = {"returns": "", "raises": "; 1 / 0", "is killed": "; os.kill(os.getpid(), 9)"}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def ended(words: str) -> int:
    code = f"import os; {words}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL, check=False
    ).returncode


def grown_old(folder: Path) -> list[Path]:
    found = list(folder.glob(f"{PREFIX}*"))
    for path in found:
        os.utime(path, (0, 0), follow_symlinks=False)
    return found


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_folder_ends_with_its_process(temporary, end):
    ended(MAKERS["a task"] + ENDS[end])
    assert list(temporary.glob(f"{PREFIX}*")) == []


@pytest.mark.parametrize("maker", MAKERS)
def test_what_a_killed_process_left_is_removed_by_the_next(temporary, maker):
    assert ended(MAKERS[maker] + ENDS["is killed"]) == -signal.SIGKILL
    (left,) = temporary.glob(f"{PREFIX}*")
    ScratchFolder("next").close()
    assert left.exists()
    grown_old(temporary)
    with ScratchFolder("next") as own:
        assert list(temporary.glob(f"{PREFIX}*")) == [own]


def test_a_launcher_removes_and_keeps_by_the_same_rule(temporary):
    living = Launcher(CpuDevice(), "none", ())
    (used,) = temporary.iterdir()
    abandoned = temporary / f"{PREFIX}runners-{scratch.host_mark()}-abandoned"
    abandoned.mkdir()
    grown_old(temporary)
    Launcher(CpuDevice(), "none", ()).close()
    assert list(temporary.iterdir()) == [used]
    living.close()
    assert list(temporary.iterdir()) == []


def test_no_symbolic_link_is_followed(temporary):
    kept = temporary / "kept"
    kept.mkdir()
    (kept / "file").touch()
    os.utime(kept, (0, 0))
    link = temporary / f"{PREFIX}task-{scratch.host_mark()}-link"
    link.symlink_to(kept)
    abandoned = temporary / f"{PREFIX}task-{scratch.host_mark()}-abandoned"
    abandoned.mkdir()
    (abandoned / "inside").symlink_to(kept)
    (temporary / f"{PREFIX}task-{scratch.host_mark()}-file").touch()
    grown_old(temporary)
    ScratchFolder("next").close()
    assert not abandoned.exists()
    assert (kept / "file").exists()
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_folders_of_another_user_stay(temporary):
    other = temporary / f"{PREFIX}task-{scratch.host_mark()}-other"
    other.mkdir()
    os.chown(other, 12345, 12345)
    grown_old(temporary)
    ScratchFolder("next").close()
    assert other.exists()
    shutil.rmtree(other)


OTHER_HOSTS = {
    "another host": lambda patch: patch.setattr(scratch.platform, "node", lambda: "another"),
    "an earlier boot": lambda patch: patch.setattr(scratch, "_BOOT", Path("/proc/version")),
}


@pytest.mark.parametrize("where", OTHER_HOSTS)
def test_folders_of_another_host_stay_although_their_locks_are_not_seen(temporary, where):
    with pytest.MonkeyPatch.context() as patch:
        OTHER_HOSTS[where](patch)
        scratch.host_mark.cache_clear()
        other = temporary / f"{PREFIX}task-{scratch.host_mark()}-other"
    scratch.host_mark.cache_clear()
    other.mkdir()
    grown_old(temporary)
    ScratchFolder("next").close()
    assert other.exists()


def test_a_folder_of_the_user_whose_name_begins_alike_stays(temporary):
    own = temporary / f"{PREFIX}notes-of-mine"
    own.mkdir()
    grown_old(temporary)
    ScratchFolder("next").close()
    assert own.exists()


UNLOCKED = {
    "a file system that refuses locks of folders": lambda patch: patch.setattr(
        scratch.fcntl, "flock", refused
    ),
    "a system that does not tell its boot": lambda patch: patch.setattr(
        scratch, "_BOOT", Path("/proc/none")
    ),
}


def refused(*_: object) -> None:
    raise OSError(errno.EBADF, "Bad file descriptor")  # NFS, for a descriptor that is only read


@pytest.mark.parametrize("where", UNLOCKED)
def test_folders_without_a_lock_are_removed_by_their_process_alone(temporary, where):
    scratch.host_mark.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        UNLOCKED[where](patch)
        own = ScratchFolder("task")
        assert [*temporary.iterdir()] == [own.path]
    scratch.host_mark.cache_clear()
    grown_old(temporary)
    ScratchFolder("next").close()
    assert own.path.exists()
    own.close()
    assert [*temporary.iterdir()] == []


def test_the_end_of_a_forked_process_removes_nothing(temporary):
    made = "from evolve.worker.base.scratch import ScratchFolder; made = ScratchFolder('x')"
    seen = "os.fork() or exit(); os.wait(); os.path.isdir(made.path) or os._exit(9)"
    assert ended(f"{made}; {seen}") == 0
    assert list(temporary.glob(f"{PREFIX}*")) == []


def test_the_product_makes_no_other_temporary_folders():
    """Those of a candidate's own process (`evolve/languages`) are inside of its own folder."""
    other = []
    for path in (ROOT / "evolve").rglob("*.py"):
        if path.is_relative_to(ROOT / "evolve/languages") or path.name == "scratch.py":
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "tempfile" in text else ():
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func)
                in (
                    "tempfile.mkdtemp",
                    "tempfile.mkstemp",
                    "tempfile.TemporaryDirectory",
                )
                and "dir" not in {word.arg for word in node.keywords}
            ):
                other.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert other == []
