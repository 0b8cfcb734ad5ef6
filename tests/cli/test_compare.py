"""Comparisons: several methods, several seeds, one budget, one judge.

Invariants:
1. The runs are ordinary ones; they differ in what the method sets and in the seed, and in nothing
   else; all end by the budget alone.
2. The same command again continues what is not finished, and repeats nothing that is.
3. A stop ends the comparison where it stands; what is there is shown.
4. Stored runs are compared as they are; those that mean different things are refused.
5. What cannot be is refused before the first run begins; methods with the same settings and the
   time that all runs take are said.
6. A tie has no winner.
"""

import asyncio
import csv
from pathlib import Path

import pytest

from evolve.app.compare.methods import methods_of
from evolve.app.compare.runner import Entry, plan, plan_notes, search_all
from evolve.cli.commands.look.compare import main
from evolve.cli.console.frontend import Terminal
from evolve.cli.signals import stoppable
from evolve.core.errors import OK, RESUMABLE, EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_seeds, synthetic_task
from tests.report.page import read

DB = "runs/evolve.db"
SETTINGS = ("task=./synthetic.py", "device=cpu", "termination.evaluations=4")
METHODS = ("greedy", "greedy selection=tournament")
NAMES = [
    f"mine-{method}-s{seed}"
    for seed in (0, 1)
    for method in ("greedy", "greedy-selection-tournament")
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("synthetic.py").write_text(synthetic_task().source)
    Path("seeds").mkdir()
    for number, source in enumerate(synthetic_seeds(8)):  # more than any budget here measures
        Path(f"seeds/seed_{number}.py").write_text(source)
    return tmp_path


def planned(*words: str, methods=METHODS, seeds: int = 2) -> list[Entry]:
    return plan([*SETTINGS, *words], methods, seeds=seeds, store=DB, name="mine")


def search(entries: list[Entry], judge: SyntheticEvaluator | None = None) -> int:
    done = search_all(entries, Terminal(), judge or SyntheticEvaluator(), during=stoppable)
    return OK if asyncio.run(done) else RESUMABLE


class Stopping(SyntheticEvaluator):
    """A judge that is gone after so many verdicts."""

    limit = 6

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        if self.calls >= self.limit:
            raise EvaluatorUnavailable("the device is gone")
        return await super().evaluate(request)


def test_runs_differ_in_method_and_seed_alone_and_end_by_the_budget():
    entries = planned()
    assert [entry.name for entry in entries] == NAMES  # a round of all methods for each seed
    one, other, *_ = (entry.config for entry in entries)
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"name", "selection"}
    assert one["seed"] == 0
    assert entries[2].config["seed"] == 1
    limits = {name: limit for name, limit in one["termination"].items() if limit is not None}
    assert limits.keys() == {"evaluations", "all_of"}
    assert one["store"]["reuse"] is False


@pytest.mark.slow  # words of runs are in test_composition
def test_words_for_parts_that_only_the_presets_have_are_taken():
    words = ("archive.of.noise=0.2", "selection.candidates=3", "operators.remeasure.most=3")
    entries = planned(*words, methods=["polca operators=[default,remeasure]"], seeds=1)
    assert entries[0].config["archive"]["of"]["noise"] == 0.2
    assert entries[0].config["operators"]["remeasure"]["most"] == 3
    limits = entries[0].config["termination"]
    assert (limits["evaluations"], limits["proposals"], limits["stagnation"]) == (4, None, None)


@pytest.mark.slow
def test_the_same_command_again_repeats_nothing_and_a_larger_budget_goes_on(capsys):
    assert search(planned()) == 0
    with Store.open(DB, read_only=True) as store:
        before = {run.name: store.next_sequence(run.id) for run in store.runs()}
        assert sorted(before) == sorted(NAMES)
        assert {run.state for run in store.runs()} == {"finished"}
    judge = SyntheticEvaluator()
    assert search(planned(), judge) == 0
    assert judge.calls == 0
    assert "is finished" in capsys.readouterr().out
    assert search(planned("termination.evaluations=6"), judge) == 0
    with Store.open(DB, read_only=True) as store:
        assert {run.state for run in store.runs()} == {"finished"}
        assert all(store.next_sequence(run.id) > before[run.name] for run in store.runs())


@pytest.mark.slow
def test_methods_with_the_same_settings_and_the_time_are_said_before_the_first_run():
    same = planned(methods=("greedy", "greedy selection=greedy", "greedy selection=tournament"))
    alike, time = plan_notes(same)
    assert "--search greedy and --search greedy selection=greedy have the same settings" in alike
    assert time == "6 runs of 6 to go, about 3 min 30 s in all"
    [time] = plan_notes(planned("termination.wall_time=30s"))
    assert time == "4 runs of 4 to go, about 2 min 0 s in all"


