"""Rate limits hold over any minute, in order of arrival. The minutes here are short.

Invariants:
1. Within any window no more than the limit is taken, and what is over waits its turn.
2. An amount above the whole limit is let through alone, not never.
"""

import asyncio
import time

import pytest

from evolve.core.errors import ModelUnavailable
from evolve.llm.limits import Gate, Window
from evolve.llm.outage import Circuit

MINUTE_S = 0.4


def taken_at(amounts, limit):
    """When each amount was let through, in order of arrival, in seconds since the start."""

    async def take_all():
        window = Window(limit, MINUTE_S)
        start = time.monotonic()
        entries = await asyncio.gather(*(window.take(amount) for amount in amounts))
        return [entry.at - start for entry in entries]

    return asyncio.run(take_all())


def test_no_more_than_the_limit_passes_in_any_window():
    times = taken_at([1] * 7, limit=3)
    assert times == sorted(times)
    for earlier, later in zip(times, times[3:], strict=False):
        assert later - earlier >= MINUTE_S * 0.99
    assert times[6] < 3 * MINUTE_S


def test_an_amount_above_the_limit_passes_alone():
    first, large, last = taken_at([1, 50, 1], limit=10)
    assert large - first >= MINUTE_S * 0.99
    assert last - large >= MINUTE_S * 0.99


def test_without_a_limit_nothing_waits():
    assert max(taken_at([10**9] * 100, limit=None)) < MINUTE_S


def test_what_was_not_used_is_given_back():
    async def second_waits():
        window = Window(100, MINUTE_S)
        entry = await window.take(90)
        entry.amount = 10
        start = time.monotonic()
        await window.take(90)
        return time.monotonic() - start

    assert asyncio.run(second_waits()) < MINUTE_S / 2


def test_a_cancelled_wait_takes_nothing():
    async def third_passes():
        window = Window(1, MINUTE_S)
        await window.take(1)
        waiting = asyncio.create_task(window.take(1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        start = time.monotonic()
        await window.take(1)
        return time.monotonic() - start

    assert asyncio.run(third_passes()) <= MINUTE_S * 1.2


def test_a_gate_counts_requests_and_tokens():
    async def passages(**limits):
        gate = Gate(minute_s=MINUTE_S, **limits)
        start = time.monotonic()

        async def one():
            async with gate.passage(40, 9):
                return time.monotonic() - start

        return sorted(await asyncio.gather(*(one() for _ in range(3))))

    assert asyncio.run(passages(requests_per_minute=2))[2] >= MINUTE_S * 0.99
    assert asyncio.run(passages(tokens_per_minute=80))[2] >= MINUTE_S * 0.99
    assert asyncio.run(passages())[2] < MINUTE_S / 2


@pytest.mark.slow  # the next test has both limits
def test_who_waited_for_a_limit_waits_for_the_endpoint_too():
    async def second():
        gate = Gate(requests_per_minute=1, minute_s=MINUTE_S)
        async with gate.passage(1, 9):
            pass
        start = time.monotonic()
        asyncio.get_running_loop().call_later(MINUTE_S / 4, gate.hold, 3 * MINUTE_S, "429")
        async with gate.passage(1, 9):
            return time.monotonic() - start

    assert asyncio.run(second()) >= 3 * MINUTE_S


def test_who_waited_for_a_limit_hears_that_the_endpoint_wants_longer_than_he_can_wait():
    async def second():
        gate = Gate(tokens_per_minute=10, minute_s=MINUTE_S)
        async with gate.passage(10, 1):
            pass
        asyncio.get_running_loop().call_later(MINUTE_S / 4, gate.hold, 60, "429")
        with pytest.raises(ModelUnavailable, match="429"):
            async with gate.passage(10, 1):
                pass

    asyncio.run(second())


def test_a_circuit_opens_after_faults_in_a_row_and_admits_one_call_per_pause():
    circuit = Circuit(threshold=2, first_pause_s=0.1, longest_pause_s=10)
    circuit.fault("first")
    assert circuit.admit()
    circuit.answer()
    circuit.fault("second")
    assert not circuit.is_open
    circuit.fault("third")
    assert circuit.is_open
    assert not circuit.admit()
    assert 0 < circuit.wait_s <= 0.1
    time.sleep(0.12)
    assert circuit.admit()
    assert not circuit.admit()
    assert circuit.wait_s == pytest.approx(0.2, abs=0.05)
    circuit.answer()
    assert circuit.admit()


def test_late_faults_of_calls_under_way_do_not_lengthen_the_pause():
    circuit = Circuit(threshold=2, first_pause_s=5)
    for _ in range(40):
        circuit.fault("refused")
    assert circuit.wait_s <= 5
    assert circuit.faults == 40
