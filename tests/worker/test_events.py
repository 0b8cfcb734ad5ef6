"""Times that a process takes of its own calls.

Invariants:
- what a process says of itself is a time for each name, or nothing at all;
- a device without such events is refused in words.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.timing.cuda_events import read
from tests.worker.serving import RELU_TASK, Worker

TIMES = {"kernelbench_ms": 0.5, "cold_ms": 0.5, "warm_ms": 0.25, "end_to_end_ms": 1}


def test_times_come_back_as_numbers():
    assert read(json.dumps(TIMES)) == TIMES


@pytest.mark.parametrize("bad", [-1, True, None, "1", float("nan"), float("inf"), [1]])
@pytest.mark.parametrize("name", TIMES)
def test_one_time_that_is_none_voids_them_all(name, bad):
    assert read(json.dumps(TIMES | {name: bad})) == {}


def test_a_name_left_out_voids_them_all():
    assert read(json.dumps({"cold_ms": 1.0})) == {}


@given(st.text() | st.just("[" * 100_000))
def test_any_other_text_is_nothing(text):
    assert read(text) == {}


@pytest.mark.slow
def test_a_device_without_events_is_refused_in_words(tmp_path):
    worker = Worker(tmp_path, "--device", "cpu")
    try:
        reply = worker.send("events", task=RELU_TASK.to_json()).result(60)
    finally:
        worker.close()
    assert reply["error"]["kind"] == "usage"
    assert "device=cuda" in reply["error"]["message"]
