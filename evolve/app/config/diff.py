"""The settings that may differ between a stored run and the words it is resumed with."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from evolve.app.config.upgrade import complete
from evolve.core.errors import UsageError
from evolve.core.records import RECORDED
from evolve.store import RunRow

# Nothing here changes the identity of the run: budgets, models (each ticket names its own), the
# device and sandbox, trackers, and the commit of a suite, as long as the task is the same.
MAY_DIFFER = (
    "termination", "llm", "agent", "device", "cluster", "sandbox", "store", "trackers", "suite",
)  # fmt: skip
KEPT = ("termination", "llm", "agent", "trackers")  # of these, a resume's changes persist
_TOLD = 3  # settings that a list of runs names
# Which run it is, and how it began.
APART = ("name", "on_exists", *RECORDED)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings by dotted name."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, stored and given, but for those that may."""
    old, new = dict(flatten(stored)), dict(flatten(given))
    return {
        name: (old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and name.partition(".")[0] not in MAY_DIFFER + APART
    }


def told_apart(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of several runs the settings in which not all are alike, a few of them in words.

    >>> told_apart([{"seed": 1, "archive": {"count": 4}}, {"seed": 2, "archive": {"count": 4}}])
    ['seed=1', 'seed=2']
    """
    flat = [
        {name: value for name, value in flatten(each) if name.partition(".")[0] not in APART}
        for each in configs
    ]
    names = sorted({*chain.from_iterable(flat)})
    unlike = [n for n in names if any(each.get(n) != flat[0].get(n) for each in flat[1:])]
    more = f" and {len(unlike) - _TOLD} more" if len(unlike) > _TOLD else ""
    return [
        ", ".join(f"{name}={_short(each[name])}" for name in unlike[:_TOLD] if name in each) + more
        for each in flat
    ]


def difference(word: str, old: Any, new: Any) -> list[str]:
    """The change that a word of a resume would make; nothing if it equals the stored value."""
    key = word.partition("=")[0]
    if key == "search":
        return [f"{word} is for the start of a run"]
    return [] if old == new else [f"{key} is {_short(old)} in the run and {_short(new)} now"]


def refuse_differences(run: RunRow, given: Mapping[str, Any]) -> None:
    """Raise UsageError that lists every setting that may not differ and does."""
    found = differences(complete(run.config), given)
    if found:
        lines = "; ".join(
            f"{name} is {_short(old)} in the run and {_short(new)} now"
            for name, (old, new) in found.items()
        )
        raise UsageError(
            f"run {run.name} cannot be resumed with other settings: {lines}. Only "
            f"{', '.join(f'{name}.*' for name in MAY_DIFFER)} may differ; start a new run for "
            f"the rest (warm_start={run.name} begins with this one's best programs)"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
