"""The table of `bench_tuner`, where workers die, hang and are stopped.

Invariants: every instance that was given to a worker has a row, and those after it are measured;
whoever is stopped leaves a table of what there was.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operators.local.tune import Tune
from tests.benchmarks.bench_tuner import replay
from tests.benchmarks.tuner_parent import described, put_together
from tests.benchmarks.tuner_problems import Problem, planned
from tests.benchmarks.tuner_replay import Run, Table
from tests.benchmarks.tuner_weights import left_out

ROOT = Path(__file__).parents[2]
SEED = """
import os
import time
import torch

N = 1
TUNABLE = {"N": (1, 2, 3, 4, 5)}
if N == 2:
    os._exit(9)
if N == 3:
    time.sleep(600)
if N == 4:
    raise RuntimeError("no")

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=-1) + 100 * (N == 5)
"""
SCRIPT = """
import sys
from pathlib import Path
from tests.benchmarks import bench_tuner, tuner_child, tuner_problems
folder = Path(sys.argv[1])
tuner_problems.TASKS = folder
tuner_problems.PROBLEMS["own"] = tuner_problems.Problem("row_sum", seed="own")
tuner_child.LIMITS["compiling"] = float(sys.argv[2])
sys.argv = ["", "measure", str(folder / "table.json"), "--problems", "own", "--seconds", "60"]
bench_tuner.main()
"""


def measuring(folder: Path, limit: float) -> subprocess.Popen:
    """`bench_tuner measure` of a program of which one instance is right."""
    (folder / "row_sum" / "seeds").mkdir(parents=True)
    (folder / "row_sum" / "seeds" / "own.py").write_text(SEED)
    command = [sys.executable, "-c", SCRIPT, str(folder), str(limit)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_instances_that_take_their_worker_with_them_do_not_run(tmp_path):
    said = measuring(tmp_path, 3).communicate()[0]
    table = json.loads((tmp_path / "table.json").read_text())
    rows = {row["assignment"]["N"]: row for row in table["rows"]}
    assert rows[1]["time_ms"] > 0
    assert rows[1]["error"] < 1e-5
    assert rows[2]["error"] == "its process died while compiling"
    assert rows[3]["error"] == "compiling took more than 3 s"
    assert rows[4]["error"] == "RuntimeError: no"
    assert rows[5]["error"] > 1e-2
    assert [rows[n]["time_ms"] for n in (2, 3, 4, 5)] == [None] * 4
    assert "own: 1 timed, 4 failed, 0 not reached" in said
    assert table["reference_ms"]["own"] > 0


@pytest.mark.slow
def test_who_is_stopped_leaves_a_table(tmp_path):
    process = measuring(tmp_path, 600)
    lines = tmp_path / "table.jsonl"
    while not (lines.exists() and "time_ms" in lines.read_text()):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM" in process.communicate(timeout=30)[0]
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["rows"]
    assert table["sources"]["own"] == SEED


def test_a_table_is_made_of_the_lines_that_exist(tmp_path):
    lines = tmp_path / "table.jsonl"
    rows = [
        {"problem": "p", "assignment": None, "source": "", "planned": 4, "device": "d"},
        {"problem": "p", "assignment": None, "reference_ms": 0.5},
        {"problem": "q", "assignment": None, "error": "ValueError: no"},
        {"problem": "p", "assignment": {"N": 1}, "error": 0.0, "time_ms": 0.25},
        {"problem": "p", "assignment": {"N": 2}, "error": "OutOfResources: shared memory"},
        {"problem": "p", "assignment": {"N": 3}, "error": "OutOfMemoryError: beside the others"},
    ]
    lines.write_text("\n".join(map(json.dumps, rows)) + '\n{"problem": "p", "assig')
    table = put_together(lines)
    assert [row["assignment"]["N"] for row in table["rows"]] == [1, 2]
    assert list(described(table)) == [
        "p: 1 timed, 1 failed, 2 not reached, best 0.2500 ms, torch 0.5000 ms",
        "q: ValueError: no",
        "failed: 1 OutOfResources",
    ]


TILES = """
X = 4
Y = 4
TUNABLE = {"X": (1, 2, 4, 8, 16), "Y": (1, 2, 4, 8, 16)}
"""


def test_tables_are_replayed_as_they_were_before_there_were_lines(tmp_path, capsys):
    table = tmp_path / "table.json"
    rows = [
        {"problem": "p", "assignment": one, "error": 0.0, "time_ms": one["X"] + 8 / one["Y"]}
        for one in planned(TILES, Problem("p"))
    ]
    rows.append({"problem": "q", "assignment": {"N": 1}, "error": "no", "time_ms": None})
    sources = {"p": TILES, "q": SEED}
    table.write_text(json.dumps({"device": "d", "sources": sources, "rows": rows}))
    replay(table, range(2))
    said = capsys.readouterr().out
    assert "p: 25 of 25 instances, 2 evaluations" in said
    assert "as written 300.0%" in said
    assert "q: no times" in said
    assert "0 of 1 programs of 20 instances or more are within 2%, and 0% of runs" in said


def test_a_small_space_is_tuned_to_the_end(tmp_path, capsys):
    table = tmp_path / "table.json"
    instances = planned(TILES, Problem("p", only={"X": (1, 2, 4)}))
    rows = [
        {"problem": "p", "assignment": each, "time_ms": each["X"] + 8 / each["Y"]}
        for each in instances
    ]
    table.write_text(json.dumps({"device": "d", "sources": {"p": TILES}, "rows": rows}))
    replay(table, range(2))
    said = capsys.readouterr().out
    assert "gap 0.0% (0.0% to 0.0%, 100% of runs within 2%)" in said
    assert "instances or more" not in said


def test_a_tuner_that_is_asked_again_meanwhile_does_not_know_what_is_under_way():
    rows = [
        {"problem": "p", "assignment": each, "time_ms": each["X"] + 8 / each["Y"]}
        for each in planned(TILES, Problem("p"))
    ]
    run = Run(Table.read(rows, TILES), 0, at_once=4)
    seen = []

    class Watching(Tune):
        def propose(self, context):
            seen.append(
                [trial.status for trial in context.facts.trials(context.parents[0].program)]
            )
            return super().propose(context)

    for _ in range(3):
        assert run.step(Watching())
    assert run.evaluations == 4
    assert [len(statuses) for statuses in seen] == [0, 1, 2, 3, 4, 5]
    assert [statuses.count(None) for statuses in seen] == [0, 1, 2, 3, 3, 3]


def test_numbers_are_chosen_without_the_program_that_they_are_judged_by():
    good_for_p = {"p": [0.0, 0.0], "q": [0.9, 0.2], "r": [0.1, 0.1]}
    good_for_others = {"p": [0.5, 0.5], "q": [0.0, 0.0], "r": [0.1, 0.1]}
    chosen = left_out([good_for_p, good_for_others])
    assert chosen == {"p": [0.5, 0.5], "q": [0.9, 0.2], "r": [0.1, 0.1]}


def test_what_a_replay_begins_with_is_measured_first():
    assert planned(TILES, Problem("p"))[0] == {"X": 4, "Y": 4}
    left = planned(TILES, Problem("p", only={"X": (1, 2, 16)}))
    assert len(left) == 15
    assert left[0] == {"X": 2, "Y": 4}
