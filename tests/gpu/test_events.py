"""Times of the reference by CUDA events.

Invariants:
- they agree with what the judge's own clock reads where a call is long;
- a warm cache is never slower than a cold one by more than noise.
"""

from dataclasses import replace

import pytest

from tests.gpu.programs import RIGHT, SMALL, TASK

LONG = replace(TASK, name="relu2-long", source=TASK.source.replace("4096, 4096", "16384, 16384"))


def test_events_agree_with_the_clock_outside(worker):
    (times,) = worker.ask("events", task=LONG.to_json()).values()
    outside, _, _ = worker.ask("noise", task=LONG.to_json())["reference_ms"]
    print(times, outside)
    assert times["kernelbench_ms"] == pytest.approx(times["cold_ms"], rel=0.03)
    assert times["kernelbench_ms"] == pytest.approx(outside, rel=0.05)


def test_what_fits_the_cache_is_faster_warm(worker):
    (times,) = worker.ask("events", task=SMALL.to_json()).values()
    print(times)
    assert 0 < times["warm_ms"] < 1.1 * times["cold_ms"]
    assert times["cold_ms"] < times["end_to_end_ms"]


def test_a_timed_verdict_has_what_both_sides_say_of_their_calls(worker):
    verdict = worker.evaluate(RIGHT + "\n# told\n", TASK, fidelity="search")
    (row,) = verdict.samples.values()
    print(row["self_reported"], verdict.device_time_s)
    assert set(row["self_reported"]) == {"candidate", "eager"}
    times = verdict.cases[0].times_ms
    for side, said in row["self_reported"].items():
        assert said["cold_ms"] == pytest.approx(times[side].value, rel=0.15)
