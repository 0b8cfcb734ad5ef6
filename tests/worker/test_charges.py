"""What a side of a comparison is charged for work outside of its runs, on the CPU.

Invariants: sides that take the same are charged the same, however much processes differ; what a
side takes beyond that is charged whole.
"""

import numpy as np
import pytest

from evolve.worker.device_cpu import CpuDevice
from evolve.worker.window import Block, Usual
from evolve.worker.window_cpu import CpuWindow

BLOCKS = 24


def blocks(rng, more_s=0.0):
    """Of one process, which takes some more or less for all of them; seconds."""
    staged = 6.7e-3 * (1 + rng.normal(0, 0.03) + rng.normal(0, 0.06, BLOCKS)) + more_s
    return [Block(10e-3, 10e-3, at, {}, (each, each, 1e-4)) for at, each in enumerate(staged)]


def charged(sittings, usual_of, more_s=0.0):
    """Mean seconds a block that either side is charged, over some sittings."""
    rng, window = np.random.default_rng(1), CpuWindow(CpuDevice())
    totals = {"candidate": 0.0, "eager": 0.0}
    for _ in range(sittings):
        sides = {"candidate": blocks(rng, more_s), "eager": blocks(rng)}
        usual = usual_of().after(1, sides["eager"])
        for side, taken in sides.items():
            totals[side] += float(np.mean(window.charges(taken, usual)))
    return {side: total / sittings for side, total in totals.items()}


def test_sides_that_take_the_same_are_charged_the_same():
    usual = Usual()
    kept = charged(3000, lambda: usual)
    assert kept["candidate"] == pytest.approx(kept["eager"], rel=0.05)
    forgotten = charged(3000, Usual)  # as it would be by each sitting alone
    assert forgotten["candidate"] > 1.1 * forgotten["eager"]


def test_what_a_side_takes_beyond_the_usual_is_charged():
    usual = Usual()
    found = charged(100, lambda: usual, more_s=5e-3)
    assert found["candidate"] == pytest.approx(5e-3, rel=0.1)
    assert found["eager"] < 0.5e-3


def test_blocks_of_different_lengths_have_different_usuals():
    usual, rng = Usual(), np.random.default_rng(1)
    usual.after(1, blocks(rng, more_s=1.0))
    assert usual.after(2, blocks(rng))[0] < 0.1
