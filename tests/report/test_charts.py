"""The parts that all charts share.

Invariants:
1. Any range of speedups has labels: enough to read others between them, all different, in order.
2. Labels and lines of the same speedup are at the same height.
3. The area of a band is between its two staircases; a step holds until the next.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from evolve.report.charts import SIDE, Scale
from evolve.report.text import TIMES


@given(st.floats(0.01, 1000), st.floats(0.01, 100))
def test_any_range_of_speedups_has_four_to_nine_labels(one: float, other: float):
    scale = Scale.around(min(one, other), max(one, other), 0.0, 1.0)
    labels = [float(tick.label.removesuffix(TIMES)) for tick in scale.y_ticks()]
    assert 4 <= len(labels) <= 9
    assert labels == sorted(set(labels))
    assert all(scale.low <= label <= scale.high for label in labels)


def test_a_label_is_at_the_height_of_its_speedup():
    scale = Scale.around(0.5, 8.0, 0.0, 1.0)
    for tick in scale.y_ticks():
        assert tick.place / 100 * SIDE == scale.y(float(tick.label.removesuffix(TIMES)))
    assert scale.y(scale.low) == SIDE
    assert scale.y(scale.high) == 0
    assert scale.y(2.0) == SIDE / 2


def test_no_gain_has_a_height_only_if_it_is_on_the_scale():
    assert Scale(0.5, 2.0, 0.0, 1.0).one == SIDE / 2
    assert Scale(1.5, 2.0, 0.0, 1.0).one is None
    assert Scale(0.5, 0.9, 0.0, 1.0).one is None


def corners(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path)]


def test_a_step_holds_until_the_next():
    scale = Scale(1.0, 4.0, 0.0, 10.0)
    assert corners(scale.staircase([(0, 1.0), (5, 2.0)])) == [(0, 1000), (500, 1000), (500, 500)]


def test_a_band_goes_along_the_upper_steps_and_back_along_the_lower():
    scale = Scale(1.0, 4.0, 0.0, 10.0)
    upper, lower = [(0, 2.0), (10, 4.0)], [(0, 1.0), (10, 2.0)]
    there, back = corners(scale.staircase(upper)), corners(scale.staircase(lower))
    assert corners(scale.band(upper, lower)) == there + back[::-1]
    assert scale.band([], []) == ""
