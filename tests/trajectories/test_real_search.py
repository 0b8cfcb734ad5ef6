"""Steps and recipes of a search that really ran, against the store's other doors and brute force:

1. The programs that a prompt shows are found by their names, all of them.
2. What a step says of its program, parents and verdict is what `Store.steps` says.
3. No recipe crashes, and each accounts for every step.
4. What a prompt asks for, and the programs that it asks it of, are found in it.
"""

import asyncio
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import TopK
from evolve.core.evaluation import Fidelity
from evolve.core.program import Program
from evolve.core.source.tunables import render
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.selection import Tournament
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from evolve.trajectories.flat import flat
from evolve.trajectories.rewards import pipeline, reward_names, shaping_names
from evolve.trajectories.rewards.rescoring import rescore
from evolve.trajectories.shown import named_programs
from evolve.trajectories.step import Made, Step
from evolve.trajectories.steps import steps
from evolve.trajectories.tally import Tally
from evolve.trajectories.views.prompts import job_of, programs_and_job_of
from evolve.trajectories.views.recipes import RECIPES
from operators import Crossover, Edit, Repair, RewriteFull, Seed, Tune
from tests.operators.history import PLAIN, constants_set
from tests.operators.scripted import ScriptedModel

SHOWN = re.compile(r"<quoted (\w+) program>\n(.*?)\n</quoted \1>", re.DOTALL)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    path: Path = tmp_path_factory.mktemp("searched") / "evolve.db"
    with Store.open(path, create=True) as store:
        task = synthetic_task(seeds=(PLAIN, constants_set(PLAIN, UNROLL=2)))
        run = store.create_run(name="real", task=task, config={"baseline": "eager"}, seed=5)
        operators = {
            "seed": Seed(),
            "rewrite_full": RewriteFull(),
            "edit": Edit(),
            "crossover": Crossover(),
            "repair": Repair(),
            "tune": Tune(),
        }
        search = Search(
            store=store,
            run=run,
            archive=TopK(capacity=16),
            selection=Tournament(size=4),
            operators={
                name: Scheduled(operator=one, weight=float("inf") if name == "seed" else 1.0)
                for name, one in operators.items()
            },
            model=ScriptedModel(),
        )
        limits = from_config({"proposals": 110})
        asyncio.run(Pipeline(search, SyntheticEvaluator(slots=2), limits).run())
        yield search


@pytest.fixture(scope="module")
def told(searched: Search) -> list[Step]:
    return list(steps(searched.store, [searched.run.id]))


def sources(told: list[Step]) -> dict[str, str]:
    """Digests by every text that the run may have shown for a program."""
    return {
        render(step.source, step.assignment).strip("\n"): step.program
        for step in told
        if step.program is not None
    }


def shown_programs(text: str, known: dict[str, str]) -> set[str]:
    """The one whose text it is; of one that is shown in part, those that have all these lines."""
    if "# as in program" not in text:
        return {known[text][:8]}
    own = {line for line in text.splitlines() if not line.startswith("# as in program")}
    return {program[:8] for source, program in known.items() if own <= set(source.splitlines())}


@pytest.mark.slow
def test_every_program_in_a_prompt_is_found_by_its_name(told: list[Step]) -> None:
    known, asked = sources(told), 0
    for step in told:
        text = "\n".join(message.content for message in step.prompt)
        named = set(named_programs(text))
        may_be = [shown_programs(found[2], known) for found in SHOWN.finditer(text)]
        asked += len(may_be)
        assert len(named) == len(may_be), step.id
        assert all(programs & named for programs in may_be), step.id
        assert named <= set().union(*may_be), step.id
    assert asked > 50


def test_the_fastest_that_was_shown_is_that_of_brute_force(told: list[Step]) -> None:
    best: dict[str, float] = {}
    for step in told:
        text = "\n".join(message.content for message in step.prompt)
        names = {*named_programs(text), *(parent[:8] for parent in step.parents)}
        ratios = [ratio for name, ratio in best.items() if name[:8] in names]
        shown = None if step.shown_best is None else step.shown_best.value
        assert shown == max(ratios, default=None), step.id
        judged = step.evaluation
        if judged and judged.strict and step.fidelity is Fidelity.SEARCH and judged.ratios:
            ratio = judged.ratios["eager"].value
            best[step.program] = max(best.get(step.program, 0.0), ratio)


def test_steps_say_what_the_lineage_says(told: list[Step], searched: Search) -> None:
    lineage = list(searched.store.steps(searched.run.id))
    for step, known in zip(told, lineage, strict=True):
        assert (step.sequence, step.operator, step.failure) == (
            known.sequence, known.operator, known.failure,
        )  # fmt: skip
        assert (step.program, step.status, step.offer) == (known.program, known.status, known.offer)
        assert step.parents == known.parents
        if step.program is not None:
            assert Program(step.source).digest == step.program
        if step.evaluation is not None:
            assert step.evaluation.ratios == known.ratios
        assert flat(step)["step_id"] == f"real:{step.sequence}"


def test_the_path_leads_to_the_champion_along_main_parents(
    told: list[Step], searched: Search
) -> None:
    path = [step for step in told if step.on_best_path]
    assert len(path) >= 3
    for parent, child in itertools.pairwise(path):
        assert child.parents[0] == parent.program
        assert child.generation == parent.generation + 1
    verified = [step for step in told if step.fidelity is Fidelity.VERIFY]
    assert path[-1].program == verified[-1].program


def test_what_was_asked_for_is_found_in_every_prompt(told: list[Step]) -> None:
    asked = [step for step in told if step.prompt]
    assert {step.operator for step in asked} >= {"rewrite_full", "edit", "crossover"}
    assert any(len(step.exchanges) > 1 for step in asked)  # a reply was mended
    for step in asked:
        job = job_of(step.prompt)
        assert re.findall(r"^# Your (\w+)$", job, re.MULTILINE) == ["job", "answer"], step.id
        assert job.startswith("# Your job\n")
        assert not any("cannot be used" in message.content for message in step.prompt)
        if len(step.parents) > 1:
            shown = programs_and_job_of(step.prompt, step.parents[0])
            assert set(named_programs(shown)) == {parent[:8] for parent in step.parents}
            assert shown.endswith(job)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_accounts_for_every_step(recipe, searched: Search, told: list[Step]) -> None:
    for kind in recipe.views:
        tally = Tally()
        rows = list(recipe.rows(searched.store, [searched.run.id], kind, tally=tally))
        assert (tally.steps, tally.rows) == (len(told), len(rows))
        left_out = sum(sum(reasons.values()) for reasons in tally.removed.values())
        used = [step.sequence for row in rows for step in row.steps]
        if recipe.name not in ("multi_turn@1", "failed_directions@2"):  # which pass over some
            assert left_out + len(used) == len(told)
            assert len(set(used)) == len(used)
        if recipe.name in ("kernel_smith@2", "kto@1", "multi_turn@1", "siblings@1"):
            assert rows, f"{recipe.name} made no {kind} rows"


@pytest.mark.parametrize("name", [*reward_names(), *(f"kevin@1+{one}" for one in shaping_names())])
def test_every_reward_scores_a_real_run(name: str, searched: Search, told: list[Step]) -> None:
    found = rescore(searched.store, searched.run.id, [pipeline(name)])
    again = [step for step in told if step.made is Made.AGAIN or not step.is_search]
    assert len(found.sequences) == len(told) - len(again)
    known = [score for score in found.scores[0] if score is not None]
    assert known  # how many is the chance of the prompts: answers are a function of them
