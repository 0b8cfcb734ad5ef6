"""A pool whose places come and go: real places, with workers in this process that obey.

Invariants:
- a call under way at a lost place is asked of another, once, and no candidate is blamed;
- a candidate that costs hosts their lives costs three of them at most, and no neighbour its answer;
- while there is no place calls wait, and it is said why; if none can come they fail;
- a place whose verdicts cannot be compared is refused, and the others go on.
"""

import asyncio
from collections import Counter

import pytest

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation import Deadlines
from evolve.worker.service.dispatch.faults import CallFailed, PlaceLost, WorkerDied
from evolve.worker.service.dispatch.place import Place
from evolve.worker.service.dispatch.pool import Pool

HELLO = {"device_class": "stub", "evaluator_version": "1", "slots": 2}


class Host:
    """A place with its worker: calls end when told to, and all at once if the host is lost."""

    def __init__(self, name: str, **hello: object) -> None:
        self.hello = HELLO | hello
        self.asked: Counter[str] = Counter()
        self.lost = False
        self.alive = True
        self.phases: dict[str, str] = {}
        self._waiting: list[asyncio.Future] = []
        self.place = Place(name, self._start, Deadlines())

    async def _start(self) -> "Host":
        if self.lost:
            raise PlaceLost("the host has gone")
        self.alive = True
        return self

    async def ask(self, method, params, deadline_s, about=""):
        if method == "hello":
            return self.hello
        self.asked[about] += 1
        if about == "host killer":
            self.lose()
        if about == "killer":
            self.alive = False
            raise WorkerDied("the worker died")
        if self.lost:
            raise PlaceLost("the host has gone")
        if about == "long":
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
        await asyncio.sleep(0)
        return f"{about} at {self.place.name}"

    def lose(self) -> None:
        self.lost = True
        self.kill("")

    def finish(self) -> None:
        for waiting in self._waiting:
            waiting.set_result(None)
        self._waiting.clear()

    def kill(self, why):
        self.alive = False
        for waiting in self._waiting:
            waiting.set_exception(PlaceLost("the host has gone"))
        self._waiting.clear()

    async def close(self, close_s):
        self.kill("")


def hosts(names: str) -> list[Host]:
    return [Host(name) for name in names]


async def elastic(among: list[Host], missing: str = "waiting for others") -> tuple[Pool, list[str]]:
    said: list[str] = []
    pool = Pool([], said.append, missing)
    for host in among:
        await pool.add(host.place)
    return pool, said


def ask(pool: Pool, about: str) -> "asyncio.Task[str]":
    return asyncio.create_task(pool.call("evaluate", {}, 30, about, "task"))


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_what_a_lost_place_had_under_way_is_asked_of_another_once():
    async def run():
        a, b = hosts("ab")
        pool, said = await elastic([a])
        calls = [ask(pool, "long"), ask(pool, "long")]
        await settle()
        await pool.add(b.place)
        a.lose()
        await settle()
        b.finish()
        assert [await call for call in calls] == ["long at b"] * 2
        assert (a.asked, b.asked) == ({"long": 2}, {"long": 2})
        assert said == ["a gets no more candidates: the host has gone"]
        assert [place.name for place in pool.places] == ["b"]
        assert not a.place.blamed

    asyncio.run(run())


def test_a_candidate_that_costs_hosts_their_lives_costs_three_and_no_neighbour_its_answer():
    async def run():
        pool, _ = await elastic(hosts("abcdef"))
        names = [f"fine {n}" for n in range(4)]
        killer, *others = [ask(pool, about) for about in ("host killer", *names)]
        with pytest.raises(CallFailed, match="3 places were lost under it: the host has gone"):
            await killer
        assert [(await call)[:-5] for call in others] == names
        assert len(pool.in_service) == 3

    asyncio.run(run())


def test_a_candidate_that_kills_workers_is_asked_twice_and_its_places_stay():
    async def run():
        a, b = hosts("ab")
        pool, _ = await elastic([a, b])
        with pytest.raises(WorkerDied):
            await ask(pool, "killer")
        assert (a.asked["killer"], b.asked["killer"]) == (1, 1)
        assert await ask(pool, "fine")
        assert len(pool.in_service) == 2

    asyncio.run(run())


def test_a_call_waits_for_the_first_place_and_says_so_after_some_time(monkeypatch):
    monkeypatch.setattr("evolve.worker.service.dispatch.pool.PATIENCE_S", 0.05)

    async def run():
        pool, said = await elastic([])
        calls = [ask(pool, "one"), ask(pool, "two")]
        await asyncio.sleep(0.02)
        assert said == []
        await asyncio.sleep(0.1)
        assert said == ["no judge is in service; waiting for others"]
        (host,) = hosts("a")
        await pool.add(host.place)
        assert {await call for call in calls} == {"one at a", "two at a"}

    asyncio.run(run())


def test_calls_go_on_when_all_places_were_lost_and_others_come(monkeypatch):
    monkeypatch.setattr("evolve.worker.service.dispatch.pool.PATIENCE_S", 0.0)

    async def run():
        a, b = hosts("ab")
        pool, said = await elastic([a])
        a.lose()
        call = ask(pool, "fine")
        await asyncio.sleep(0.02)
        assert said[-1] == "no judge is in service; waiting for others"
        assert pool.hello["device_class"] == "stub"
        await pool.add(b.place)
        assert await call == "fine at b"

    asyncio.run(run())


def test_a_place_that_was_removed_gets_no_more_calls_and_one_that_came_back_does():
    async def run():
        a, b = hosts("ab")
        pool, said = await elastic([a, b])
        pool.remove(a.place, "its node has left")
        pool.remove(a.place, "its node has left")
        assert [await ask(pool, f"{n}") for n in range(3)] == [f"{n} at b" for n in range(3)]
        assert said == ["a gets no more candidates: its node has left"]
        again = Host("a")
        await pool.add(again.place)
        pool.remove(b.place, "its node has left")
        assert await ask(pool, "fine") == "fine at a"

    asyncio.run(run())


def test_without_places_that_may_come_a_call_fails_at_once():
    async def run():
        pool, _ = await elastic([], missing="")
        with pytest.raises(EvaluatorUnavailable, match="no device is left"):
            await ask(pool, "fine")

    asyncio.run(run())


@pytest.mark.parametrize("field", ["device_class", "evaluator_version"])
def test_a_place_whose_verdicts_cannot_be_compared_is_refused_with_both_named(field):
    async def run():
        (a,), other = hosts("a"), Host("b", **{field: "another"})
        pool, _ = await elastic([a])
        with pytest.raises(UsageError, match=rf"a is {HELLO[field]}, and b is another: .*compared"):
            await pool.add(other.place)
        assert await ask(pool, "fine") == "fine at a"
        assert [place.name for place in pool.places] == ["a"]

    asyncio.run(run())


def test_closing_ends_calls_that_wait_for_a_place():
    async def run():
        pool, _ = await elastic([])
        call = ask(pool, "fine")
        await settle()
        await pool.close()
        with pytest.raises(EvaluatorUnavailable, match="closed"):
            await call
        with pytest.raises(EvaluatorUnavailable, match="closed"):
            await pool.add(Host("a").place)

    asyncio.run(run())
