"""A service that is stopped stops, whatever comes at that moment.

Invariant: a cancelled service ends, also where a job arrives in the same turns of the event loop
(Python 3.11's `asyncio.wait_for` swallows a cancellation that comes with what it waits for).
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from evolve.evaluation import LocalEvaluator
from evolve.serve.catalogue import Catalogue
from evolve.serve.jobs import Jobs
from evolve.serve.messages import Submission
from evolve.serve.service import Service, Settings
from evolve.serve.submissions import accept
from tests.serve.serving import submission

WORKER = [sys.executable, "-SE", str(Path(__file__).with_name("stub_worker.py")), "4", "0"]


async def ends(folder, turns: int) -> bool:
    async def start() -> LocalEvaluator:
        evaluator = LocalEvaluator({"stub": WORKER}, dict(os.environ))
        await evaluator.up()
        return evaluator

    service = Service(Jobs(folder / "serve.db"), start, {}, Settings(), print)
    catalogue = Catalogue([], size=lambda: "tiny", any_reference=False)
    await service.start()
    try:
        running = asyncio.create_task(service.run())
        await asyncio.sleep(0.2)  # all of its workers wait for jobs
        service.submit([accept(Submission(**submission("speedup 2.0")), catalogue)])
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        ended, _ = await asyncio.wait({running}, timeout=5)
        return bool(ended)
    finally:
        await service.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("turns", range(6))
def test_a_service_that_is_stopped_as_a_job_arrives_ends(tmp_path, monkeypatch, turns):
    monkeypatch.chdir(tmp_path)  # where the stub judge keeps its notes
    assert asyncio.run(ends(tmp_path, turns))
