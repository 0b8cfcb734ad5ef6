"""The table of known cheats is complete and true.

Invariants: all 68 rows are there; each has candidates, or tests and a reason; candidates name the
rows that they execute; what is named exists, and so do the parts of the program that candidates
replace.
"""

import ast
import importlib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.redteam.corpus import ACCEPTED, HERE, corpus
from tests.redteam.tasks import TASKS

ROOT = Path(__file__).parents[2]
ROWS = yaml.safe_load((HERE / "catalogue.yaml").read_text())
CHEATS = corpus("cheats")


def test_all_rows_are_in_the_table():
    assert list(ROWS) == list(range(1, 69))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_shown_by_the_candidates_that_name_it(row):
    named = [entry.name for entry in CHEATS if row in entry.rows]
    assert sorted(ROWS[row].get("candidates", [])) == sorted(named)
    assert named or (ROWS[row]["tests"] and ROWS[row]["without_candidate"])


@pytest.mark.parametrize("row", [row for row in ROWS if "tests" in ROWS[row]])
def test_a_test_that_a_row_names_exists(row):
    for test in ROWS[row]["tests"]:
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M), test


def parts(tree: ast.Module) -> dict[str, object]:
    """Names of a source that stand for modules and classes of the product."""
    known: dict[str, object] = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(package), names=names) if package.startswith("evolve"):
                for name in names:
                    known[name.name] = importlib.import_module(f"{package}.{name.name}")
            case ast.Assign(
                [ast.Name(name)], ast.Subscript(slice=ast.Call(args=[ast.Tuple(path)]))
            ):
                module = ".".join(map(ast.literal_eval, path))
                known[name] = importlib.import_module(module)
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                pairs = zip(map(ast.unparse, names), values, strict=True)
                known |= {name: part_at(value, known) for name, value in pairs}
    return known


def part_at(node: ast.expr, known: Mapping[str, object]) -> object:
    """The part of the product that an expression names; None if it names another thing."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    owner = part_at(node.value, known) if isinstance(node, ast.Attribute) else None
    if owner is None:
        return None
    assert hasattr(owner, node.attr), ast.unparse(node)
    return getattr(owner, node.attr)


def test_parts_of_ours_that_candidates_use_or_replace_exist():
    """An attack on a name that has moved would replace nothing, and be refused all the same."""
    attacked = set()
    for entry in CHEATS:
        tree = ast.parse(entry.source)
        known = parts(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and part_at(node, known) is not None:
                attacked.add(entry.name)
    assert len(attacked) >= 25


@pytest.mark.parametrize("folder", ["cheats", "honest"])
def test_every_head_names_a_task_and_known_verdicts(folder):
    for entry in corpus(folder):
        assert entry.task in TASKS, entry.name
        assert entry.fidelity in ("check", "screen"), entry.name
        assert entry.device in ("cpu", "cuda"), entry.name
        assert set(entry.verdicts) <= {*ACCEPTED, "correct"}, entry.name
