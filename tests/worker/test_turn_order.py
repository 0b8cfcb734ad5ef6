"""The order of turns in a round.

Invariants:
- every order of sides is followed by its reverse;
- a side goes on where it would have two turns in a row.
"""

import contextlib
import itertools
from collections import Counter
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.devices.window import Block, TimedCase
from evolve.worker.timing import interleaved_blocks as clock


@given(
    st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_every_order_of_sides_is_followed_by_its_reverse(sides, half, rng):
    turns = clock._interleaved(sides, 2 * half, rng)
    assert Counter(turns) == dict.fromkeys(sides, 2 * half)
    each = 2 * len(sides)
    for start in range(0, len(turns), each):
        there_and_back = turns[start : start + each]
        assert there_and_back == there_and_back[::-1]
        assert set(there_and_back[: len(sides)]) == set(sides)


class OrderWindow:
    """Runs nothing, and notes each turn's side and its blocks."""

    holds_back = False

    def __init__(self, turns):
        self._turns = turns

    @contextlib.contextmanager
    def alone(self, side, processes):
        self._turns.append((side, []))
        yield

    def rouse(self, process, case, layout):
        """Nothing sleeps."""

    def run(self, process, case, layout, number, idles=0, **_):
        self._turns[-1][1].append(number)
        return Block(1.0, 1.0, number, {}, idle=(0.1,) * idles)

    def settle(self):
        """Nothing is under way."""

    def charges(self, blocks, reference):
        return [0.0] * len(blocks)


@given(
    st.sampled_from(["candidate eager", "candidate eager elite"]),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_a_side_goes_on_where_it_would_have_two_turns_in_a_row(names, half, each):
    """No side begins twice without another between, and all are timed on the same blocks."""
    sides, count, turns = names.split(), 2 * half * each, []
    device = SimpleNamespace(turn_blocks=each, window=lambda: OrderWindow(turns))
    numbers = list(range(count))
    warm = SimpleNamespace(
        sampled_blocks=range(0), other_block=lambda: None, single=-2,
        case=SimpleNamespace(name="case"),
        draw_blocks=lambda *_: numbers, draw_call=lambda *_: None,
    )  # fmt: skip
    case = TimedCase(warm=warm, calls=1, layouts=dict.fromkeys(sides, ()), blocks=count)
    clock.measure_round(device, dict.fromkeys(sides), [case])
    assert all(side != following for (side, _), (following, _) in itertools.pairwise(turns))
    for side in sides:
        assert [number for one, run in turns if one == side for number in run] == numbers
        assert {len(run) for one, run in turns if one == side} <= {each, 2 * each}
    assert len(turns) < 2 * half * len(sides)
