"""Presets, and parts that do not go together.

Invariants:
1. Every preset searches end to end with a model over HTTP: its operators are asked, its programs
   judged, its archive and policy go together, and the run ends for its reason.
2. A preset is data that says whose its values are; what is typed wins over it, whole options too.
3. `selection=...` alone makes KernelEvolve's other variants; kernel_smith's islands do exchange.
4. Parts that contradict each other are refused at composition, with field, value and remedy.
"""

import asyncio
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from evolve.app import components
from evolve.app.config.locate import config_dir
from evolve.core.errors import UsageError
from evolve.core.protocols import Progress
from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.store import Store
from evolve.testing.model_server import ModelServer, Request
from evolve.testing.operators import RELATIVES
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests import composing
from tests.cli.recording import settings

MODELLESS = {"seeds"}  # proposes what there is to start from, and asks nobody
NAMES = {path.stem for path in (config_dir() / "search").glob("*.yaml")} - MODELLESS
PRESETS = sorted(NAMES, key=lambda name: (name != "kernel_smith", name))  # a quick one first
PRICE = ("llm.price.prompt=1", "llm.price.completion=2")
MODEL = ("llm.model=openai/scripted", "llm.slots=1", *PRICE)
TYPED = ("archive=pareto", "selection=boltzmann", "termination=overnight", "operators=default")
LATE = ("openevolve", "adaevolve")  # islands that exchange later than the run below ends
RARE = {
    "repair",
    "remeasure",
    "crossover",
    "template",
    "summarise",
    "supervise",
    "review",
}  # may wait for their occasion


def script(request: Request) -> str:
    """An answer that every operator can read: a choice, a limit, and a program never seen."""
    values = {"BLOCK": 16 << request.number % 5, "UNROLL": 1 << request.number % 4}
    source = SEED_SOURCE
    for name, value in values.items():
        source = re.sub(rf"^{name} = \d+", f"{name} = {value}", source, flags=re.MULTILINE)
    return (
        "## Analysis\nACTION: 1\nLIMIT: memory\n\n## Code\n\n"
        f"```python\n{source}\n\nNUMBER = {request.number}\n```"
    )


def searched(
    store: Store, *words: str, evaluations: int = 9, seeds: tuple[str, ...] = (SEED_SOURCE,)
) -> Outcome:
    """A finished run `demo` of the synthetic task, with whatever model the words name."""
    config = settings("name=demo", f"termination.evaluations={evaluations}", *words) | {"audit": []}
    components.build_all(config | {"device": config["device"] | {"kind": "cpu"}})
    run = store.create_run(
        name="demo", task=synthetic_task(seeds=seeds), config=config, seed=config["seed"]
    )
    search = components.build_search(store, run, config)

    async def body() -> Outcome:
        pipeline = Pipeline(search, SyntheticEvaluator(), components.build_termination(config))
        try:
            return await pipeline.run()
        finally:
            if search.model is not None:
                await search.model.close()

    return asyncio.run(body())


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        yield opened


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_searches_end_to_end_with_a_model(preset: str, store: Store):
    words = [f"search={preset}", *(["archive.interval=5"] if preset in LATE else [])]
    with ModelServer(script) as server:
        model = (*MODEL, f"llm.api_base={server.api_base}")
        outcome = searched(store, *words, *model, evaluations=14)
        assert server.deliveries
    assert outcome.finished
    assert "evaluations" in outcome.reason
    run = store.run("demo")
    steps = list(store.steps(run.id))
    operators = {name for name, node in run.config["operators"].items() if node is not None}
    named = operators - RARE if preset not in ("single", "greedy", "quick", "portfolio") else set()
    assert named <= {step.operator for step in steps}
    assert store.slots(run.id)
    judged = [step for step in steps if step.operator not in ("seed", "verify")]
    assert any(step.ratios for step in judged)


@pytest.mark.sample(1)
@pytest.mark.parametrize("selection", ["greedy", "uct", "tournament"])
def test_one_word_makes_the_variants_of_kernel_evolve(selection: str, store: Store):
    with ModelServer(script) as server:
        searched(
            store,
            *("search=kernel_evolve", f"selection={selection}"),
            *(*MODEL, f"llm.api_base={server.api_base}"),
            evaluations=6,
        )
    assert store.slots(store.run("demo").id)


@pytest.mark.slow  # exchanges are in archives/test_islands
def test_the_islands_of_kernel_smith_exchange_programs_within_its_forty_rounds(store: Store):
    with ModelServer(script) as server:
        searched(
            store,
            *("search=kernel_smith", *MODEL, f"llm.api_base={server.api_base}"),
            evaluations=20,
        )
    run = store.run("demo")
    places: dict[str, set[str]] = {}
    for slot, elite in store.slots(run.id).items():
        if elite.operator != "seed":
            places.setdefault(elite.program, set()).add(slot.partition("/")[0])
    assert any(len(islands) > 1 for islands in places.values())


