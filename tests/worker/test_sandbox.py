"""What a candidate can reach outside of its process: as little as the host can arrange.

Invariants:
- no key, token, home, database, task source or other process of the user is in reach;
- every tier is made of mechanisms that were tried, and the tier is recorded;
- what is demanded and not granted is refused with its name.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.languages.cpp import CPP
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher
from evolve.worker.sandbox import policy
from evolve.worker.sandbox.policy import Mechanism
from tests.worker.launching import Borrowing
from tests.worker.serving import ROOT, forward

EVERYTHING = ~Mechanism(0)
NAMESPACES = (
    Mechanism.PID_NAMESPACE
    | Mechanism.NET_NAMESPACE
    | Mechanism.IPC_NAMESPACE
    | Mechanism.MOUNT_NAMESPACE
)
TIERS = {
    "all that there is": EVERYTHING,
    "no namespaces": EVERYTHING & ~NAMESPACES,
    "no landlock": EVERYTHING & ~Mechanism.LANDLOCK,
    "limits only": Mechanism.LIMITS,
}


@pytest.fixture(params=TIERS, scope="module")
def tiered(request, launcher):
    """A launcher with some of the mechanisms switched off."""
    tiered = Borrowing(launcher, CpuDevice(), TIERS[request.param])
    tiered.probe()
    yield tiered
    tiered.close()


def test_a_candidate_cannot_hide_from_who_looks_at_it(worker):
    assert "-1" in says(worker, "__import__('ctypes').CDLL(None).prctl(4, 0)")  # PR_SET_DUMPABLE


def says(worker, body: str) -> str:
    """What an expression of the candidate gives, as it comes out in the feedback."""
    verdict = worker.evaluate(forward(f"raise RuntimeError(repr({body}))"))
    assert verdict.status is Status.RUNTIME_EXCEPTION
    return verdict.feedback


def refused(worker, body: str) -> str:
    """The exception that a line of the candidate's raises."""
    feedback = worker.evaluate(forward(f"{body}\nraise RuntimeError('it was allowed')")).feedback
    assert "it was allowed" not in feedback, body
    return feedback


def test_neither_keys_nor_home_are_in_the_environment(worker):
    text = says(worker, "dict(os.environ)")
    assert "sk-secret" not in text
    assert "EVOLVE_TEST_API_KEY" not in text
    assert str(Path.home()) not in says(worker, "os.environ['HOME']")


@pytest.mark.parametrize("pid", ["os.getppid()", "1", "os.getpid() - 1"])
def test_the_environment_of_other_processes_cannot_be_read(worker, pid):
    feedback = refused(worker, f"open(f'/proc/{{{pid}}}/environ', 'rb').read()")
    assert "Error" in feedback


def test_the_referee_is_no_process_that_the_candidate_can_see(worker):
    refused(worker, f"os.kill({worker.process.pid}, 0)")


@pytest.mark.parametrize("path", [Path.home(), ROOT, ROOT / "README.md", "/var", "/home"])
def test_home_checkout_and_data_are_not_there(worker, path):
    refused(worker, f"os.listdir('{path}') if os.path.isdir('{path}') else open('{path}')")


def test_the_source_of_the_task_is_nowhere_in_the_candidates_file_system_or_memory(worker):
    search = """
import re
secret = re.compile(b'SECRET_WOR[D]_OF_THE_TASK')  # written so that it does not find itself
found = []
for folder, _, names in os.walk('.'):
    for name in names:
        if secret.search(open(os.path.join(folder, name), 'rb').read()):
            found.append(name)
for line in open('/proc/self/maps'):
    place, rights, *_, = line.split()
    if rights.startswith('rw') and 'vvar' not in line:
        start, end = (int(part, 16) for part in place.split('-'))
        with open('/proc/self/mem', 'rb') as memory:
            memory.seek(start)
            if secret.search(memory.read(min(end - start, 1 << 28))):
                found.append(line)
raise RuntimeError(f'found {len(found)}')
"""
    feedback = worker.evaluate(forward(search)).feedback
    assert "found 0" in feedback, feedback


