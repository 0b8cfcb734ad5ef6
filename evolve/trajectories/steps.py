"""Steps of stored runs, in order, a page at a time."""

from collections.abc import Iterator, Sequence

from evolve.store import Store
from evolve.trajectories.step import Step


def steps(
    store: Store, run_ids: Sequence[int], *, texts: bool = True, samples: bool = False
) -> Iterator[Step]:
    """Every told step of the runs, run by run in the order given, each in sequence order.

    Memory does not grow with the number of steps beyond a few bytes for each.

    Args:
        store: the database.
        run_ids: of the runs (`RunRow.id`).
        texts: with sources, prompts and replies, which are most of the work.
        samples: with the raw paired times of each step's own evaluation.
    """
    raise NotImplementedError
