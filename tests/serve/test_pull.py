"""Workers that fetch evaluations: a real server, real HTTP, judges in this process that obey.

Invariants:
- after a worker's end or silence another is asked, once;
- the first answer counts, whichever worker gives it; a late one is dropped, a repeated one too;
- what a worker has judged, or is at, is not judged again when the search is started again;
- a worker whose verdicts cannot be compared is told so in a line, and the others go on;
- without the token there is nothing.
"""

import asyncio
import json
from collections import Counter

import httpx
import pytest

import evolve
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Status
from evolve.serve.pull.evaluator import GATHER_S
from tests.forked import start
from tests.serve.pulling import (
    HELLO,
    TOKEN,
    Judge,
    free_port,
    request,
    searching,
    verdict,
    working,
)


class Hand:
    """A worker by hand: requests, one by one."""

    def __init__(self, port: int, name: str = "hand", token: str = TOKEN) -> None:
        self.name = name
        self.session = ""
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}
        )

    async def post(self, path: str, **body: object) -> httpx.Response:
        while True:
            try:
                return await self._http.post(path, json=body, timeout=30)
            except httpx.ConnectError:
                await asyncio.sleep(0.02)

    async def hello(self, instance: str = "1", **changed: object) -> httpx.Response:
        body = {"protocol": 1, "version": evolve.__version__, "facts": HELLO, "holds": []}
        response = await self.post(
            "/v1/hello", **(body | {"name": self.name, "instance": instance} | changed)
        )
        self.session = response.json().get("session", "")
        return response

    async def poll(self, *has: str) -> dict:
        response = await self.post("/v1/poll", session=self.session, has=dict.fromkeys(has, ""))
        assert response.status_code == 200, response.text
        return response.json()

    async def fetch(self) -> dict:
        """The next call."""
        while not (told := await self.poll()).get("calls"):
            pass
        return told["calls"][0]

    async def answer(self, call: dict, feedback: str = "by hand") -> bool:
        result = json.dumps(verdict("screen", feedback, HELLO))
        response = await self.post("/v1/answer", id=call["id"], key=call["key"], result=result)
        assert response.status_code == 200, response.text
        return response.json()["accepted"]


def run(test) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(within())


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_evaluations_are_shared_out_to_workers_that_come_and_go():
    async def test():
        port, judges = free_port(), [Judge(latency_s=0.05) for _ in range(3)]
        async with working(port, judges[0], name="a"), searching(port) as judge:
            async with working(port, judges[1], name="b"), working(port, judges[2], name="c"):
                await until(lambda: judge.slots == 3)
                verdicts = await asyncio.gather(
                    *(judge.evaluate(request(marker=f"m{n}")) for n in range(12))
                )
                assert {each.status for each in verdicts} == {Status.CORRECT}
                assert all(each.answered for each in judges)
            await until(lambda: judge.slots == 1)
            assert (await judge.evaluate(request(marker="last"))).status is Status.CORRECT
            assert judges[0].answered[-1] == "last"

    run(test())


@pytest.mark.slow  # many workers; few that come and go are above
def test_sixty_four_workers_judge_each_evaluation_once():
    async def test():
        port, judges = free_port(), [Judge(latency_s=0.2) for _ in range(64)]
        async with working(port, *judges), searching(port, lease_s=20.0) as judge:
            await until(lambda: judge.slots == 64)
            asked = [f"m{n}" for n in range(256)]
            at_once = asyncio.Semaphore(judge.slots)

            async def ask(marker: str) -> None:
                async with at_once:
                    await judge.evaluate(request(marker=marker))

            await asyncio.gather(*map(ask, asked))
        assert Counter(each for one in judges for each in one.asked) == Counter(asked)
        assert all(one.answered for one in judges)

    run(test())


def test_what_a_silent_worker_has_is_judged_by_another_and_its_late_answer_dropped():
    async def test():
        port, other = free_port(), Judge()
        hand = Hand(port)
        starting = asyncio.create_task(hand.hello())
        async with searching(port, lease_s=1.0) as judge:
            await starting
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            call = await hand.fetch()
            async with working(port, other, name="other"):
                found = await asked
                assert found.feedback == "judged 1"
                assert other.asked == ["m"]
                assert not await hand.answer(call)
                assert (
                    await hand.post("/v1/poll", session=hand.session, has={})
                ).status_code == 410

    run(test())


