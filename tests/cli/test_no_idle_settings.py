"""No setting without an effect (promise 7).

Invariants:
1. The code that starts a run asks for every leaf of the configuration by its name: with any one
   taken away, starting a run fails on exactly that name.
2. Every `termination.*` limit ends up in the rule.
3. A component's settings are parameters of its constructor, and its class uses each by name.
"""

import ast
import asyncio
import inspect
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from evolve.app import components
from evolve.app.config.build import locate
from evolve.app.config.diff import flatten
from evolve.core.errors import UsageError
from evolve.core.protocols import Progress
from evolve.core.records import RECORDED
from evolve.testing.synthetic import synthetic_task
from tests.cli.at_terminal import launch
from tests.cli.recording import settings

COMPONENTS = ("archive", "selection", "operators", "schedule", "knowledge")
LEAVES = [
    name
    for name, _ in flatten(settings())
    if name.partition(".")[0] not in (*COMPONENTS, *RECORDED, "opponents", "termination")
]
LIMITS = {"evaluations": 9, "proposals": 9, "wall_time": "9m", "device_time": "9m", "tokens": 9}
LIMITS |= {"usd": 9.0, "stagnation": 9, "target_speedup": 9.0, "speed_of_light": 0.9}


@pytest.fixture
def config(recorded: Path, tmp_path: Path, monkeypatch) -> dict[str, Any]:
    """A run that replays a recorded one, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    task = synthetic_task()
    Path("synthetic.py").write_text(task.source)
    Path("seeds").mkdir()
    Path("seeds/seed.py").write_text(task.seeds[0])
    return settings("device=replay", "device.run=demo", "termination.evaluations=12") | {
        "task": "./synthetic.py"
    }


def without(config: Mapping[str, Any], leaf: str) -> dict[str, Any]:
    result = deepcopy(dict(config))
    *above, name = leaf.split(".")
    inner = result
    for key in above:
        inner = inner[key]
    del inner[name]
    return result


@pytest.mark.slow
def test_the_whole_configuration_starts_a_run(config):
    assert asyncio.run(launch(config)) == 0


@pytest.mark.sample(12)
@pytest.mark.parametrize("leaf", [*LEAVES, "termination.stop_file"])
def test_a_run_cannot_start_without_the_setting(config, leaf: str, monkeypatch):
    monkeypatch.setattr("evolve.evaluation.LocalEvaluator.start", _no_worker)
    if leaf.startswith("sandbox."):  # only a worker has a sandbox
        config = settings("device=cpu") | {"task": config["task"]}
    if leaf == "on_exists":  # asked for where the name is taken
        config["name"] = "demo"
    with pytest.raises(KeyError, match=f"^'{leaf.rpartition('.')[2]}'$"):
        asyncio.run(launch(without(config, leaf)))


async def _no_worker(**_: Any) -> None:
    raise AssertionError("the setting was not asked for before the worker was started")


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_part_of_the_rule(name: str):
    rule = build_termination(limits(**{"stagnation": 1, name: LIMITS[name]}))
    assert name in rule.usage(Progress())


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_can_be_one_of_several_that_count_together(name: str):
    both = limits(stagnation=1, all_of={name: LIMITS[name]})
    rule = build_termination(both)
    assert "all_of" in rule.usage(Progress())


def build_termination(limits: dict[str, Any]):
    return components.build_termination(settings() | {"termination": limits})


def limits(**given: Any) -> dict[str, Any]:
    return {**dict.fromkeys(settings()["termination"]), "all_of": {}} | given


def test_no_limit_is_missing_above():
    assert {*LIMITS, "all_of", "stop_file"} == {*settings()["termination"]}
    assert {*LIMITS} == {*settings()["termination"]["all_of"]}


@pytest.mark.parametrize("name", ["tokens", "usd"])
def test_a_limit_that_nothing_comes_nearer_to_is_refused_as_the_only_one(name: str):
    for termination in (
        limits(**{name: 9}),
        limits(all_of={name: 9, "evaluations": 9}),
    ):
        with pytest.raises(UsageError, match=rf"{name} alone would never end the run"):
            build_termination(termination)


def test_beside_another_limit_it_is_said_to_have_no_effect(config, capsys):
    config["termination"]["usd"] = 9.0
    assert asyncio.run(launch(config)) == 0
    assert "termination.usd has no effect: no model" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["archive=topk", "selection=greedy"],
        ["archive=map_elites", "selection=tournament"],
        ["archive=islands"],
        ["archive=novelty"],
        ["archive=pareto"],
        ["archive=priority"],
        ["archive=tree"],
        ["selection=epsilon_greedy"],
        ["schedule=bandit"],
    ],
)
def test_every_setting_of_a_component_is_used_by_its_class(words: list[str]):
    config = settings(*words)
    nodes = {name: config[name] for name in COMPONENTS if name != "operators"}
    nodes |= {f"operators.{name}": node for name, node in config["operators"].items()}
    for where, node in nodes.items():
        target = locate(node, where)
        used = names_in(target)
        for name in node:
            if name not in ("_target_", "weight"):
                assert name in inspect.signature(target).parameters, (where, name)
                assert name in used, f"{where}.{name} is taken and never used"


def names_in(target: type) -> set[str]:
    """Names and attributes that the code of a class loads, documentation aside."""
    tree = ast.parse(inspect.getsource(target))
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
    }


def test_the_weight_of_an_operator_is_its_share_of_the_proposals():
    heavy = components.build_operators(settings("operators.recombine.weight=9"))
    assert heavy["recombine"].weight == 9.0
    assert heavy["seed"].weight == float("inf")
