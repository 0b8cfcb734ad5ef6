"""The actor of a judge, without Ray: stub workers, and searches that end without a word.

Invariants:
- each search has a worker of its own; a fault of one is an answer to one;
- there are so many seats, and one is free again as soon as a search leaves, or is silent;
- a call to a worker that has been replaced is told so; without searches the judge ends.
"""

import asyncio
import contextlib
import os
import threading

import pytest

from evolve.evaluation.cluster import judge as judging
from evolve.evaluation.cluster.judge import SEATS, Judge
from tests.evaluation.cluster.conftest import WORDS, lines, request, until
from tests.worker.serving import alive, family_of


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@contextlib.asynccontextmanager
async def judge(end=lambda: None):
    actor = Judge(end)
    before = family_of(os.getpid())
    try:
        async with asyncio.timeout(60):
            yield actor
    finally:
        for search in list(actor._guests):
            await actor.leave(search, forget=True)
        ours = family_of(os.getpid()) - before
        await until(lambda: not alive(ours), "a worker was left behind")


async def ask(actor: Judge, search: str, number: int, *words: str):
    params = {"source": request(search, *words).source, "fidelity": "screen", "opponents": {}}
    return await actor.ask(search, number, "evaluate", params, 30, search)


def test_a_candidate_that_ends_its_searchs_worker_is_no_other_searchs_concern():
    async def run():
        async with judge() as actor:
            numbers = [(await actor.start(search, WORDS, None))[1] for search in "ab"]
            dies, other = await asyncio.gather(
                ask(actor, "a", numbers[0], "die_always"), ask(actor, "b", numbers[1], "slow 0.5")
            )
            assert (dies[0], other[0]) == ("WorkerDied", "")
            assert other[1]["status"] == "correct"
            _, again = await actor.start("a", WORDS, None)
            assert (await ask(actor, "a", again))[1]["status"] == "correct"
            assert lines("starts").total() == 3

    asyncio.run(run())


def test_there_are_seats_for_so_many_searches_and_each_is_free_again_when_one_leaves():
    async def run():
        async with judge() as actor:
            for search in range(SEATS):
                assert await actor.start(f"{search}", WORDS, None) == ("", 1)
            fault, why = await actor.start("late", WORDS, None)
            assert (fault, why) == ("PlaceLost", f"{SEATS} other searches are there")
            assert (await actor.beat("late"))["searches"] == SEATS + 1
            await actor.leave("0", forget=True)
            assert await actor.start("late", WORDS, None) == ("", 1)

    asyncio.run(run())


@pytest.mark.slow
def test_a_search_that_is_silent_loses_its_seat_and_one_with_a_call_under_way_does_not(monkeypatch):
    monkeypatch.setattr(judging, "SILENCE_S", 1.0)

    async def run():
        async with judge() as actor:
            for search in ("silent", "busy"):
                await actor.beat(search)
                await actor.start(search, WORDS, None)
            busy = asyncio.create_task(ask(actor, "busy", 1, "slow 3"))
            await until(lambda: len(actor._guests) == 1, "the silent one was not forgotten")
            assert (await busy)[0] == ""

    asyncio.run(run())


def test_a_call_to_a_worker_that_was_replaced_is_no_verdict_of_the_new_one():
    async def run():
        async with judge() as actor:
            await actor.start("a", WORDS, None)
            await actor.start("a", WORDS, None)
            assert (await ask(actor, "a", 1))[0] == "PlaceLost"
            await actor.kill("a", 1, "late")
            assert (await ask(actor, "a", 2))[0] == ""
            await actor.kill("a", 2, "it is enough")
            assert await ask(actor, "a", 2) == ("WorkerDied", "it is enough")

    asyncio.run(run())


def test_an_interpreter_that_is_not_there_is_named():
    async def run():
        async with judge() as actor:
            fault, why = await actor.start("a", WORDS, "./no-python")
            assert fault == "EvaluatorUnavailable"
            assert "device.python=./no-python" in why

    asyncio.run(run())


def test_a_judge_that_no_search_has_waited_for_ends_too(monkeypatch):
    monkeypatch.setattr(judging, "IDLE_S", 0.2)
    ended = threading.Event()
    Judge(ended.set)
    assert ended.wait(10)


def test_a_judge_without_searches_ends_after_some_time(monkeypatch):
    monkeypatch.setattr(judging, "IDLE_S", 0.5)
    monkeypatch.setattr(judging, "SILENCE_S", 0.5)

    async def run():
        ended = asyncio.Event()
        async with judge(ended.set) as actor:
            await actor.beat("a")
            await asyncio.sleep(0.3)
            assert not ended.is_set()
            await ended.wait()
            assert not actor._guests

    asyncio.run(run())
