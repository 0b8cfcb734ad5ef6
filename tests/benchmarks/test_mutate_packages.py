"""Places of a module that are changed, to see whether tests notice.

Invariant: each change is one that some test could notice.
"""

import pytest

from evolve.core.source.pytext import Module
from tests.benchmarks.mutate_packages import changes


def changed(source: str) -> list[tuple[str, str]]:
    module = Module(source)
    return [(module.segment(node), after) for _, node, after in changes(module)]


@pytest.mark.parametrize(
    "source",
    [
        "x: int = 'a'",
        "@dataclass(frozen=True)\nclass C: ...",
        "def f(x: int = 3) -> int | None: ...",
        "def f(x=3):\n    'Words.'\n    ...",
        "X = cast(int, 1 + 2)",
        "X = lru_cache(maxsize=8)(f)",
        "X = int | str\nY = A | None",
        "X = 'a' + f'{x}'",
    ],
)
def test_places_without_a_behaviour_are_left_as_they_are(source):
    assert changed(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("X = 3", [("3", "4")]),
        ("X = 99.0", [("99.0", "100.0")]),
        ("X = 100", [("100", "200")]),
        ("X = True", [("True", "False")]),
        ("X = a | b", [("a | b", "(a) & (b)")]),
        ("X = a < b", [("a < b", "(a) <= (b)")]),
        ("X = not a", [("not a", "(a)")]),
        ("def f():\n    return None", [("None", "1")]),
        ("def f():\n    return x", [("x", "None")]),
        ("def f():\n    return False", [("False", "True")]),
        ("def f(x=3):\n    pass", [("3", "4")]),
    ],
)
def test_every_other_place_is_changed_so_that_there_is_a_difference(source, expected):
    assert changed(source) == expected
