"""Splits by task family: no test row is of a model that a training row is of, too."""

from collections.abc import Collection, Iterable
from functools import lru_cache

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.trajectories.decontamination.similarity import shape_of

TRAIN, TEST = "train", "test"
_MODEL = "model-"  # how families are called whose tasks declare no category


def families_of(tasks: Iterable[Task], twins: Iterable[tuple[Task, Task]] = ()) -> dict[str, str]:
    """The tasks that each task is kept together with, by revision.

    Tasks of one declared `CATEGORY` are, and tasks of one model: layout, comments, sizes and the
    names of variables make no other one. So a model that one file declares a category for takes
    along those that do not. The categories of a suite (`level1`) say how hard a task is, not what
    it is, and count for nothing.

    Args:
        tasks: all that are to be split.
        twins: pairs of them that compute the same, however it is spelled.
    """
    kin: dict[str, str] = {}  # from the name of a group to that of one which it is kept with

    def family(name: str) -> str:
        while kin.setdefault(name, name) != name:
            name = kin[name]
        return name

    def join(*names: str) -> None:
        heads = [family(name) for name in names]
        head = min(heads, key=lambda name: (name.startswith(_MODEL), name))
        kin.update(dict.fromkeys(heads, head))

    models: dict[str, str] = {}
    for task in tasks:
        model = models[task.revision] = f"{_MODEL}{_model_digest(task.source)[:12]}"
        if task.category and ":" not in task.name:
            join(model, task.category)
    for one, other in twins:
        join(models[one.revision], models[other.revision])
    return {revision: family(model) for revision, model in models.items()}


def family_of(task: Task) -> str:
    """The family of a task among no others."""
    return families_of([task])[task.revision]


@lru_cache(maxsize=256)  # the same tasks come again with every run and row
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
        raise UsageError(
            f"--test-share is {share:g}; take a share of the families from 0 to below 1"
        )
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
