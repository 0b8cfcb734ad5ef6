"""Every export loads with `datasets`, without a network, and says there what it says here.

1. Rows are equal to those of our own reader, in order, for every format and recipe that fit.
2. Types are those of the card, also where the rows hold nothing in a column.
3. JSON lines and parquet load alike.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")

from datasets import Value
from datasets import load_dataset as load_with_datasets

from evolve.core.evaluation import Status
from evolve.trajectories.exporters.formats import FORMATS
from evolve.trajectories.loading import load_dataset
from evolve.trajectories.views.recipes import RECIPES
from tests.trainers.conftest import Exported
from tests.trajectories.searched import Searched, verdict
from tests.trajectories_export.exporting import exported as exported_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FITTING = [
    (target.name, recipe.name)
    for target in FORMATS.values()
    for recipe in RECIPES
    if set(target.shapes) & set(recipe.views)
]


def loaded(folder: Path, view: str, tmp_path: Path) -> Any:
    return load_with_datasets(str(folder), view, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize(("target", "recipe"), FITTING)
def test_every_export_loads_with_datasets(
    target: str, recipe: str, exported: Exported, tmp_path: Path
) -> None:
    folder, manifest = exported(target, recipe)
    for view, splits in manifest.rows.items():
        found = loaded(folder, view, tmp_path)
        assert set(found) == set(splits)
        for split in splits:
            assert list(found[split]) == list(load_dataset(folder, view, split))


@pytest.mark.parametrize("parquet", [False, True])
def test_a_column_without_values_has_its_type(
    parquet: bool, search: Searched, tmp_path: Path
) -> None:
    search.model("A", verdict(status=Status.WRONG_VALUE))
    folder = tmp_path / "out"
    exported_once(search, folder, "trl-kto", "kto@1", parquet=parquet)
    rows = list(load_dataset(folder, "labelled"))
    assert {row["score"] for row in rows} == {None}  # what failed has no speedup
    found = loaded(folder, "labelled", tmp_path)["train"]
    assert found.features["score"] == Value("float64")
    assert list(found) == rows


def test_lines_and_parquet_load_alike(exported: Exported, tmp_path: Path) -> None:
    lines, _ = exported("verl-rl", "kernel_smith@2", parquet=False)
    text = list(loaded(lines, "prompt", tmp_path / "lines")["train"])
    lines.rename(tmp_path / "lines-export")
    table, _ = exported("verl-rl", "kernel_smith@2", parquet=True)
    assert list(loaded(table, "prompt", tmp_path / "table")["train"]) == text
