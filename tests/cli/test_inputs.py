"""What a run starts from.

Invariants:
1. Of programs that differ in comments, layout or tunable values only, the first is kept; the
   user's come first. A byte order mark is no part of a program.
2. Another way to run the reference is a baseline without a file.
"""

from pathlib import Path

from evolve.app.inputs import read_baseline, with_seeds
from evolve.testing.synthetic import SEED_SOURCE, synthetic_task
from tests.cli.recording import settings

OTHER = "class ModelNew:\n    pass\n"


def test_of_twins_the_first_is_kept(tmp_path: Path):
    commented = "# mine\n" + SEED_SOURCE
    (tmp_path / "mine.py").write_text(commented)
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8-sig")
    config = settings(f"initial=[{tmp_path}/mine.py,{tmp_path}/other.py]")
    task = with_seeds(synthetic_task(seeds=(SEED_SOURCE, OTHER + "\n")), config)
    assert task.seeds == (commented, OTHER)


def test_another_way_to_run_the_reference_needs_no_file():
    assert read_baseline("eager", "cpu") == {}
    assert read_baseline("compile", "cpu") == {"compile": ""}
