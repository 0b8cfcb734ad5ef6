"""A real Ray cluster on this machine, whose nodes come and go; judges are stubs."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.core.evaluation import Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from tests.worker.serving import family_of

WORKER = Path(__file__).parents[2] / "serve" / "stub_worker.py"
WORDS = ["-SE", str(WORKER), "2", "0.02"]
TASK = Task(name="task", source="")
_TYPES = itertools.count()


class Nodes:
    """A cluster: a head that judges nothing, and nodes of a type of accelerator of their own."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address
        self.accelerator = ""
        self._nodes: list[object] = []

    def add(self, gpus: int = 1, cpus: int = 0, **environment: str) -> object:
        """A node with so many GPUs, if any of this test's type."""
        resources = {f"accelerator_type:{self.accelerator}": 1} if gpus else {}
        node = self._cluster.add_node(
            num_cpus=cpus, num_gpus=gpus, resources=resources, env_vars=environment
        )
        self._nodes.append(node)
        return node

    def kill(self, node: object) -> None:
        """As a host fails: all at once, without a word to anyone."""
        self._nodes.remove(node)
        raylets = [each.process.pid for each in node.all_processes["raylet"]]
        for pid in set().union(*map(family_of, raylets)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    @contextlib.contextmanager
    def fresh(self) -> Iterator["Nodes"]:
        """Nodes of a type that no judge was ever on; all of them end afterwards."""
        self.accelerator = f"T{next(_TYPES)}"
        try:
            yield self
        finally:
            for node in list(self._nodes):
                self.kill(node)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="package")
def _cluster(tmp_path_factory):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "(?s).*"  # as the evaluator sets it
    pytest.importorskip("ray", reason="Ray is not installed: make test-all installs it")
    folder, before = tmp_path_factory.mktemp("cluster"), Path.cwd()
    os.chdir(folder)  # the current folder of all workers
    nodes = Nodes()
    yield nodes, folder
    nodes.shutdown()
    os.chdir(before)


@pytest.fixture
def nodes(_cluster, monkeypatch):
    """The cluster, with none but its head; the current folder is that of its workers."""
    import ray

    cluster, folder = _cluster
    monkeypatch.chdir(folder)
    for name in ("judged", "starts", "audited"):
        Path(name).unlink(missing_ok=True)
    monkeypatch.setattr("evolve.evaluation.cluster.evaluator.BEAT_S", 0.2)
    with cluster.fresh():
        yield cluster
        ray.shutdown()


def request(marker: str, *words: str) -> EvaluationRequest:
    source = "\n".join(f"# {word}" for word in (*words, f"marker {marker}"))
    return EvaluationRequest(task=TASK, instance=marker, source=source, fidelity=Fidelity.SCREEN)


def lines(name: str) -> Counter[str]:
    path = Path(name)
    return Counter(path.read_text().split()) if path.exists() else Counter()


async def until(condition, otherwise: str) -> None:
    for _ in range(600):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(otherwise)
