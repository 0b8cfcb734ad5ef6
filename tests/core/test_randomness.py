"""Streams are functions of seed, name and number, the same in every process and release."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from evolve.core.randomness import stream

KEYS = st.tuples(st.integers(-10, 10**6), st.text(max_size=8), st.integers(0, 10**6))
FIRST, BITS = 0.33602704984581244, 2175773465


def drawn(key) -> list[int]:
    rng = stream(*key)
    return [rng.getrandbits(64) for _ in range(2)]


def test_the_draws_are_those_of_earlier_releases():
    """Stored runs are replayed with them."""
    assert stream(7, "selection", 3).random() == FIRST
    assert stream(0, "", 0).getrandbits(32) == BITS


@given(KEYS, KEYS)
def test_streams_of_other_keys_differ(one, other):
    assert (drawn(one) == drawn(other)) == (one == other)


def test_parts_of_a_key_do_not_run_into_each_other():
    assert drawn((1, "2", 3)) != drawn((12, "", 3))
    assert drawn((1, "2", 3)) != drawn((1, "", 23))


def test_another_process_draws_the_same():
    code = "from evolve.core.randomness import stream; print(stream(5, 'x', 1).random())"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert float(said) == stream(5, "x", 1).random()
