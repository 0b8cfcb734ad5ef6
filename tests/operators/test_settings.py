"""The operators' configuration.

Invariants:
1. Every option of `operators` composes alone and with the defaults, and builds.
2. Every setting in it is one that the operator's class takes and uses.
3. What the shared settings say by default is what the classes do.
"""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from evolve.app import components
from operators import Contrastive, Edit
from operators.prompting.composition import Prompted
from tests import composing
from tests.configured import differing_defaults

OPTIONS = sorted(
    path.stem for path in (Path(__file__).parents[2] / "conf/operators").glob("*.yaml")
)
PIECES = [name for name in OPTIONS if name not in ("default", "llm")]


def composed(*words: str) -> dict:
    return composing.composed("task=x", *words)


def names_in(target: type) -> set[str]:
    """Attributes and names that a class and its bases of ours load."""
    ours = [base for base in inspect.getmro(target) if base.__module__.startswith("operators.")]
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for base in ours
        for node in ast.walk(ast.parse(inspect.getsource(base)))
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_adds_its_operator_to_the_defaults(piece):
    config = composed(f"operators=[default,{piece}]")
    built = components.build_operators(config)
    assert {*built} == {"seed", "inductor", "template_seed", "tune", "recombine", piece}
    operator = built[piece].operator
    used = names_in(type(operator))
    for setting in {*config["operators"][piece]} - {"_target_", "weight"}:
        assert setting in inspect.signature(type(operator)).parameters
        assert setting in used, f"{piece}.{setting} is taken and never used"


def test_what_is_not_said_is_what_the_class_does():
    plain = composed("operators=edit", "knowledge.limit=0")["operators"]["edit"]
    for field in fields(Prompted):
        if field.name != "knowledge":
            assert plain[field.name] == getattr(Edit(), field.name), field.name
    contrast = composed("operators=contrastive")["operators"]["contrastive"]
    assert (contrast["top"], contrast["diverse"]) == (Contrastive().top, Contrastive().diverse)


def test_the_mixture_has_every_operator_that_its_page_names():
    built = components.build_operators(composed("operators=llm"))
    model = {"edit", "rewrite_full", "crossover", "template", "summarise", "repair"}
    assert {*built} == {"seed", "inductor", "template_seed", "tune", "recombine"} | model


def test_settings_of_one_operator_and_of_the_knowledge_base_reach_it():
    words = ("operators=llm", "operators.edit.top=5", "knowledge.limit=1", "operators.repair=null")
    built = components.build_operators(composed(*words))
    assert built["edit"].operator.top == 5
    assert built["rewrite_full"].operator.top == 2
    assert built["edit"].operator.knowledge.limit == 1
    assert "repair" not in built


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ["llm.model=provider/name"],
        ["llm=ensemble", "llm.models.fast.model=provider/name"],
        ["llm=replay", "llm.run=earlier"],
        ["llm.model=provider/name", "operators.edit.top=5"],
    ],
)
def test_a_model_alone_brings_the_operators_that_ask_it(words: list[str]):
    assert "rewrite_full" in composed(*words)["operators"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ["search=single"],
        ["search=single", "llm=none"],
        ["search=single", "llm.slots=2"],
        ["llm.model=provider/name", "operators=default"],
    ],
)
def test_one_method_without_a_model_or_by_choice_has_none(words: list[str]):
    assert {*composed(*words)["operators"]} == {
        "seed",
        "inductor",
        "template_seed",
        "tune",
        "recombine",
    }


STATED = {  # what a search sets, and a single operator in Python does not need
    *("Crossover.mates", "Translate.knowledge", "Translate.usual_tokens", "Tune.limit"),
    *("Knowledge.budget_tokens", "Knowledge.folders", "Knowledge.limit", "Knowledge.unmeasured"),
    "Universal.memory",
}


def test_an_operator_that_is_made_in_python_has_the_values_of_its_configuration_file():
    assert differing_defaults("operators") == STATED
