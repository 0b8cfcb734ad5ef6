"""Policies as users choose them.

Invariants:
1. Every policy has an option `selection=NAME`, which spells out all its settings as the class has
   them, or is a variant of one that does.
2. No setting without an effect.
3. What an option needs of an archive is what `evolve.core.protocols.Archive` names.
"""

import dataclasses
import inspect

import pytest
import yaml

from evolve.app import components
from evolve.app.config.locate import config_dir
from evolve.search import selection
from tests.composing import composed

OPTIONS = sorted(path.stem for path in (config_dir() / "selection").glob("*.yaml"))
VARIANTS = {"polca_ucb", "island_round_robin"}  # differ from their class on purpose


def configured(option: str) -> dict:
    return composed("task=softmax", f"selection={option}")


@pytest.mark.slow
def test_every_policy_is_an_option():
    built = {type(components.build_selection(configured(option))).__name__ for option in OPTIONS}
    assert built >= {*selection.__all__}


@pytest.mark.parametrize("option", sorted({*OPTIONS} - VARIANTS))
def test_an_option_says_all_settings_as_the_class_has_them(option):
    node = yaml.safe_load((config_dir() / "selection" / f"{option}.yaml").read_text())
    policy = getattr(selection, node.pop("_target_").rpartition(".")[2])()
    settings = {name: getattr(policy, name) for name in getattr(policy, "__slots__", ())}
    assert node == settings


@pytest.mark.parametrize("name", selection.__all__)
def test_every_setting_is_used_and_not_only_checked(name):
    policy = getattr(selection, name)
    source = inspect.getsource(policy)
    if settings := dataclasses.fields(policy):
        check = getattr(policy, "__post_init__", None)
        source = source.replace(inspect.getsource(check), "") if check else source
        assert all(f"self.{field.name}" in source for field in settings)


def test_policies_that_need_more_than_a_sequence_say_so():
    policies = {name: getattr(selection, name)() for name in selection.__all__}
    needs = {name: policy.needs for name, policy in policies.items() if hasattr(policy, "needs")}
    assert needs == {
        "AdaptiveIslands": {"islands"},
        "IslandRoundRobin": {"islands"},
        "Uct": {"tree"},
    }
    trees = selection.IslandRoundRobin(within=selection.Uct())
    assert trees.needs == {"islands", "tree"}
