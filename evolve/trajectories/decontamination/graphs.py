"""Digests of the computations of tasks, independent of their spelling.

Task files are executed to trace them, so that happens in a process of its own, which ends with a
task that hangs or crashes it: `python -m evolve.trajectories.decontamination.graphs` reads one task
per line and answers one line each. No memory is used for inputs and weights, which are traced
without their values.

Tracing an unrolled recurrent network takes a minute, its signature (shapes and types of inputs) a
millisecond; so graphs are compared only of tasks whose signatures agree.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.evaluation.local import package_path, worker_environment

TASK_DEADLINE_S = 60.0


class Tracer(AbstractContextManager["Tracer"]):
    """Traces tasks one after the other in a process, and in a new one after one has killed it.

    Digests of one release of torch are comparable with each other only.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __exit__(self, *_: object) -> None:
        self._end()

    def signature(self, task: Task) -> str | None:
        """A digest of shapes and types of inputs and weights; None if the file does not run."""
        return self._ask(task, "signature")

    def graph(self, task: Task) -> str | None:
        """The digest of a task's exported graph; None if it cannot be traced."""
        return self._ask(task, "graph")

    def same(self, one: Task, other: Task) -> bool:
        """Whether two tasks, whose signatures agree, are known to compute the same."""
        graph = self.graph(one)
        return graph is not None and graph == self.graph(other)

    def twins(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Task]]:
        """Pairs of tasks that are known to compute the same: the first such, and each other."""
        alike: dict[str | None, list[Task]] = {}
        for task in tasks:
            alike.setdefault(self.signature(task), []).append(task)
        alike.pop(None, None)
        for candidates in alike.values():
            first: dict[str, Task] = {}
            for task in candidates if len(candidates) > 1 else ():
                graph = self.graph(task)
                if graph is not None and first.setdefault(graph, task) is not task:
                    yield first[graph], task

    def _ask(self, task: Task, wanted: str) -> str | None:
        process = self._process = self._process or _start()
        files = dict(task.files)
        asked = {"name": task.name, "source": task.source, "wanted": wanted, "files": files}
        answer = _answer(process, asked)
        if answer is None:
            self._end()
            return None
        digest: str | None = answer["digest"]
        return digest

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "evolve.trajectories.decontamination.graphs"],
        env=worker_environment(package_path()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _answer(process: "subprocess.Popen[str]", asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer about one task; None if the process died or takes too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    ready, _, _ = select.select([process.stdout], [], [], TASK_DEADLINE_S)
    line = process.stdout.readline() if ready else ""
    answer: dict[str, Any] | None = json.loads(line) if line else None
    return answer


def digest_of(name: str, source: str, wanted: str, files: Mapping[str, str] | None = None) -> str:
    """The `signature` or the `graph` of a task at the sizes that its file sets; executes the file.

    A graph is its operations in order with their operands, shapes, types and constants.

    Raises:
        UsageError: the file does not run, or cannot be traced.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from evolve.worker.ipc.pytree import tensors_of
    from evolve.worker.reference.task_files import folder_of
    from evolve.worker.reference.task_module import execute, task_code
    from evolve.worker.reference.torch_settings import TaskName

    task, loaded = Task(name=name, source=source, files=files or {}), TaskName(name)
    module = execute(loaded, source, {}, folder_of(task))
    with (
        task_code(loaded, "tracing it"),
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.no_grad(),
    ):
        model = module.Model(*module.get_init_inputs()).eval()
        inputs = tuple(module.get_inputs())
        if wanted == "graph":
            exported = torch.export.export(model, inputs, strict=False)
            return framed_digest("graph", *map(canonical_json, _nodes(exported.graph)))
    states = sorted(map(_kind, model.state_dict().values()))
    return framed_digest("signature", *map(_kind, tensors_of(list(inputs))), "with", *states)


def _kind(tensor: Any) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"


def _nodes(graph: Any) -> Iterator[list[Any]]:
    """Every node as plain data, named by its place in the graph."""
    places: dict[str, int] = {}
    for node in graph.nodes:
        places[node.name] = len(places)
        value = node.meta.get("val")
        made = [str(getattr(value, "shape", "")), str(getattr(value, "dtype", ""))]
        target = "" if node.op in ("placeholder", "output") else str(node.target)
        yield [node.op, target, _plain(node.args, places), _plain(node.kwargs, places), made]


def _plain(value: Any, places: Mapping[str, int]) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item, places) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item, places) for name, item in value.items()}
    name = getattr(value, "name", "")
    return f"%{places[name]}" if name in places else str(value)


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of a task file are no answer
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            digest = digest_of(**asked)
        except UsageError:
            digest = None
        print(json.dumps({"digest": digest}), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