def test_the_portfolio_without_a_model_searches_by_its_arms_that_need_none(store: Store):
    searched(store, "search=portfolio", evaluations=20, seeds=RELATIVES)
    run = store.run("demo")
    methods = {arm.method for arm in store.arms(run.id)} - {""}
    assert methods == {"posterior", "tree"}


def test_a_bandit_knows_what_the_run_may_spend():
    config = settings("search=portfolio", "termination.usd=5", "termination.wall_time=2h")
    used = components.build_schedule(config).limit.usage(Progress(usd=1.0, wall_time_s=360.0))
    assert (used["usd"], used["wall_time"]) == (0.2, 0.05)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_says_whose_its_values_are(preset: str):
    text = (config_dir() / "search" / f"{preset}.yaml").read_text()
    if preset not in ("single", "quick"):
        assert re.search(r"arXiv \d{4}\.\d{5}|gh:\w+/\w+|[Oo]urs|are ours", text)
    for line in text.split("\nllm:")[0].splitlines():
        if re.match(r"    \w+: [\d.]+$", line):  # a number of an operator, archive or policy
            pytest.fail(f"{preset}: {line.strip()} says nothing of where it is from")


@cache
def composed(*words: str) -> dict[str, Any]:
    return composing.composed("task=any", *words)


@pytest.mark.slow  # six compositions for each preset; values that are typed are below
@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "single"])
def test_an_option_that_is_typed_is_taken_whole_whatever_a_preset_says_of_its_group(preset: str):
    untouched = composed(f"search={preset}")
    groups = {"archive", "selection", "operators", "termination", "methods", "llm"}
    for typed in TYPED:
        group = typed.partition("=")[0]
        both = composed(f"search={preset}", typed)
        assert both[group] == composed(typed)[group]
        assert all(both[other] == untouched[other] for other in groups - {group})


@pytest.mark.sample(2)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_value_that_is_typed_wins_over_a_preset(preset: str):
    config = composed(f"search={preset}", "archive.capacity=7", "termination.proposals=3")
    assert config["archive"]["capacity"] == 7
    assert config["termination"]["proposals"] == 3


def test_a_preset_keeps_its_operators_when_a_model_is_named():
    config = composed("search=mtmc", *MODEL)
    assert {name for name, node in config["operators"].items() if node} == {
        "seed",
        "tune",
        "macro_micro",
    }
    assert "rewrite_full" in composed("search=greedy", *MODEL)["operators"]


CONTRADICTIONS: dict[tuple[str, ...], tuple[str, str]] = {
    ("archive=priority", "selection=uct"): ("selection: Uct", "archive=tree"),
    ("archive=topk", "selection=island_round_robin"): ("IslandRoundRobin", "archive=islands"),
    ("archive=islands", "archive.interval=50", "termination.proposals=40"): (
        "archive.interval=50",
        "archive.interval=8",
    ),
    ("archive=islands", "archive.interval=5000"): ("termination.evaluations=400", "migration=none"),
    ("+archive.axes.registers=[0,32,64]",): ("archive.axes.registers", "memory_access"),
    ("archive=pareto", "+archive.objectives.moon_phase=max"): ("moon_phase", "device=cpu"),
    ("search=polca",): ("summarise", "llm.model=provider/NAME"),
    ("llm.model=openai/gpt-4o", "operators=default"): ("no operator asks", "operators=llm"),
    (
        "search=single",
        "+methods.mine={operators: {edit: 1.0}}",
    ): ("methods.mine.operators", "operators.edit"),
    (
        "search=single",
        "+methods.mine={operators: {tune: 1.0}}",
    ): ("operators.recombine", "no method"),
    (
        "search=single",
        "+methods.mine={operators: {tune: often}}",
    ): ("methods.mine.operators.tune", "number"),
    (
        "search=single",
        "+methods.mine={operator: tune}",
    ): ("methods.mine", "operators"),
    (
        "search=single",
        "+methods.mine={operators: {tune: 1.0}, parents: 2}",
    ): ("methods.mine.parents", "leave it"),
    ("search=portfolio", "archive=topk"): ("methods.tree.selection", "archive=tree"),
}


@pytest.mark.parametrize("words", CONTRADICTIONS, ids=" ".join)
def test_parts_that_contradict_each_other_are_refused_with_the_remedy(words: tuple[str, ...]):
    with pytest.raises(UsageError) as refused:
        components.build_all(composed("device=cpu", *words))
    for said in CONTRADICTIONS[words]:
        assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow  # a command, for the message of the test above
def test_contradictory_parts_end_the_command_with_status_2(evolve):
    done = evolve("run", "task=softmax", "device=cpu", "archive=priority", "selection=uct")
    assert done.returncode == 2
    assert "archive=tree" in done.stderr
