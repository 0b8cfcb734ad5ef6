"""The connection to a Ray cluster, and the judges that it has room for."""

import itertools
import os
import random
import signal
import socket
import threading
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import evolve
from evolve.core.errors import UsageError, needing
from evolve.llm.secrets import is_secret_variable

NAMESPACE = f"evolve-kernels-{evolve.__version__}"  # of judges: those of a version work together
PATIENCE_S = 5.0  # for a cluster's port
GPU, CPU = "GPU", "CPU"
_TYPE = "accelerator_type:"


def ray_module() -> Any:
    """Ray, imported when it is needed.

    Raises:
        UsageError: it is not installed.
    """
    with needing("cluster=ray", "ray", ("ray",)):
        return import_module("ray")


def connect(address: str) -> bool:
    """Connect this process to a cluster; whether it was not connected before.

    Raises:
        UsageError: there is no cluster at the address, or one that this process cannot join.
    """
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # or nodes run `uv run` again
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "(?s).*")  # Ray's reports of lost nodes
    ray = ray_module()
    if ray.is_initialized():
        return False
    _require_listener(address)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        raise UsageError(
            f"cluster.address={address}: no Ray cluster was found; start one with "
            "`ray start --head`, or give its HOST:6379"
        ) from error
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UsageError(
            f"cluster.address={address}: this cluster cannot be used ({first_line(error)}); "
            "install the same versions of Ray and Python here as there"
        ) from error
    return True


def restore_sigterm() -> None:
    """Put back the handler of SIGTERM, which Ray replaces by one that ends the process at once."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _require_listener(address: str) -> None:
    """Raise UsageError if nothing listens at HOST:PORT: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host and address in ("auto", "local"):
        return
    if not host or not port.isdigit() or "/" in host:
        raise UsageError(
            f"cluster.address={address}: give auto, on a node of the cluster, or HOST:6379"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cluster.address={address}: no Ray cluster answers there ({error}); start one with "
            "`ray start --head`, or give the address that this printed"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of the message of one of Ray's exceptions."""
    return _lines(error)[0]


def why_lost(error: BaseException) -> str:
    """Why an actor does not answer."""
    if getattr(error, "preempted", False):
        return "its node was pre-empted"
    if is_loss(error):
        return "its node, or its process there, was lost"
    return _lines(error)[-1]  # the exception, below its traceback


def is_loss(error: BaseException) -> bool:
    """Whether an actor did run, or could."""
    lost = ray_module().exceptions.RayActorError
    return isinstance(error, lost) and not getattr(error, "actor_init_failed", False)


def _lines(error: BaseException) -> list[str]:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines or [type(error).__name__]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The judges that a search wants of a cluster.

    Attributes:
        resource: held by each alone: `GPU`, or one `CPU` of a node of its own.
        accelerator: the type of GPU as Ray calls it; empty if the cluster has only one.
        count: how many at most, for which the cluster is to grow (None: one for each free GPU, or
            node without, now and later).
    """

    resource: str
    accelerator: str
    count: int | None

    @classmethod
    def of(cls, is_gpu: bool, accelerator: str | None, count: int | None) -> "Wanted":
        """The judges that settings ask for, checked against the cluster.

        Raises:
            UsageError: the cluster has GPUs of several types, or no GPU at all and will get none.
        """
        if not is_gpu:
            return cls(CPU, "", count)
        types = {name for node in _nodes(GPU) for name in _types(node)}
        if accelerator is None and len(types) > 1:
            raise UsageError(
                f"the cluster has GPUs of several types, on which times differ: choose one by "
                f"cluster.accelerator={' or '.join(sorted(types))}"
            )
        if not count and (not _nodes(GPU) or (accelerator and accelerator not in types)):
            has = f"has {', '.join(sorted(types))}" if types else "has no such GPU"
            what = f"cluster.accelerator={accelerator}" if accelerator else "device=cuda"
            raise UsageError(
                f"{what}: the cluster {has}; cluster.judges=N waits until N have joined, and "
                "device=cpu needs none"
            )
        return cls(GPU, accelerator or "", count)

    def names(self) -> list[str]:
        """Names of the judges that exist and that the cluster has, or is to have, room for.

        In any order, so that searches that want a few do not all want the same. A judge of an
        unnamed type of GPU can be of any type: `fits` tells.
        """
        ray = ray_module()
        named = ray.util.list_named_actors(all_namespaces=True)
        every = {each["name"] for each in named if each["namespace"] == NAMESPACE}
        have = [name for name in every if self._is_usable(name)]
        room = self._room(len(have))
        stem = _stem(self.accelerator or self.resource)
        free = (f"{stem}{n}" for n in itertools.count())
        new = itertools.islice((name for name in free if name not in every), max(0, room))
        return random.sample(names := [*have, *new], len(names))

    def fits(self, node_id: str) -> bool:
        """Whether a judge on this node is one of those that are wanted."""
        node = next((node for node in _nodes(GPU) if node["NodeID"] == node_id), None)
        return not self.accelerator or (node is not None and self._fits(node))

    def _is_usable(self, name: str) -> bool:
        """Whether a judge of this name may be of the wanted type."""
        if self.resource == CPU or name.startswith(_stem(CPU)):
            return self.resource == CPU and name.startswith(_stem(CPU))
        return not self.accelerator or name.startswith((_stem(self.accelerator), _stem(GPU)))

    def _room(self, have: int) -> int:
        """How many judges there should be besides those that exist."""
        if self.count is not None:
            return self.count - have
        nodes = [node for node in _nodes(self.resource) if self._fits(node)]
        if self.resource == CPU:
            return len(nodes) - have
        there = sum(int(node["Resources"][GPU]) for node in nodes)
        return min(there - have, int(ray_module().available_resources().get(GPU, 0)))

    def judge(self, name: str) -> Any:
        """The actor of this name, made if there is none.

        No secret of this process is passed on to it, also if the job was given it for all of its
        processes.
        """
        from evolve.evaluation.cluster.judge import Judge

        hidden = {variable: "" for variable in os.environ if is_secret_variable(variable)}
        asks: dict[str, Any] = (
            {"num_gpus": 1, "num_cpus": 0} if self.resource == GPU else {"num_cpus": 1}
        )
        asks |= {"accelerator_type": self.accelerator} if self.accelerator else {}
        actor = ray_module().remote(Judge)
        return actor.options(
            name=name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": hidden},
            **asks,
        ).remote()

    def _fits(self, node: dict[str, Any]) -> bool:
        return not self.accelerator or self.accelerator in _types(node)


def _stem(kind: str) -> str:
    return f"judge-{kind}-"


def gpus_of(node_id: str) -> int:
    """How many GPUs a node has."""
    return next((int(n["Resources"][GPU]) for n in _nodes(GPU) if n["NodeID"] == node_id), 1)


def _nodes(resource: str) -> list[dict[str, Any]]:
    """The nodes that are alive and have some of a resource."""
    nodes = ray_module().nodes()
    return [node for node in nodes if node["Alive"] and node["Resources"].get(resource, 0) >= 1]


def _types(node: dict[str, Any]) -> set[str]:
    return {name.removeprefix(_TYPE) for name in node["Resources"] if name.startswith(_TYPE)}
