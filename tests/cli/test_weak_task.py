"""A task that failed its audit.

Invariants:
1. Every verb that shows a result of it says that the task is weak and that nothing is strict.
2. What the audit found stays with the run, and with a replay of it.
3. No score that is reached on it ends a run.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app.components import build_termination
from evolve.cli.console.verdict import verdict_text
from evolve.core.errors import UsageError
from evolve.core.protocols import Progress
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.at_terminal import search
from tests.cli.recording import record, settings

FOUND = {"name": "zeros", "passed_by": "only", "detail": "zeros is judged correct on 2 seeds"}


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """A database with the run `demo` of a weak task."""
    path = tmp_path / "runs" / "evolve.db"
    with Store.open(path, create=True) as store:
        record(store, synthetic_task(), SyntheticEvaluator(), audit=[FOUND])
    return path


@pytest.mark.sample(1)
@pytest.mark.usefixtures("weak")
@pytest.mark.parametrize("words", [["list"], ["show"], ["show", "demo:0"], ["best"]])
def test_every_verb_says_that_it_does_not_count(evolve, words: list[str]):
    shown = evolve(*words).stdout
    assert "not counted: weak task" in shown or "does not count as strict" in shown
    assert FOUND["detail"] in shown or words == ["list"]


@pytest.mark.slow
@pytest.mark.usefixtures("weak")
def test_machines_get_what_was_found(evolve):
    (listed,) = json.loads(evolve("list", "--json").stdout)
    assert listed["audit"] == [FOUND]
    assert json.loads(evolve("show", "--json").stdout)["audit"] == [FOUND]


@pytest.mark.slow
def test_a_replay_is_of_the_same_weak_task_and_its_summary_says_so(
    evolve, weak: Path, tmp_path: Path
):
    (tmp_path / "synthetic.py").write_text(synthetic_task().source)
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "seed.py").write_text(synthetic_task().seeds[0])
    done = evolve(
        *("run", "task=./synthetic.py", "name=again", "search=single"),
        *("device=replay", "device.run=demo"),
        *("termination.evaluations=12", "task_config.size=tiny"),
    )
    assert done.returncode == 0, done.stderr
    assert "synthetic is WEAK" in done.stdout
    assert "does not count as strict" in done.stdout
    with Store.open(weak, read_only=True) as store:
        assert store.run("again").config["audit"] == [FOUND]


def test_a_sound_tasks_verdict_is_strict(recorded: Path):
    with Store.open(recorded, read_only=True) as store:
        verdict = store.evaluation(store.run("demo").id, 0)
    assert verdict is not None
    assert "strict     passed" in [*verdict_text(verdict)]
    assert "strict     not counted: weak task" in [*verdict_text(verdict, [FOUND])]


def test_a_verdict_says_how_exact_and_how_large_a_program_is_where_that_is_known(recorded: Path):
    with Store.open(recorded, read_only=True) as store:
        verdict = store.evaluation(store.run("demo").id, 0)
    assert verdict is not None
    known = replace(verdict, descriptors={"error": 0.0531, "memory_bytes": 25.2e6})
    lines = [*verdict_text(known)]
    assert "error      at most 0.053 of the tolerance for well-conditioned outputs" in lines
    assert "memory     25.2 MB beyond weights, inputs and outputs" in lines
    assert not [line for line in verdict_text(verdict) if line.startswith(("error", "memory"))]


def weak_rule(*words: str):
    return build_termination({**settings(*words), "audit": [FOUND]})


def test_no_score_ends_the_run_of_a_weak_task(tmp_path: Path, capsys):
    words = ("termination.target_speedup=1.01", "termination.evaluations=3")
    config = settings(*words) | {"audit": [FOUND]}
    with Store.open(tmp_path / "weak.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        assert asyncio.run(search(store, run, config, SyntheticEvaluator())) == 0
        assert store.progress(run.id).best.low > 1.01
        assert "speedup" not in store.run("demo").reason
    assert "termination.target_speedup has no effect: the task is weak" in capsys.readouterr().out


def test_a_score_that_counts_together_with_another_limit_ends_no_run_of_a_weak_task_either():
    both = ("termination.all_of.speed_of_light=0.5", "termination.all_of.evaluations=1")
    done = Progress(evaluations=2, speed_of_light=0.9)
    assert build_termination(settings(*both)).check(done)
    assert not weak_rule(*both).check(done)


def test_a_score_as_the_only_end_is_refused_for_a_weak_task():
    none = [f"termination.{name}=null" for name in ("evaluations", "wall_time", "stagnation")]
    with pytest.raises(UsageError, match=r"target_speedup alone would never end .*weak"):
        weak_rule(*none, "termination.target_speedup=2")
