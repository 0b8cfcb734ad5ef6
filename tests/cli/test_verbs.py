"""The verbs on a recorded run.

Invariants:
1. Every verb that reads needs no judge, no Hydra and no torch, and leaves the database as it is.
2. `--json` is JSON; what `best` writes is Python that imports nothing of ours.
3. A replayed run with the same settings gives the same canonical dump.
4. Every verb that the top-level help lists exists, and explains itself.
"""

import ast
import json
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evolve import __version__
from evolve.cli.commands.judge import doctor
from evolve.cli.main import VERBS, main
from evolve.store import Store
from evolve.testing.synthetic import synthetic_task
from tests.cli.conftest import ROOT
from tests.cli.recording import settings

pytestmark = pytest.mark.usefixtures("recorded")


# No quick test reads the help of every verb, a process each; packaging/test_guides reads that of
# the verbs in the guides.
@pytest.mark.slow
def test_help_lists_every_verb_and_each_explains_itself(evolve):
    text = evolve("--help").stdout
    assert "key=value" in text
    for verb in VERBS:
        assert f"\n  {verb} " in text
        done = evolve(verb, "--help")
        assert done.returncode == 0, done.stderr
        assert "evolve" in done.stdout
        for flag, below in re.findall(
            r"^  (--?[a-z].*)\n((?:   .*\n)?)", done.stdout, re.MULTILINE
        ):
            assert "  " in flag or below.strip(), f"evolve {verb}: {flag} says nothing"


