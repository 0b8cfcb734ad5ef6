"""`evolve ui` as a process, and steps that come while it serves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from tests.report.filling import TASK, Filling, evaluation, source
from tests.serve.serving import ROOT

TOKEN = "0123456789abcdef-ui"
HOSTILE = "<img src=x onerror=document.title='taken'>"


def start(*words: str, token: str = TOKEN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "evolve", "ui", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EVOLVE_UI_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(*words: str) -> Iterator[str]:
    server = start(*words, "--port", "0")
    assert server.stdout is not None
    line = server.stdout.readline()
    try:
        yield line.removeprefix("open ").strip()
    finally:
        server.terminate()
        assert server.wait(20) == 0


def add_step(filled: Filling, number: int, value: float) -> int:
    root = next(iter(filled.slots.values())).program
    proposal = Proposal(program=Program(source(number, 4)), parents=(root,))
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, value)
    filled.store.heartbeat(filled.run.id, 0.1)
    return filled.step("improve", proposal, verdict).sequence