@pytest.mark.slow
def test_runs_that_are_done_take_no_time():
    search(planned(seeds=1))
    [time] = plan_notes(planned())
    assert time.startswith("2 runs of 4 to go, about ")


@pytest.mark.slow
def test_a_stop_ends_the_comparison_where_it_stands_and_the_command_goes_on_from_there():
    assert search(planned(), Stopping()) == RESUMABLE
    with Store.open(DB, read_only=True) as store:
        states = [run.state for run in store.runs()]
    assert "interrupted" in states
    assert len(states) < len(NAMES)
    assert search(planned()) == 0
    with Store.open(DB, read_only=True) as store:
        assert {run.state for run in store.runs()} == {"finished"}
        assert len(store.runs()) == len(NAMES)


@pytest.mark.slow
def test_stored_runs_are_compared_with_seeds_of_one_method_together(capsys):
    search(planned())
    assert main([*NAMES, "-o", "page.html"]) == 0
    printed = capsys.readouterr().out
    assert "No winner" in printed
    assert "50 %" in printed  # two seeds cover the median with one half
    page = read(Path("page.html").read_text())
    assert not page.unbalanced
    assert "mine-greedy" in page.text
    assert not page.scripts
    rows = list(csv.DictReader(Path("page.csv").read_text().splitlines()))
    assert {row["run"] for row in rows} == {*NAMES}
    assert {row["method"] for row in rows} == {"mine-greedy", "mine-greedy-selection-tournament"}
    for name in NAMES:
        own = [row for row in rows if row["run"] == name]
        spent = [int(row["evaluations"]) for row in own]
        assert spent == sorted(spent)
        assert own[-1]["verified"] == "1"
        assert spent[-1] == 4


@pytest.mark.slow
def test_a_method_of_one_run_is_called_by_its_name_and_others_by_what_they_share():
    search(planned(seeds=1))
    with Store.open(DB, read_only=True) as store:
        assert methods_of(store.runs()) == {name: [name] for name in NAMES[:2]}


@pytest.mark.slow
def test_runs_of_different_tasks_are_refused(capsys):
    search(planned(methods=["greedy"], seeds=1))
    Path("other.py").write_text(Path("synthetic.py").read_text() + "\nSIZE = 3\n")
    search(plan(["task=./other.py", *SETTINGS[1:]], ["greedy"], seeds=1, store=DB, name="other"))
    with pytest.raises(UsageError, match="not the same task"):
        main(["mine-greedy-s0", "other-greedy-s0"])


REFUSED = {
    (): "--search NAME",
    ("mine-greedy-s0", "task=./synthetic.py"): "not both",
    ("--search", "greedy", "task=./synthetic.py"): "needs a budget",
    ("--search", "greedy", *SETTINGS, "--seeds", "0"): "at least one",
    ("--search", "greedy", "--search", "greedy", *SETTINGS): "given twice",
    ("--search", "nothing", *SETTINGS): "search can be: adaevolve",
    ("--search", "selection=greedy", *SETTINGS): "begins with no preset",
    ("--search", "greedy 'x", *SETTINGS): "close what you quote",
    ("--search", "greedy seed=4", *SETTINGS): "the same for all methods",
    ("--search", "greedy termination.usd=3", *SETTINGS): "the same for all methods",
    ("--search", "greedy", *SETTINGS, "name=mine"): "--name NAME",
    ("--search", "greedy", *SETTINGS, "device=replay", "device.run=x"): "recorded programs only",
    ("--search", "greedy", "--search", "polca", *SETTINGS): "llm.model=provider/NAME",
    ("--search", "greedy", *SETTINGS, "archive.size=3"): "archive.size",
    ("nobody",): "no database",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_is_refused_before_anything_is_written(words: tuple[str, ...]):
    with pytest.raises(UsageError) as refused:
        main(words)
    assert REFUSED[words] in str(refused.value)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_runs_of_the_same_names_with_other_settings_are_refused():
    search(planned(seeds=1))
    with pytest.raises(UsageError, match=r"mine-greedy-s0.*archive\.capacity"):
        planned("archive.capacity=3", seeds=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_compares_on_this_machine(evolve):
    done = evolve(
        "compare",
        *("--search", "greedy", "--search", "single", "--seeds", "1"),
        *("task=rmsnorm", "device=cpu", "task_config.size=tiny", "termination.evaluations=2"),
        timeout=880,
    )
    assert done.returncode == 0, done.stderr
    assert "2 runs of 2 to go, about " in done.stdout
    assert "No winner" in done.stdout or "came out highest" in done.stdout
    assert Path("runs/compare-rmsnorm.html").is_file()
    assert Path("runs/compare-rmsnorm.csv").is_file()