def test_the_late_answer_of_a_silent_worker_counts_if_nobody_else_has_answered():
    async def test():
        port, other = free_port(), Judge()
        other.go.clear()
        hand = Hand(port)
        starting = asyncio.create_task(hand.hello())
        async with searching(port, lease_s=1.0) as judge, working(port, other, name="other"):
            await starting
            await until(lambda: judge.slots == 2)
            asked = [asyncio.create_task(judge.evaluate(request(marker=marker))) for marker in "mn"]
            call = await hand.fetch()
            marker = call["about"]
            await until(lambda: other.asked.count(marker) or judge.slots == 1)
            assert await hand.answer(call, "late")
            assert not await hand.answer(call, "later")
            other.go.set()
            await asyncio.gather(*asked)
            assert asked["mn".index(marker)].result().feedback == "late"
            again = await judge.evaluate(request(marker="o"))
            assert again.feedback.startswith("judged")

    run(test())


def test_a_worker_that_is_started_again_frees_what_it_had_at_once():
    async def test():
        port, hand = free_port(), None
        hand = Hand(port)
        starting = asyncio.create_task(hand.hello("first"))
        async with searching(port, lease_s=600.0) as judge:
            await starting
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            first = await hand.fetch()
            await hand.hello("second")
            second = await hand.fetch()
            assert (first["id"], first["key"]) != (second["id"], second["key"])
            assert first["key"] == second["key"]
            assert await hand.answer(second)
            assert (await asked).feedback == "by hand"

    run(test())


def test_a_call_that_was_lost_on_the_way_is_given_again_and_its_answer_taken_once():
    async def test():
        port, hand = free_port(), None
        hand = Hand(port)
        starting = asyncio.create_task(hand.hello())
        async with searching(port, lease_s=20.0) as judge:
            await starting
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            lost = await hand.fetch()
            call = await hand.fetch()
            assert call == lost
            answers = await asyncio.gather(*(hand.answer(call) for _ in range(3)))
            assert sorted(answers) == [False, False, True]
            assert (await asked).status is Status.CORRECT
            assert (await hand.hello()).json()["session"] == hand.session

    run(test())