def test_the_network_cannot_be_reached(worker):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(worker, f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")
    refused(worker, "import socket; socket.create_connection(('192.0.2.1', 80), 2)")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize(
    "call",
    [
        "ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
        "ctypes.CDLL(None).unshare(0x10000000)",
        "ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "ctypes.CDLL(None).syscall(425, 8, 0)",
        "ctypes.CDLL(None).syscall(323, 1)",
        "ctypes.CDLL(None).syscall(298, 0, 0, -1, -1, 0)",
        "ctypes.CDLL(None).memfd_create(b'x', 0)",
        "-(ctypes.CDLL(None, use_errno=True).syscall(56, 0x10900, 0, 0) == -1 and own())",
        "ctypes.CDLL(None).syscall(436, 4000, 4001, 2)",
    ],
    ids=["ptrace", "user namespaces", "mount", "io_uring", "userfaultfd", "perf", "memfd",
         "a thread's own files", "files unshared"],
)  # fmt: skip
def test_calls_that_no_kernel_needs_are_denied(worker, call):
    said = forward(f"import ctypes\nown = ctypes.get_errno\nraise RuntimeError({call})")
    assert "RuntimeError: -1" in worker.evaluate(said).feedback


def test_files_of_one_candidate_are_gone_for_the_next(worker):
    leave = forward("return right(x)", "open('note', 'w').write('stored answer')")
    find = forward("raise RuntimeError(sorted(os.listdir('.')))")
    assert worker.evaluate(leave, fidelity="check").status is Status.CORRECT
    assert "note" not in worker.evaluate(find).feedback


def test_a_path_can_be_opened_on_purpose(worker, readable):
    assert "opened" in says(worker, f"open('{readable}/table').read()")
    refused(worker, f"open('{readable}/other', 'w')")
    refused(worker, f"os.listdir('{readable.parent}')")


@pytest.mark.sample(1)
def test_a_runner_starts_works_and_ends_at_every_tier(tiered):
    with tiered.start(CPP) as runner:
        source = forward("return x", "if os.fork() == 0:\n    os.setsid()\n    time.sleep(99)")
        runner.load("candidate", source, 20.0)
        pid = runner.pid
    assert not Path(f"/proc/{pid}").exists()


class NodeDevice(CpuDevice):
    nodes = ("/dev/zero",)


class OneOfTwoDevice(CpuDevice):
    nodes = ("/dev/zero",)
    other_nodes = ("/dev/tty",)


OWN_NODE = "os.close(os.open('/dev/zero', os.O_RDWR))"
OTHER_NODE = """
import errno
try:
    os.close(os.open('/dev/tty', os.O_RDWR))
except OSError as error:
    assert error.errno == {}, error
"""


@pytest.mark.parametrize(
    "without", [Mechanism(0), Mechanism.MOUNT_NAMESPACE], ids=["own", "shared"]
)
def test_nodes_of_other_devices_are_absent_or_can_be_opened_but_are_never_refused(
    launcher, without
):
    """ROCm's runtime leaves out a GPU without a node, and fails at one that it may not open."""
    launcher = Borrowing(launcher, OneOfTwoDevice(), EVERYTHING & ~without)
    try:
        launcher.probe()
        is_own = Mechanism.MOUNT_NAMESPACE in Mechanism(launcher.mechanisms)
        assert is_own or without
        found = "errno.ENOENT" if is_own else "errno.ENXIO"  # without a terminal
        probe(launcher, OWN_NODE + OTHER_NODE.format(found), False)
        if is_own:
            probe(launcher, "assert not os.path.exists('/dev/tty')", False)
    finally:
        launcher.close()


NAMING = "open(f'/proc/self/task/{os.getpid()}/comm', 'w').write('named')"
SECRETS = ("1/environ", "1/maps", "1/mem", "1/fd/0", "/".join(("1", "root", "etc", "passwd")))
SYSTEM = ("sys/kernel/hostname", "sysrq-trigger", "1/comm", "1/oom_score_adj")


def probe(launcher, body: str, observed: bool) -> None:
    """Have a runner execute some lines; raises what they raise."""
    head = "import os, subprocess, sys"
    with launcher.start(CPP, observed=observed) as runner:
        runner.load("candidate", forward("return x", f"{head}\n{body}"), 20.0)


def denied(names: tuple[str, ...], mode: str) -> str:
    """Lines that fail where one of these files below /proc can be opened and used."""
    return f"""
for name in {names}:
    try:
        file = open("/proc/" + name, "{mode}")
        {"file.write(b'x'); file.flush()" if "w" in mode else "file.read(1)"}
    except OSError:
        continue
    raise RuntimeError(name + " is open")
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("without", [Mechanism(0), Mechanism.OWN_UID], ids=["own uid", "root"])
def test_with_a_device_threads_can_be_named_and_the_system_cannot_be_changed(
    launcher, without, observed
):
    """The driver of a GPU names its threads, also in the process that a tool starts."""
    launcher = Borrowing(launcher, NodeDevice(), EVERYTHING & ~without)
    try:
        launcher.probe()
        probe(launcher, NAMING + denied(SYSTEM, "wb"), observed)
        if observed and not without and launcher.tier == "namespaces":
            program = f"import os; {NAMING}"
            probe(
                launcher, f"assert not subprocess.call([sys.executable, '-c', {program!r}])", True
            )
    finally:
        launcher.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize("observed", [False, True])
def test_what_other_processes_hold_cannot_be_read(tiered, observed):
    probe(tiered, denied(SECRETS, "rb"), observed)


def test_only_one_that_a_tool_is_started_in_may_read_of_others_and_of_the_host(launcher):
    launcher = Borrowing(launcher, CpuDevice())
    try:
        launcher.probe()
        if Mechanism.LANDLOCK in Mechanism(launcher.mechanisms):
            probe(launcher, denied(("1/status", "interrupts", "cmdline"), "rb"), False)
        if launcher.tier == "namespaces":
            probe(launcher, "open('/proc/1/status').read()", True)
    finally:
        launcher.close()


def test_memory_beyond_the_limit_is_reported_at_every_tier(tiered):
    with tiered.start(CPP) as runner, pytest.raises(CandidateFault) as caught:
        runner.load("candidate", "import torch; torch.ones(10 << 30)", 20.0)
    assert caught.value.status is Status.OOM


def test_the_tier_is_the_strongest_that_is_complete():
    everything = int(EVERYTHING)
    assert policy.tier(everything) == "namespaces"
    assert policy.tier(everything & ~int(Mechanism.NET_NAMESPACE)) == "landlock"
    assert policy.tier(int(Mechanism.OWN_UID | Mechanism.LIMITS)) == "uid"
    assert policy.tier(0) == "none"
    assert policy.missing_for("landlock", int(Mechanism.LIMITS)) == [
        "NO_NEW_PRIVILEGES",
        "LANDLOCK",
        "SECCOMP",
    ]


def test_a_tier_that_the_host_does_not_grant_is_refused_by_name(launcher):
    allowed = EVERYTHING & ~Mechanism.NET_NAMESPACE
    launcher = Borrowing(launcher, CpuDevice(), allowed, require="namespaces")
    try:
        with pytest.raises(ValueError, match=r"sandbox\.require=namespaces.*NET_NAMESPACE"):
            launcher.probe()
    finally:
        launcher.close()


def test_a_path_to_open_that_does_not_exist_is_refused_by_name():
    with pytest.raises(UsageError, match=r"sandbox\.read: /no/such/path"):
        Launcher(CpuDevice(), "none", ("/no/such/path",))


def test_every_evaluation_records_its_tier(worker):
    verdict = worker.evaluate(forward("return right(x)"), fidelity="check")
    assert verdict.environment["sandbox"] == worker.ask("hello")["sandbox"]


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux is not installed")
def test_a_user_without_privileges_gets_a_worker_too(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.worker.serving import *; "
        "w = Worker(Path(sys.argv[2])); print(w.ask('hello')['sandbox'], w.ask('doctor')['uid'], "
        "w.evaluate(forward('return right(x)')).status, w.evaluate(forward('os.abort()')).status); "
        "w.close()"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-user=1234", "--map-group=1234",
         sys.executable, "-c", script, str(ROOT), str(tmp_path / "worker")],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces on this host")
    words = done.stdout.split()
    assert words[1:] == ["1234", "correct", "assert"], done.stdout + done.stderr
    assert words[0] in ("namespaces", "landlock")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to a group")
def test_a_runner_keeps_the_groups_that_open_its_devices_and_no_other(tmp_path):
    """A node of AMD's is open to a group; NVIDIA's are open to all, and root's group opens more."""
    for name, mode, group in (
        ("kfd", 0o660, 44), ("renderD128", 0o660, 105), ("nvidia0", 0o666, 39), ("mem", 0o660, 0),
        ("card0", 0o640, 7),
    ):  # fmt: skip
        (tmp_path / name).touch()
        os.chown(tmp_path / name, 0, group)
        (tmp_path / name).chmod(mode)
    assert policy._groups_of(map(str, tmp_path.iterdir())) == [44, 105]
    assert policy._groups_of([]) == []
