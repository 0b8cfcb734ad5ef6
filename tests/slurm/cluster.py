"""A real Slurm of one node for tests: munged, slurmctld and slurmd in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=10
MinJobAge=600
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,requeue_delay=1
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class Cluster:
    """The daemons, and commands in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(2)
        conf = _CONF.format(host=host, folder=self.folder, ports=ports)
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-7]\n")
        for number in range(8):  # no more than names
            (self.folder / f"gpu{number}").touch()
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        at = {name: f"--{name.replace('_', '-')}={self.folder}/munge.{name}" for name in
              ("socket", "pid_file", "log_file", "seed_file")}  # fmt: skip
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *at.values())
        _wait(lambda: (self.folder / "munge.socket").exists(), "munged", self.folder)
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", host)
        _wait(self._is_up, "slurmctld", self.folder)

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """The fields of a job."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.partition("=")[::2] for word in words)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _daemon(self, program: str, *words: str) -> None:
        path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert path is not None
        log = (self.folder / f"{program}.out").open("wb")
        with log:
            command = [path, *words]
            self._daemons.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
            )

    def _is_up(self) -> bool:
        words = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment)
        return done.stdout.strip() in ("idle", "mixed", "allocated")


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster for as long as the block lasts; skips the test if Slurm is not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing or os.geteuid():
        why = f"{missing[0]} is not installed" if missing else "its daemons run as root"
        pytest.skip(f"no Slurm here: {why} (apt-get install slurmctld slurmd slurm-client munge)")
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    folder.chmod(0o755)
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _wait(condition, what: str, folder: Path, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(
                f"{path.name}: {path.read_text(errors='replace')[-1500:]}"
                for path in [*folder.glob("*.out"), *folder.glob("*.log")]
            )
            raise AssertionError(f"{what} does not come up:\n{logs}")
        time.sleep(0.1)
