"""Many clients at once, while workers and servers die.

Invariant: every job is answered exactly once, and its answer never changes.
"""

import asyncio
import random
import sqlite3

import httpx
import pytest

from tests.serve.serving import serving, submission

MANY = 1000


async def _ask_all(url: str, bodies: list[dict]) -> list[dict]:
    """The answers on submissions that are all made at once, by clients that do not give up."""
    limits = httpx.Limits(max_connections=MANY)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:

        async def one(body: dict) -> dict:
            while True:
                try:
                    response = await http.post("/v1/jobs", params={"wait_s": 20}, json=body)
                    if response.status_code == 200:
                        return response.json()
                    assert response.status_code in (202, 429), response.text
                except httpx.TransportError:
                    await asyncio.sleep(0.2)

        return await asyncio.gather(*(one(body) for body in bodies))


def _rows(folder) -> list[tuple[str, str]]:
    with sqlite3.connect(folder / "serve.db") as db:
        return db.execute("SELECT id, state FROM jobs").fetchall()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", [150, pytest.param(MANY, marks=pytest.mark.slow)])
def test_jobs_at_once_are_answered_once_each_while_a_tenth_kills_its_worker(tmp_path, jobs):
    draw = random.Random(7)
    deadly = set(draw.sample(range(jobs), jobs // 10))
    bodies = [
        submission(
            "die_once" if n in deadly else "speedup 2.0",
            id=f"job{n}",
            marker=f"job{n}",
            rewards=["kevin@1"],
        )
        for n in range(jobs)
    ]
    with serving(tmp_path, workers=4, slots=4, attempts=20, retry_s=0.01) as server:
        answers = asyncio.run(_ask_all(server.url, bodies))
        assert [answer["id"] for answer in answers] == [body["id"] for body in bodies]
        assert {answer["state"] for answer in answers} == {"done"}
        assert len((tmp_path / "starts").read_text().split()) > len(deadly) / 4
        assert len({*server.judged()}) == jobs
        again = server.ask.post("/v1/wait", json={"ids": [body["id"] for body in bodies[:100]]})
        assert again.json()["jobs"] == answers[:100]
    assert sorted(_rows(tmp_path)) == sorted((body["id"], "done") for body in bodies)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_get_every_answer_of_a_server_that_is_killed_twice_under_load(tmp_path):
    bodies = [submission(id=f"job{n}", marker=f"job{n}") for n in range(100)]

    async def run() -> list[dict]:
        with serving(tmp_path, workers=2, latency_s=0.05) as first:
            asking = asyncio.create_task(_ask_all(first.url, bodies))
            for _ in range(2):
                await asyncio.sleep(0.7)
                first.kill()
                with serving(tmp_path, port=first.port, workers=2, latency_s=0.05) as last:
                    await asyncio.sleep(0.7)
                    last.kill()
            with serving(tmp_path, port=first.port, workers=2):
                return await asking

    answers = asyncio.run(run())
    assert [answer["id"] for answer in answers] == [body["id"] for body in bodies]
    assert {answer["state"] for answer in answers} == {"done"}
    assert sorted(_rows(tmp_path)) == sorted((body["id"], "done") for body in bodies)