def test_the_package_can_be_run_where_its_script_is_not_on_the_path(tmp_path: Path):
    command = [sys.executable, "-m", "evolve", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_list_shows_the_run_with_its_best(evolve):
    done = evolve("list")
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert "95 % interval" in done.stdout
    (record,) = json.loads(evolve("list", "--json").stdout)
    assert record["name"] == "demo"
    assert record["state"] == "finished"
    assert record["verified"] is True
    assert record["speedup"][1] <= record["speedup"][0] <= record["speedup"][2]


def test_list_says_what_tells_the_runs_of_a_sweep_apart(tmp_path: Path, capsys):
    """They are called row_sum-1 to row_sum-4, which says nothing of what was varied."""
    path = tmp_path / "sweep.db"
    with Store.open(path, create=True) as store:
        for number, (seed, count) in enumerate([(1, 4), (1, 6), (2, 4)]):
            config = settings(f"seed={seed}", "archive=islands", f"archive.count={count}")
            store.create_run(name=f"run-{number}", task=synthetic_task(), config=config, seed=seed)
        other = replace(synthetic_task(), name="other")
        store.create_run(name="alone", task=other, config=settings(), seed=0)
    assert main(["list", "--store", str(path)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.endswith("DIFFERS IN")
    said = [row.rpartition("  ")[2] for row in rows if row.startswith("run-")]
    assert said == ["archive.count=4, seed=1", "archive.count=6, seed=1", "archive.count=4, seed=2"]
    (alone,) = [row for row in rows if row.startswith("alone")]
    assert "=" not in alone


def test_a_run_is_shown_with_what_its_operators_did(evolve):
    done = evolve("show", "demo")
    assert done.returncode == 0, done.stderr
    for word in ("demo", "finished", "seed", "tune", "verify", "correct"):
        assert word in done.stdout
    record = json.loads(evolve("show", "demo", "--json").stdout)
    assert record["config"]["archive"]["_target_"] == "archives.map_elites.MapElites"


def test_the_newest_run_is_meant_where_none_is_named(evolve):
    assert evolve("show").stdout == evolve("show", "demo").stdout


def test_a_step_is_shown_with_its_source_and_verdict(evolve):
    done = evolve("show", "demo:0")
    assert done.returncode == 0, done.stderr
    assert "correct, by kernels of its own" in done.stdout
    assert "class ModelNew" in done.stdout
    record = json.loads(evolve("show", "demo:0", "--json").stdout)
    assert record["source"] == synthetic_task().seeds[0]
    assert record["evaluation"]["status"] == "correct"


def test_the_winner_is_a_standalone_file_that_says_where_it_is_from(evolve, tmp_path: Path):
    done = evolve("best", "demo", "-o", "kernel.py")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "kernel.py").read_text()
    tree = ast.parse(text)
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not {name for name in imported if name.startswith(("evolve", "operators", "archives"))}
    assert "TUNABLE" not in {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    header = text.partition("\n\n")[0]
    for fact in ("synthetic", "demo", "95 % interval", "verified", "device", "tunable"):
        assert fact in header
    assert evolve("best", "demo").stdout == text


def test_a_report_and_a_graph_are_written(evolve, tmp_path: Path):
    done = evolve("report", "demo")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.strip()).read_text().lower().startswith("<!doctype html>")
    for name in ("g.graphml", "g.json", "g.dot"):
        assert evolve("lineage", "demo", "-o", name).returncode == 0
        assert (tmp_path / name).stat().st_size > 100
    assert json.loads((tmp_path / "g.json").read_text())["nodes"]


def test_doctor_knows_a_network_file_system(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "write-ahead log works here" in doctor.database().detail
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"35 21 0:40 / {tmp_path} rw shared:20 - nfs4 server:/home rw\n")
    monkeypatch.setattr("evolve.store.sqlite.filesystem.MOUNTS", mounts)
    assert doctor.database().detail.endswith("no write-ahead log, one host at a time")


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.11.0", "ok"), ("2.15.1+cu132", "ok"), ("2.16.0", "note"), ("3.0.0a1", "note")],
)
def test_doctor_notes_a_torch_newer_than_the_tested_ones(version: str, state: str, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda _: version)
    (found,) = (one for one in doctor.packages() if one.what == "torch")
    assert (found.state, version in found.detail) == (state, True)
    assert (state == "note") == ("install torch 2.15" in found.detail)


def test_the_database_is_cared_for(evolve, tmp_path: Path):
    assert evolve("db", "backup", "copy.db").returncode == 0
    assert evolve("list", "--store", "copy.db").stdout == evolve("list").stdout
    assert "records" in evolve("db", "size").stdout
    assert "nothing to do" in evolve("db", "upgrade").stdout
    assert "evaluation" in evolve("db", "prune", "demo", "--keep", "1").stdout
    lines = evolve("db", "dump", "demo", "--canonical").stdout.splitlines()
    assert all(json.loads(line) for line in lines)


def test_reading_verbs_leave_the_database_as_it_is(evolve, recorded: Path):
    before = rows(recorded)
    for words in (["list"], ["show"], ["best"], ["report"], ["db", "size"], ["db", "dump"]):
        assert evolve(*words).returncode == 0
    assert rows(recorded) == before


def rows(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    counts = {
        name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        for (name,) in tables
        if not name.startswith("sqlite_")
    }
    connection.close()
    return counts


def test_a_step_becomes_a_folder_that_can_be_judged_again(evolve, tmp_path: Path):
    done = evolve("eval", "demo:0", "--repro", "case")
    assert done.returncode == 0, done.stderr
    case = tmp_path / "case"
    assert {path.name for path in case.iterdir()} == {
        *("candidate.py", "task.py", "request.json", "recorded.json", "README.md", "judge.sh"),
    }
    assert (case / "judge.sh").stat().st_mode & 0o100
    assert json.loads((case / "recorded.json").read_text())["status"] == "correct"


def replay(evolve, tmp_path: Path, *words: str):
    (tmp_path / "synthetic.py").write_text(synthetic_task().source)
    (tmp_path / "seeds").mkdir(exist_ok=True)
    (tmp_path / "seeds" / "seed.py").write_text(synthetic_task().seeds[0])
    return evolve(
        *("run", "task=./synthetic.py", "search=single", "device=replay", "device.run=demo"),
        *("termination.evaluations=12", "task_config.size=tiny", *words),
    )


@pytest.mark.slow
def test_a_replayed_run_is_the_recorded_one_again(evolve, recorded: Path, tmp_path: Path):
    done = replay(evolve, tmp_path, "name=again")
    assert done.returncode == 0, done.stderr
    assert "best kernel" in done.stdout
    assert "runs/again.html" in done.stdout
    assert "evolve best again" in done.stdout
    first = evolve("db", "dump", "demo", "--canonical").stdout
    assert evolve("db", "dump", "again", "--canonical").stdout == first


@pytest.mark.slow
def test_runs_without_a_name_are_numbered(evolve, recorded: Path, tmp_path: Path):
    for _ in range(2):
        assert replay(evolve, tmp_path).returncode == 0
    with Store.open(recorded, read_only=True) as store:
        assert [run.name for run in store.runs()] == ["demo", "synthetic-1", "synthetic-2"]


def test_a_finished_run_resumes_with_a_larger_budget_only(evolve, tmp_path: Path):
    done = evolve("resume", "demo", "device=replay", "device.run=demo")
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout


def test_a_run_that_another_process_continues_is_refused_at_once(evolve, recorded: Path):
    with Store.open(recorded) as holder:
        holder.claim(holder.run("demo").id)
        done = evolve("resume", "demo", "device=replay", "device.run=demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is being continued by another process" in done.stderr


@pytest.mark.slow
def test_by_name_a_run_is_resumed_or_started_beside_the_old_one(evolve, recorded, tmp_path):
    assert replay(evolve, tmp_path, "name=x", "on_exists=resume").returncode == 0
    assert replay(evolve, tmp_path, "name=x", "on_exists=resume").returncode == 0
    assert replay(evolve, tmp_path, "name=x", "on_exists=new").returncode == 0
    with Store.open(recorded, read_only=True) as store:
        assert [run.name for run in store.runs()] == ["demo", "x", "x-1"]


@pytest.mark.slow
def test_a_sweep_makes_one_run_per_combination(evolve, recorded: Path, tmp_path: Path):
    done = replay(evolve, tmp_path, "-m", "name=low,high")
    assert done.returncode == 0, done.stderr
    with Store.open(recorded, read_only=True) as store:
        assert [run.name for run in store.runs()] == ["demo", "low", "high"]


@pytest.mark.slow  # warm starts are in test_switching
def test_a_warm_start_begins_with_the_other_runs_best(evolve, recorded: Path, tmp_path: Path):
    replay(evolve, tmp_path, "name=warm", "warm_start=demo", "termination.proposals=1")
    with Store.open(recorded, read_only=True) as store:
        runs = [store.run(name).id for name in ("demo", "warm")]
        best, taken = (
            max(store.slots(run).values(), key=lambda elite: elite.fitness.value) for run in runs
        )
    assert best.assignment
    assert (taken.program, taken.assignment) == (best.program, best.assignment)
