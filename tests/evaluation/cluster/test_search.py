"""A whole run with `cluster=ray`, by its configuration; a node dies while a model is asked.

Invariants:
- the search, its budget and its model calls are as on one machine;
- no reply is asked for twice, and no program judged twice, because a node died;
- a signal ends a run in order, also while it waits for a judge, for which no node is started then.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.evaluation.cluster import connection
from evolve.testing.model_server import ModelServer, Request
from tests.cli.at_terminal import launch
from tests.cli.recording import settings
from tests.cli.test_compiler_seeds import TASK
from tests.evaluation.cluster.conftest import WORDS, lines
from tests.worker.serving import ROOT

START = "import triton\n\n\nclass ModelNew:\n    NUMBER = 0\n"


def stub_python() -> str:
    """An interpreter that starts a stub judge for any arguments."""
    script = Path("stub-python").absolute()
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {' '.join(WORDS)}\n")
    script.chmod(0o755)
    return str(script)


def run(*words: str) -> int:
    Path("mine.py").write_text(TASK)
    Path("start.py").write_text(START)
    return asyncio.run(launch(settings("task=./mine.py", "name=mine", "cluster=ray", *words)))


@pytest.mark.slow  # nodes of a real cluster
@pytest.mark.timeout(300)
def test_a_node_that_dies_while_a_model_is_asked_costs_neither_a_reply_nor_a_verdict(
    nodes, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789abcdef")
    first = nodes.add()
    nodes.add()

    def script(request: Request) -> str:
        if request.number == 5:
            nodes.kill(first)
        number = request.number
        source = START.replace("NUMBER = 0", f"NUMBER = {number + 1}  # marker m{number}")
        return f"```python\n{source}```"

    with ModelServer(script) as server:
        status = run(
            f"cluster.address={nodes.address}",
            f"cluster.accelerator={nodes.accelerator}",
            f"device.python={stub_python()}",
            "device=cuda",
            "initial=[start.py]",
            "operators=llm",
            "llm.model=openai/scripted",
            f"llm.api_base={server.api_base}",
            "llm.price.prompt=1",
            "llm.price.completion=2",
            "termination.evaluations=24",
        )
    assert status == 0
    judged = lines("judged")
    replies = {f"m{number}" for number in server.log.delivered}
    assert len(server.log.requests) == len(server.log.delivered)
    assert len(replies & set(judged)) >= 20


@pytest.mark.slow  # a real cluster
@pytest.mark.timeout(300)
def test_a_run_that_is_stopped_while_it_waits_for_a_judge_leaves_none_behind(nodes):
    import ray

    Path("mine.py").write_text(TASK)
    words = ["cluster=ray", f"cluster.address={nodes.address}", "cluster.judges=1", "device=cuda"]
    command = [sys.executable, "-m", "evolve", "run", "task=./mine.py", "initial=[]", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert "waiting for a GPU of the cluster" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 75
    assert said == "evolve: SIGTERM: stopped before the run began\n"
    ray.init(nodes.address, namespace="other", log_to_driver=False)
    named = ray.util.list_named_actors(all_namespaces=True)
    assert not any(each["name"].startswith("judge-GPU-") for each in named)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cluster.address=127.0.0.1:1",), "cluster.address=127.0.0.1:1: no Ray cluster answers"),
        (("cluster.address=10.0.0.1",), "give auto, on a node of the cluster, or HOST:6379"),
        (("cluster.address=ray://head:10001",), "give auto, on a node of the cluster, or HOST:"),
        (("cluster.judges=0",), "cluster.judges=0: it must be at least 1"),
        (("device=cpu", "cluster.accelerator=H100"), "has no effect with device=cpu"),
        (("device=cuda", "device.ids=[0]"), "has no effect with cluster=ray"),
        (("cluster=none", "cluster.judges=2"), "has no effect without cluster=ray"),
        (("device=replay", "device.run=mine"), "cluster=ray has no effect with device=replay"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_with_the_remedy(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "ray_module", _Ray)
    with pytest.raises(UsageError) as error:
        run(*words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_without_ray_it_is_said_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'evolve-kernels\[ray\]'"):
        run()


class _Ray:
    """Ray as far as it is asked before there is a connection."""

    def is_initialized(self) -> bool:
        return False
