"""Waiting for the driver to wipe what was given back.

Invariants:
- the more was given back, the longer the wait; and no wait for what was long ago;
- what was given back at several times is wiped one after the other, and no longer than all that a
  device has.
"""

import time

import pytest

from evolve.worker.wiping import Wiping

GB = 1 << 30


def waited(wiping: Wiping) -> float:
    start = time.monotonic()
    wiping.wait()
    return time.monotonic() - start


@pytest.mark.quiet
def test_nothing_given_back_is_no_wait():
    assert waited(Wiping()) < 0.01


@pytest.mark.quiet
def test_the_wait_grows_with_what_was_given_back_in_all():
    once, twice = Wiping(), Wiping()
    twice.note(20 * GB)
    twice.note(20 * GB)
    once.note(20 * GB)
    assert 0.03 < waited(once) < 0.09
    assert 0.03 < waited(twice) < 0.13  # beside the other's
    assert waited(twice) < 0.01


def test_what_was_long_ago_is_done():
    wiping = Wiping()
    wiping.note(10 * GB)
    time.sleep(0.05)
    assert waited(wiping) < 0.01


def test_much_of_it_is_waited_for_once():
    wiping = Wiping()
    for _ in range(1000):
        wiping.note(100 * GB)
    assert waited(wiping) < 1.0
    assert waited(wiping) < 0.01
