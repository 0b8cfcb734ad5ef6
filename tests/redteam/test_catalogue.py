"""The table of known cheats is complete and true.

Invariants: all 68 rows are there; each has candidates, or tests and a reason; candidates name the
rows that they execute; what is named exists.
"""

import re
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


@pytest.mark.parametrize("folder", ["cheats", "honest"])
def test_every_head_names_a_task_and_known_verdicts(folder):
    for entry in corpus(folder):
        assert entry.task in TASKS, entry.name
        assert entry.fidelity in ("check", "screen"), entry.name
        assert entry.device in ("cpu", "cuda"), entry.name
        assert set(entry.verdicts) <= {*ACCEPTED, "correct"}, entry.name