@pytest.mark.slow
def test_what_was_under_way_or_finished_when_a_search_was_killed_is_not_judged_again():
    async def test():
        port, one, other = free_port(), Judge(slots=2), Judge(slots=2)
        one.go.clear()
        async with working(port, one, name="one"):
            killed = start("tests.serve.pull_search", str(port), "20", "m", "n")
            await until(lambda: len(one.asked) == 2)
            killed.kill()
            killed.wait(10)
            one.finish("m")
            await until(lambda: one.answered == ["m"])
            async with (
                working(port, other, name="other"),
                searching(port, gather_s=GATHER_S) as judge,
            ):
                asked = [judge.evaluate(request(marker=each)) for each in "mn"]
                asked = [asyncio.create_task(each) for each in asked]
                assert (await asked[0]).feedback == "judged 1"
                one.go.set()
                assert (await asked[1]).feedback == "judged 2"
                assert (sorted(one.asked), other.asked) == (["m", "n"], [])
                await judge.evaluate(request(marker="m", repeat=1))
                assert len(one.asked) + len(other.asked) == 3

    run(test())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": "0.0.1"}, "this worker is evolve-kernels 0.0.1"),
        ({"protocol": 7}, "install the same version on both hosts"),
        ({"facts": HELLO | {"device_class": "cuda-NVIDIA H100"}}, "device=cuda"),
        ({"facts": HELLO | {"device_class": "cpu-other"}}, "devices of one model"),
        ({"facts": HELLO | {"evaluator_version": "stub-2"}}, "judge version stub-2"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused_with_the_reason(changed, message):
    async def test():
        port, first = free_port(), Judge()
        async with working(port, first), searching(port) as judge:
            refused = await Hand(port).hello(**changed)
            assert refused.status_code == 409
            assert message in refused.json()["detail"]
            assert judge.slots == 1
            assert (await judge.evaluate(request(marker="m"))).status is Status.CORRECT

    run(test())


def test_a_worker_that_is_refused_ends_with_the_reason():
    async def test():
        port = free_port()
        other = Judge(evaluator_version="stub-2")
        async with (
            working(port, Judge(), name="first"),
            searching(port),
            working(port, other, name="second") as second,
        ):
            with pytest.raises(UsageError, match="judge version stub-2"):
                await second

    run(test())


def test_nothing_is_answered_without_the_token():
    async def test():
        port = free_port()
        async with working(port, Judge()), searching(port):
            stranger = Hand(port, token="another-token-of-some-length")
            for path in ("/v1/check", "/v1/hello", "/v1/poll", "/v1/answer", "/v1/leave", "/"):
                assert (await stranger.post(path)).status_code == 401, path

    run(test())


MALFORMED = [
    ("/v1/hello", {"name": "x", "instance": "y", "facts": {}}),
    ("/v1/hello", {"name": "x", "instance": "y", "facts": HELLO, "holds": [1]}),
    ("/v1/hello", {"name": "\x1b[2J", "instance": "y", "facts": HELLO}),
    ("/v1/hello", {"name": "x", "instance": "y", "facts": HELLO | {"slots": 0}}),
    ("/v1/hello", {"name": 7, "instance": "y", "facts": HELLO}),
    ("/v1/poll", {"session": "none", "has": []}),
    ("/v1/answer", {"id": "x", "key": "y"}),
    ("/v1/answer", {"id": "x", "key": "y", "error": {"kind": "x"}}),
    ("/v1/answer", {"id": "x", "key": "y", "result": {}}),
]


def test_malformed_requests_are_refused():
    async def test():
        port, told = free_port(), {"protocol": 1, "version": evolve.__version__}
        async with working(port, Judge()), searching(port) as judge:
            for path, body in MALFORMED:
                assert (await Hand(port).post(path, **told, **body)).status_code == 422, body
            assert judge.slots == 1

    run(test())


def test_a_verdict_that_is_none_is_asked_of_the_judge_once_more():
    async def test():
        port = free_port()
        hand = Hand(port)
        starting = asyncio.create_task(hand.hello())
        async with searching(port) as judge:
            await starting
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            call = await hand.fetch()
            wrong = json.dumps({"status": "correct"})
            await hand.post("/v1/answer", id=call["id"], key=call["key"], result=wrong)
            assert await hand.answer(await hand.fetch())
            assert (await asked).feedback == "by hand"

    run(test())


def test_evaluations_that_are_given_up_end_the_judge_and_the_next_one_is_judged():
    async def test():
        port, one = free_port(), Judge()
        one.go.clear()
        async with working(port, one), searching(port, lease_s=2.0) as judge:
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            await until(lambda: one.asked)
            await until(lambda: judge.phase_of("m"))
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            judge.abandon()
            await until(lambda: not one.alive)
            one.go.set()
            assert (await judge.evaluate(request(marker="n"))).status is Status.CORRECT

    run(test())


def test_a_worker_whose_judge_fails_again_and_again_is_left_out_and_hears_it():
    async def test():
        port, broken, well = free_port(), Judge(), Judge()
        broken.fails = True
        async with (
            working(port, well, name="well"),
            searching(port, lease_s=1.0) as judge,
            working(port, broken, name="broken") as worker,
        ):
            await until(lambda: judge.slots == 2)
            number = 0
            while not worker.done():
                found = await asyncio.gather(
                    *(judge.evaluate(request(marker=f"m{number + n}")) for n in range(2))
                )
                assert {each.status for each in found} == {Status.CORRECT}
                number += 2
            with pytest.raises(EvaluatorUnavailable, match="broken gets no more evaluations"):
                await worker
            assert judge.slots == 1

    run(test())


def test_a_search_that_closes_tells_its_workers_and_fails_its_calls():
    async def test():
        port, one, said = free_port(), Judge(), []
        one.go.clear()
        async with working(port, one, said=said):
            async with searching(port) as judge:
                asked = asyncio.create_task(judge.evaluate(request(marker="m")))
                await until(lambda: one.asked)
            with pytest.raises(EvaluatorUnavailable):
                await asked
            await until(lambda: any("has ended" in line for line in said))

    run(test())


def test_phases_come_with_the_polls():
    async def test():
        port, one = free_port(), Judge()
        one.go.clear()
        async with working(port, one), searching(port, lease_s=1.0) as judge:
            asked = asyncio.create_task(judge.evaluate(request(marker="m")))
            await until(lambda: judge.phase_of("m") == "timing")
            one.go.set()
            await asked

    run(test())
