"""The best path step by step: what is shown of each station, and where it ends on long ones."""

import string

import pytest

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Ratio
from evolve.report.run.best_lineage import (
    MAX_DIFF_CHARS,
    MAX_DIFF_LINES,
    MAX_LINE,
    MAX_STATIONS,
    Change,
    Station,
    shortened,
    shown,
)
from evolve.report.run.facts import gather
from evolve.report.text import TIMES
from evolve.store import Store
from tests.trajectories.searched import Searched, source, verdict


@pytest.fixture
def search(store: Store) -> Searched:
    return Searched(store)


def stations(search: Searched) -> list[Station]:
    return shown(gather(search.store, search.name)).stations


def code(count: int, line: str) -> str:
    """A program of so many lines of its own."""
    own = "\n".join(f"x{n} = {line}" for n in range(count))
    return f"{own}\n\n\nclass ModelNew:\n    pass\n"


def test_every_station_says_what_it_is_and_what_it_changed(search):
    search.model("A", verdict(1.0), note="first")
    search.built_in("X", verdict(1.0))
    search.model("B", verdict(2.0), "AX", note="n" * 700)
    first, second = stations(search)
    assert first.kind.startswith("starting point, 7 lines of ")
    assert (first.sequence, first.operator, first.note) == (0, "write", "first")
    assert (first.gain, first.gain_span, first.gain_sign, first.diff) == ("", "", "", [])
    assert second.kind == "new program"
    assert second.note == "n" * 600
    assert second.others == ["#1"]
    assert (second.added, second.removed, second.cut) == (1, 1, 0)
    changed = [(line.sign, line.text) for line in second.diff if line.kind in ("add", "del")]
    assert changed == [("\N{MINUS SIGN}", '    name = "A"'), ("+", '    name = "B"')]
    hunk, *rest = second.diff
    assert (hunk.sign, hunk.text[:4]) == ("⋯", "@@ -")
    assert {line.sign for line in rest if line.kind == "same"} == {" "}


@pytest.mark.parametrize(
    ("speedup", "sign"),
    [
        (Ratio(3.0, 2.9, 3.1), "gain"),
        (Ratio(3.0, 1.9, 3.1), "even"),
        (Ratio(3.0, 2.0, 3.1), "even"),  # the interval touches 1
    ],
)
def test_a_gain_is_over_the_station_before(search, speedup, sign):
    search.model("A", verdict(Ratio(2.0, 2.0, 2.0)))
    search.model("B", verdict(speedup), "A")
    first, second = stations(search)
    assert second.gain_sign == sign
    assert (first.speedup, second.speedup, second.gain) == tuple(
        f"{number}{TIMES}" for number in ("2.00", "3.00", "1.50")
    )
    assert second.span == f"{speedup.low:.2f} to 3.10"
    assert second.gain_span.endswith("to 1.55")


def test_a_station_may_be_slower_than_the_one_before(search):
    search.model("A", verdict(2.0))
    search.model("B", verdict(1.0), "A")
    search.model("C", verdict(4.0), "B")
    assert [station.gain_sign for station in stations(search)] == ["", "loss", "gain"]


def test_other_values_of_tunables_are_told_by_name(search):
    search.model("A", verdict(1.0))
    search.built_in("A", verdict(2.0), "A", operator="tune", assignment={"BLOCK": 4})
    station = stations(search)[-1]
    assert station.kind == "other values of its tunables"
    assert station.changes == [Change(name="BLOCK", before=None, after="4")]
    assert station.diff == []


def test_a_verification_gains_nothing(search):
    search.model("A", verdict(1.0))
    search.model("B", verdict(2.0), "A")
    search.verify("B", verdict(3.0, fidelity=Fidelity.VERIFY))
    last = stations(search)[-1]
    assert last.kind.startswith("measured again in fresh processes")
    assert (last.gain, last.gain_sign) == ("", "")


def test_a_long_difference_is_cut_and_counted_whole(search):
    search.model("A", verdict(1.0))
    search.model("B", verdict(2.0), "A", code=code(400, "1"))
    station = stations(search)[-1]
    assert len(station.diff) == MAX_DIFF_LINES
    assert station.added >= 400
    whole = station.added + station.removed + 1  # and the mark of the place
    same = sum(line.kind == "same" for line in station.diff)
    assert station.cut >= whole - MAX_DIFF_LINES > 0
    assert station.cut <= whole + same + 10 - MAX_DIFF_LINES


def test_the_differences_of_all_stations_share_their_room(search):
    """Two of 290 lines of some 300 characters, and what they are in place of."""
    search.model("A", verdict(1.0), code=code(290, f'"{"y" * 400}"'))
    search.model("B", verdict(2.0), "A", code=code(290, f'"{"z" * 400}"'))
    search.model("C", verdict(3.0), "B", code=code(290, f'"{"w" * 400}"'))
    first, second = stations(search)[1:]
    sizes = [sum(len(line.text) for line in station.diff) for station in (first, second)]
    assert len(first.diff) == MAX_DIFF_LINES
    assert MAX_DIFF_CHARS - 2 * MAX_LINE < sum(sizes) <= MAX_DIFF_CHARS
    assert 0 < len(second.diff) < MAX_DIFF_LINES
    assert max(len(line.text) for line in first.diff) < MAX_LINE + 40


def test_of_a_long_path_the_first_and_the_last_stations_are_shown(search):
    names = [*string.ascii_letters][: MAX_STATIONS + 3]
    search.model(names[0], verdict(1.0))
    for number, name in enumerate(names[1:], start=1):
        search.model(name, verdict(1.0 + number), names[number - 1])
    found = shown(gather(search.store, search.name))
    assert found.left_out == 3
    assert [station.sequence for station in found.stations] == [0, *range(4, MAX_STATIONS + 3)]
    assert source(names[0]) != source(names[1])


@pytest.mark.parametrize(("length", "more"), [(MAX_LINE, ""), (MAX_LINE + 1, "1 more characters")])
def test_a_line_is_shortened_to_what_a_page_can_hold(length, more):
    found = shortened("x" * length)
    assert found.startswith("x" * MAX_LINE)
    assert found[MAX_LINE:] == (f" … ({more})" if more else "")
