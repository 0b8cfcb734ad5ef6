"""Other names for the definitions of a module.

Invariants: a module computes the same as before; each global name that it reads is the new one of
its definition, and nothing else changes: locals, parameters, attributes, keywords, comments.
"""

import symtable
import sys
from pathlib import Path

import pytest

from evolve.core.source.renaming import defined, renamed, without_future
from evolve.languages.syntax import parsed
from tests.core.scopes import SCOPES, SCOPES_OF_312

ROOT = Path(__file__).parents[2]
MODULE = """
import math, os.path
from functools import reduce as fold  # a comment that stays

K, LIMIT = 2, 3


def scaled(x, K, LIMIT=LIMIT):
    y = [K * i for i in range(LIMIT)]
    return sum(y) + x


def counted():
    global K
    K = K + 1

    def inner(scaled=scaled):
        return scaled(1, K=K)

    return inner() + fold(lambda a, LIMIT: a + LIMIT, [1, 2], K)


class Table:
    K = K
    twice = K * 2

    def scaled(self, K):
        try:
            raise ValueError(LIMIT)
        except ValueError as LIMITED:
            return f"{K} {LIMIT} {self.K} {scaled(K, K)} {LIMITED}" "K"


def outcome():
    found = [K for K in (K, LIMIT) if K]
    walrus = [last := n for n in found]
    path = os.path.join("K", str(last))
    return counted(), Table.K, Table.twice, Table().scaled(4), found, walrus, path, math.pi
"""


def outcome(source: str, name: str) -> object:
    scope: dict = {"__name__": "module"}
    exec(compile(source, "module.py", "exec"), scope)
    return scope[name]()


def test_a_module_under_other_names_computes_the_same():
    names = {name: f"{name}_1" for name in defined(MODULE)}
    text = renamed(MODULE, names)
    assert outcome(text, "outcome_1") == outcome(MODULE, "outcome")
    assert "# a comment that stays" in text
    assert not {*defined(MODULE)} & ({*defined(text)} - {"os"})


@pytest.mark.parametrize("kind", [*SCOPES, *(SCOPES_OF_312 if sys.version_info >= (3, 12) else ())])
def test_a_name_is_another_one_only_where_it_means_that_of_the_module(kind: str):
    source = {**SCOPES, **SCOPES_OF_312}[kind]
    text = renamed(source, {name: f"{name}_1" for name in defined(source)})
    assert outcome(text, "outcome_1") == outcome(source, "outcome"), text


def globals_read(source: str) -> set[str]:
    """Names that a module and all that is in it take from the module, by Python's own account."""
    found, tables = set(), [symtable.symtable(source, "module.py", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        at_top = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if at_top or s.is_global()}
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "folder", ["examples/tasks", "tests/redteam/honest", "evolve/core", "operators/local"]
)
def test_every_name_of_real_modules_is_the_new_one_and_no_other_changes(folder: str):
    for path in sorted((ROOT / folder).rglob("*.py")):
        source, _ = without_future(path.read_text())
        names = {name: f"{name}_1" for name in defined(source)}
        text = renamed(source, names)
        expected = {names.get(name, name) for name in globals_read(source)}
        roots = {name for name, full in defined(source).items() if full == name}
        assert globals_read(text) - roots == expected - roots, path


def test_a_name_that_is_imported_twice_alike_is_an_import_and_otherwise_not():
    assert defined("import a.b\nimport a.c\nfrom m import f") == {"a": "a", "f": "m.f"}
    assert defined("try:\n    import a\nexcept ImportError:\n    a = None") == {"a": ""}


def test_imports_of_future_features_are_taken_out():
    text, has_any = without_future('"""A."""\nfrom __future__ import annotations\nx = 1\n')
    assert has_any
    assert len(parsed(text).body) == 2
    assert without_future("x = 1") == ("x = 1", False)
