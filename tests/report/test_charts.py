"""The parts that all charts share.

Invariants:
1. Any range of speedups has labels: enough to read others between them, all different, in order.
2. Labels and lines of the same speedup are at the same height.
3. The area of a band is between its two staircases; a step holds until the next.
4. A method's line is the median of its seeds, and its band the interval, which reaches down to the
   edge while a seed has no correct program; one seed has no band.
"""

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from evolve.core.measurement import Ratio
from evolve.report.charts import SIDE, Scale
from evolve.report.comparison.chart import charts
from evolve.report.comparison.curves import AXES, Curve, Group, Point, Spent
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


def seed(*steps: tuple[int, float]) -> Curve:
    """A run of eight units on each axis; a speedup from each of these places on."""
    points = [
        Point(Spent(**dict.fromkeys(AXES, place)), Ratio(speedup, speedup, speedup))
        for place, speedup in steps
    ]
    return Curve(run=None, points=points, total=Spent(**dict.fromkeys(AXES, 8)), champion=None)


def heights(path: str) -> list[tuple[float, float]]:
    """Corners of a path, in units of the first axis and as speedups of a scale from 1 to 4."""
    scale = Scale.around(1.0, 4.0, 0.0, 8.0)
    log = math.log(scale.high / scale.low)
    return [
        (round(x / SIDE * 8, 2), round(scale.low * math.exp((1 - y / SIDE) * log), 2))
        for x, y in corners(path)
    ]


def test_a_band_is_the_interval_around_the_median_of_the_seeds():
    seeds = [seed((0, 1.0), (4, 2.0)), seed((0, 1.0), (4, 3.0)), seed((0, 1.0), (4, 4.0))]
    for chart in charts([Group(label="polca", curves=seeds)]):
        [line] = chart.lines
        assert heights(line.path) == [(0, 1), (4, 1), (4, 3), (8, 3), (8, 3)]
        upper, lower = heights(line.band)[:5], heights(line.band)[:4:-1]
        assert upper == [(0, 1), (4, 1), (4, 4), (8, 4), (8, 4)]
        assert lower == [(0, 1), (4, 1), (4, 2), (8, 2), (8, 2)]


def test_a_band_reaches_the_edge_while_a_seed_has_no_correct_program():
    seeds = [seed((0, 1.0), (4, 4.0)), seed((0, 1.0)), seed((4, 2.0))]
    edge = round(Scale.around(1.0, 4.0, 0.0, 8.0).low, 2)
    [line] = charts([Group(label="polca", curves=seeds)])[0].lines
    lower = heights(line.band)[:4:-1]
    assert lower == [(0, edge), (4, edge), (4, 1), (8, 1), (8, 1)]


def test_a_lone_seed_has_no_band():
    [line] = charts([Group(label="polca", curves=[seed((0, 1.0), (4, 4.0))])])[0].lines
    assert heights(line.path) == [(0, 1), (4, 1), (4, 4), (8, 4), (8, 4)]
    assert line.band == ""
