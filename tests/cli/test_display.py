"""What a display knows.

Invariants:
1. After a resume it stands where it stood: counts, the best, whether that is verified.
2. A better program is not called verified because the one before it was; what loses its duel is not
   shown as the best.
3. What fails is seen: a line per failed step, and at the end what most came to.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from evolve.cli import display, parts
from evolve.cli.display import Tally
from evolve.cli.session import search
from evolve.cli.text import speedup_text
from evolve.core.evaluation import Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.search.engine import Search
from evolve.search.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.store.champion import CHAMPION, champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import record, settings
from tests.search.conftest import make_search


def tally_of(store: Store) -> Tally:
    config = settings("termination.evaluations=12")
    tally = Tally(config["termination"], parts.build_termination(config), "eager")
    tally.recall(store, store.run("demo"))
    return tally


def test_counts_and_best_are_those_of_the_store(recorded: Path):
    with Store.open(recorded) as store:
        tally = tally_of(store)
        steps = list(store.steps(store.run("demo").id))
    judged = Counter(str(step.status) for step in steps if step.status)
    assert tally.counts.total() == judged.total() > 12
    assert "verified in fresh processes" in tally.best_text()


def test_of_a_very_long_run_only_the_sitting_is_counted(recorded: Path, monkeypatch):
    monkeypatch.setattr(display, "MAX_RECOUNTED", 3)
    with Store.open(recorded) as store:
        assert tally_of(store).counts_text() == "none since the run was resumed"


def test_a_better_program_is_not_verified_yet(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = record(store, synthetic_task(), SyntheticEvaluator(), "termination.evaluations=1")
        tally = tally_of(store)
        before = tally.best
        config = settings("termination.evaluations=60")
        engine = Search(
            store=store,
            run=run,
            archive=parts.build_archive(config),
            selection=parts.build_selection(config),
            operators=parts.build_operators(config),
        )
        pipeline = Pipeline(
            engine,
            SyntheticEvaluator(),
            parts.build_termination(config),
            listeners=[tally.add],
            verify=False,
        )
        asyncio.run(pipeline.run())
    assert before is not None
    assert tally.best is not None
    assert tally.best.value > before.value
    assert tally.best_text().endswith("not verified yet")


class Drawn(SyntheticEvaluator):
    """A judge who finds challengers as fast as the champion when he times them together."""

    def judge(self, request):
        verdict = super().judge(request)
        duel = {CHAMPION: Ratio(1.0, 0.98, 1.02)} if CHAMPION in request.opponents else {}
        return replace(verdict, ratios=verdict.ratios | duel)


def test_who_has_won_is_shown_whatever_was_verified_last(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = record(store, synthetic_task(), Drawn(), "termination.evaluations=1")
        tally, before = tally_of(store), champion(store, run)
        search = make_search(store, run)
        faster = search.offer(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 128") + "X = 1\n")
        search.tell(faster, Drawn().judge(search.request(faster)))
        rule = from_config({"evaluations": 2})
        asyncio.run(Pipeline(make_search(store, run), Drawn(), rule, listeners=[tally.add]).run())
        last = store.step(run.id, store.made_by(run.id, VERIFY)[-1])
    assert last.ratios["eager"].value > before.ratio.value
    assert tally.best_text() == f"{speedup_text(before.ratio)}, verified in fresh processes"


class Unmoved(SyntheticEvaluator):
    """A judge to whom everything is wrong."""

    async def evaluate(self, request):
        right = await super().evaluate(request)
        feedback = f"case main: {'too far off, ' * 30}\nand more"
        return replace(right, status=Status.WRONG_VALUE, ratios={}, cases=(), feedback=feedback)


def test_a_failed_step_is_one_line_and_the_summary_says_how_most_failed(tmp_path: Path, capsys):
    config = settings("termination.evaluations=2")
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        asyncio.run(search(store, run, config, Unmoved()))
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("fail #")]
    assert "wrong value: case main: too far off" in failed[0]
    assert all(len(line) <= 150 for line in failed)
    summary = f"  {len(failed)} of {len(failed)} ended as 'wrong value', such as: case main"
    assert any(line.startswith(summary) for line in lines)
