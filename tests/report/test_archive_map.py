"""Slots as a map: their names are all that is known of an archive here.

Invariants:
1. Cells are found on islands, too, and the island is an axis.
2. Names that are no coordinates give a ranked list, never a map.
"""

from functools import partial

import pytest

from archives import Islands, MapElites, TopK
from evolve.report.run.archive_map import coordinates, heat_map, ranked
from evolve.testing.parts import make_elite

AXES = {"block": [8, 32, 128], "kind": ["a", "b"]}


def filled(archive):
    for number, (block, kind) in enumerate([(8, "a"), (8, "b"), (40, "a"), (40, "b"), (9, "a")]):
        archive.offer(
            make_elite(
                f"p{number}",
                speedup=1 + number,
                sequence=number,
                descriptors={"block": block, "kind": kind},
            )
        )
    return archive.slots()


@pytest.mark.parametrize(
    ("slot", "found"),
    [
        ("block=8..32|kind=a", {"block": "8..32", "kind": "a"}),
        ("block=8..32|kind=a#3", {"block": "8..32", "kind": "a"}),
        ("2/block=8..32|kind=a#3", {"island": "2", "block": "8..32", "kind": "a"}),
        ("17", {}),
        ("2/17", {}),
        ("", {}),
    ],
)
def test_a_slot_name_spells_its_cell(slot, found):
    assert coordinates(slot) == found


def test_cells_are_mapped_and_the_best_of_each_is_shown():
    found = heat_map(filled(MapElites(axes=AXES)))
    assert {found.row_axis, found.column_axis} == {"block", "kind"}
    assert sum(cell is not None for row in found.cells for cell in row) == 4


def test_the_cells_of_islands_lie_over_each_other_or_the_islands_are_an_axis():
    found = heat_map(filled(Islands(of=partial(MapElites, axes=AXES))))
    assert {found.row_axis, found.column_axis, *found.folded} == {"island", "block", "kind"}


@pytest.mark.parametrize("make", [TopK, partial(Islands, of=TopK)])
def test_places_without_a_meaning_are_ranked(make):
    slots = filled(make())
    assert heat_map(slots) is None
    assert [place.sequence for place in ranked(slots)][:1] == [4]
