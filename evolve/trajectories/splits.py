"""Splits by task family: no test row differs from a training row by a size only."""

from collections.abc import Collection
from functools import lru_cache

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.trajectories.likeness import shape_of

TRAIN, TEST = "train", "test"


def family_of(task: Task) -> str:
    """What a task is kept together with: its declared `CATEGORY`, else tasks of the same model.

    Layout, comments and sizes make no other model. The categories of a suite (`level1`) say how
    hard a task is, not what it is, and are no family.
    """
    if task.category and ":" not in task.name:
        return task.category
    return f"source-{_model_digest(task.source)[:12]}"


@lru_cache(maxsize=256)  # it is asked for every row
def _model_digest(source: str) -> str:
    return shape_of(source).digest


def test_families(
    families: Collection[str], share: float, named: Collection[str] = ()
) -> frozenset[str]:
    """The families whose rows are for testing.

    Without names, `share` of the families rounded down, in an order that a digest of their names
    gives: the same families give the same split again, and few of them give no test split.

    Raises:
        UsageError: the share is not in [0, 1), or a name is no family of the export.
    """
    if not 0 <= share < 1:
        raise UsageError(f"--test-share is {share:g}; take a share of the families, 0 up to 0.9")
    known = sorted(set(families))
    for name in named:
        if name not in known:
            raise UsageError(
                f"--test-family {name}: no task of these runs is of that family; "
                f"there are {', '.join(known) or 'none'}"
            )
    if named:
        return frozenset(named)
    ranked = sorted(known, key=lambda family: framed_digest("split", family))
    return frozenset(ranked[: int(share * len(ranked))])
