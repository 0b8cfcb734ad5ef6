"""`evolve work --metrics`: metrics of a worker for Prometheus, which shows the token."""

import asyncio
import contextlib
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.serve.pulling import TOKEN, free_port, request, searching, start_work

parser = pytest.importorskip("prometheus_client.parser")


def scrape(port: int, token: str) -> dict[tuple[str, ...], float]:
    url = f"http://127.0.0.1:{port}/metrics"
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("status", "")): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_worker_counts_what_it_has_judged(tmp_path: Path):
    async def body() -> None:
        port, metrics = free_port(), free_port()
        worker = start_work(tmp_path, port, "--metrics", f"127.0.0.1:{metrics}")
        try:
            async with searching(port) as search:
                for marker in ("one", "two"):
                    await search.evaluate(request(marker=marker))
                found = await asyncio.to_thread(scrape, metrics, TOKEN)
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    await asyncio.to_thread(scrape, metrics, "another-token-of-none")
        finally:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await asyncio.to_thread(worker.wait, 20)
        assert found["evolve_worker_evaluations_total", "correct"] == 2
        assert found["evolve_worker_failures_total", ""] == 0
        assert found["evolve_worker_connected", ""] == 1
        assert found["evolve_worker_busy", ""] == 0
        assert found["evolve_worker_busy_seconds_total", ""] > 0
        assert f"metrics at http://127.0.0.1:{metrics}/metrics" in "".join(worker.printed())

    asyncio.run(body())
