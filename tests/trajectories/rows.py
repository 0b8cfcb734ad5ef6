"""Rows of a recipe over one search, and what was left out of them."""

from collections import Counter
from collections.abc import Sequence

from evolve.trajectories.tally import Tally
from evolve.trajectories.views.recipes import find_recipe
from evolve.trajectories.views.rows import Row
from tests.trajectories.searched import Searched


def rows(search: Searched, name: str, kind: str, admit=lambda _: None) -> tuple[list[Row], Tally]:
    tally = Tally()
    made = find_recipe(name).rows(search.store, [search.run.id], kind, tally=tally, admit=admit)
    return list(made), tally


def numbers(found: Sequence[Row]) -> list[int]:
    return [row.step.sequence for row in found]


def removed(tally: Tally) -> dict[str, int]:
    flat: Counter[str] = Counter()
    for reasons in tally.removed.values():
        flat.update(reasons)
    return dict(flat)
