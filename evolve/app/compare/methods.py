"""Which runs are of one method of a search."""

from collections.abc import Sequence
from itertools import takewhile

from evolve.app.config.moved import with_present_classes
from evolve.core.digest import canonical_json
from evolve.core.records import RECORDED
from evolve.store import RunRow

OF_A_RUN = (  # settings that do not make another method of a search
    *("name", "seed", "on_exists", "termination", "device", "sandbox", "store", "cluster", "cuda"),
    *("trackers", *RECORDED),
)


def methods_of(runs: Sequence[RunRow]) -> dict[str, list[str]]:
    """Names of runs by method: those whose settings differ in the seed only are of one.

    A method of several runs is identified by the prefix of their names.
    """
    alike: dict[str, list[str]] = {}
    for run in runs:
        config = with_present_classes(run.config)
        telling = {name: value for name, value in config.items() if name not in OF_A_RUN}
        alike.setdefault(canonical_json(telling), []).append(run.name)
    methods: dict[str, list[str]] = {}
    for names in alike.values():
        label = _common(names).rstrip("-_.").removesuffix("-s") if len(names) > 1 else names[0]
        methods[label if label and label not in methods else names[0]] = names
    return methods


def _common(names: Sequence[str]) -> str:
    """The common prefix of all names."""
    pairs = zip(min(names), max(names), strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
