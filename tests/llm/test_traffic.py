"""Many calls at once, and many faults.

Invariants:
1. Every completion that the server delivered in full is one reply of ours, and no other.
2. Every other call is known to be unbilled, or listed as unknown.
"""

import asyncio
import random
from collections import Counter

import pytest

from evolve.core.errors import ModelUnavailable
from evolve.core.model import CallStatus
from evolve.testing.model_server import Answer, Broken, Hang, Refusal
from tests.llm.conftest import ask, endpoint, request

CALLS = 200
FAULTS = (
    Refusal(429, retry_after=0.02),
    Refusal(500),
    Refusal(503),
    Broken.MALFORMED,
    Broken.TRUNCATED,
    Broken.WRONG_TYPE,
    Hang(0.05),
)


def thirty_percent(asked):
    draw = random.Random(asked.number)
    return draw.choice(FAULTS) if draw.random() < 0.3 else Answer(f"answer to {asked.prompt}")


def test_with_faults_at_thirty_percent_every_delivery_is_stored_and_every_call_accounted_for(serve):
    server = serve(thirty_percent)
    model = endpoint(server, slots=16)
    given_up = Counter()  # calls whose attempts so far no reply counts

    async def one(number):
        while True:
            try:
                return await model.complete(request(f"{number}"), 0)
            except ModelUnavailable as error:  # five faults in a row; the search would pause, too
                given_up[str(number)] += 1
                await asyncio.sleep(min(error.retry_after_s or 0, 0.1))

    async def everything():
        return await asyncio.gather(*(one(number) for number in range(CALLS)))

    replies = asyncio.run(everything())
    statuses = Counter(reply.status for reply in replies)
    assert set(statuses) == {CallStatus.COMPLETED, CallStatus.UNKNOWN}
    assert statuses[CallStatus.COMPLETED] == server.deliveries
    said = server.log.replies
    assert statuses[CallStatus.UNKNOWN] == said["malformed"] + said["truncated"] + said["hang"]
    seen = Counter(asked.prompt for asked in server.log.requests)
    for number, reply in enumerate(replies):
        if reply.status is CallStatus.COMPLETED:
            assert reply.text == f"answer to {number}"
        if str(number) not in given_up:
            assert reply.attempts == seen[str(number)]
    assert len(given_up) < CALLS / 2


@pytest.mark.parametrize("stream", [False, True])
def test_calls_in_a_row_share_a_connection(serve, stream):
    server = serve("done")
    model = endpoint(server, stream=stream)

    async def in_a_row():
        for number in range(10):
            await model.complete(request(str(number)), 0)

    asyncio.run(in_a_row())
    assert server.log.connections == 1


def test_sixteen_calls_at_once_take_as_long_as_one(serve):
    server = serve(Answer("done", delay_s=0.5))
    model = endpoint(server, slots=16)
    ask(model)

    async def all_at_once():
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*(model.complete(request(str(i)), 0) for i in range(16)))
        return asyncio.get_running_loop().time() - start

    assert asyncio.run(all_at_once()) < 3 * 0.5
    assert server.log.most_at_once == 16
