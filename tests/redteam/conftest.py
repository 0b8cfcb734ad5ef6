"""One service for all candidates of the red team, and their verdicts in the order of the tests."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from evolve.core.evaluation import Evaluation
from tests.redteam.corpus import HONEST_SCORE, Entry, corpus
from tests.redteam.tasks import TASKS
from tests.worker.serving import WIDE, Worker

ANSWER_S = {"cpu": 110.0, "cuda": 290.0}  # all are sent at once, and any may be the last
RIVAL = "an honest kernel"  # timed beside a cheat that may only get an honest score
_HONEST = {
    ("gate", "cpu"): "gate_scalar",
    ("long_gate", "cpu"): "gate_scalar",
    ("softmax", "cpu"): "softmax_three_pass",
    ("tiny", "cpu"): "tiny_launch_bound",
    ("gate", "cuda"): "gpu_triton_persistent",
    ("wide_gate", "cuda"): "gpu_triton_persistent",
}
Judge = Callable[[Entry], Evaluation]


class Court:
    """Sends candidates to a worker and waits for verdicts; several are under way at once."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._sent: dict[str, Future[dict[str, Any]]] = {}
        self._honest = {entry.name: entry for entry in corpus("honest")}

    def send(self, entry: Entry) -> None:
        """Have it judged in the background."""
        if entry.source not in self._sent:
            rivals = {}
            if HONEST_SCORE in entry.verdicts:
                rivals[RIVAL] = self._honest[_HONEST[entry.task, entry.device]].source
            self._sent[entry.source] = self.worker.send(
                "evaluate",
                task=TASKS[entry.task].to_json(),
                source=entry.source,
                fidelity=entry.fidelity,
                opponents=rivals,
            )

    def verdict(self, entry: Entry) -> Evaluation:
        self.send(entry)
        reply = self._sent.pop(entry.source).result(ANSWER_S[entry.device])
        assert "result" in reply, reply
        return Evaluation.from_json(reply["result"])


def _court(folder: Path, device: str) -> Iterator[Court]:
    # A cheat that works gains several times, and an honest kernel has to gain nothing.
    options = ("--half-width", str(WIDE)) if device == "cpu" else ("--device", device)
    worker = Worker(
        folder, "--call-timeout", "5", *options, EVOLVE_TEST_API_KEY="sk-secret-of-the-user"
    )
    yield Court(worker)
    worker.close()


@pytest.fixture(scope="session")
def court(tmp_path_factory):
    yield from _court(tmp_path_factory.mktemp("court"), "cpu")


@pytest.fixture(scope="session")
def gpu_court(tmp_path_factory):
    yield from _court(tmp_path_factory.mktemp("gpu-court"), "cuda")


@pytest.fixture(scope="module")
def judge(request) -> Judge:
    """Gives an entry's verdict from the service of the device that it is written for.

    All entries that the module's tests ask for are sent first, so that cores are used well.
    """

    def court_of(entry: Entry) -> Court:
        return request.getfixturevalue("court" if entry.device == "cpu" else "gpu_court")

    for item in request.session.items:
        entry = getattr(getattr(item, "callspec", None), "params", {}).get("entry")
        if item.module is request.module and isinstance(entry, Entry) and not entry.alone:
            court_of(entry).send(entry)
    return lambda entry: court_of(entry).verdict(entry)
