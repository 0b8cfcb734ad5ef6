"""`evolve ui` as a process, and steps that come while it serves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from tests import forked
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
    environment = {**os.environ, "EVOLVE_UI_TOKEN": TOKEN}
    server = forked.start("evolve", "ui", *words, "--port", "0", env=environment)
    try:
        yield server.line("open ").removeprefix("open ")
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


def add_step(filled: Filling, number: int, value: float) -> int:
    root = next(iter(filled.slots.values())).program
    proposal = Proposal(program=Program(source(number, 4)), parents=(root,))
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, value)
    filled.store.heartbeat(filled.run.id, 0.1)
    return filled.step("improve", proposal, verdict).sequence
