"""Composition.

Invariants:
1. Every option of every group composes, is built, and says what it says after a round trip.
2. Every preset composes; what a user types wins over it.
3. A wrong key, option, type or class is one `UsageError` that names it.
4. Every setting of the verbs with a configuration of their own can be given.
5. The recorded preset is the one that was typed, in one composition and in a sweep.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.app import components
from evolve.app.bench.plan import BenchConfig
from evolve.app.config.build import build, check_types
from evolve.app.config.compose import COMPONENTS, compose_other, run_with_hydra
from evolve.app.config.diff import flatten
from evolve.app.config.locate import config_dir
from evolve.app.config.schema import JudgeConfig
from evolve.cli.commands.judge.mcp import McpConfig
from evolve.cli.commands.judge.serve import ServeConfig
from evolve.cli.commands.run.resume import overridden
from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.protocols import Archive
from evolve.core.records import RECORDED
from tests import composing

OWN_GROUPS = sorted(path.name for path in config_dir().iterdir() if path.is_dir())
OPTIONS = [
    (group, path.stem)
    for group in OWN_GROUPS
    if group != "hydra"
    for path in sorted((config_dir() / group).glob("*.yaml"))
]


def composed(*words: str) -> dict:
    return composing.composed("task=softmax", *words)


def test_the_groups_are_those_that_are_promised():
    assert {group for group, _ in OPTIONS} == {
        *("archive", "selection", "operators", "schedule", "methods", "llm", "knowledge"),
        *("trackers", "termination", "device", "cluster", "store", "search"),
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_of_every_group_composes_and_its_parts_are_built(group: str, option: str):
    config = composed(f"{group}={option}")
    assert isinstance(components.build_archive(config), Archive)
    assert callable(components.build_selection(config).select)
    built = {*components.build_operators(config)}
    if group == "search":
        assert "seed" in built
    elif group != "operators":
        assert {"seed", "tune", "recombine"} <= built
    assert components.build_methods(config) or option != "portfolio"
    components.build_termination(config)
    assert canonical_json(config)  # what the database stores


@pytest.mark.sample(3)
@pytest.mark.parametrize("archive", [option for group, option in OPTIONS if group == "archive"])
def test_a_capacity_that_is_typed_reaches_the_archive(archive: str):
    config = composed(f"archive={archive}", "archive.capacity=7")
    assert components.build_archive(config).capacity == 7


def test_a_preset_selects_parts_and_what_is_typed_wins_over_it():
    quick = composed("search=quick")
    assert quick["archive"]["_target_"].endswith("TopK")
    assert quick["termination"]["wall_time"] == "80s"
    typed = composed("search=quick", "termination=overnight", "archive=map_elites")
    assert typed["archive"]["_target_"].endswith("MapElites")
    assert typed["termination"]["wall_time"] == "8h"


def test_a_plus_before_a_setting_that_is_there_sets_it():
    config = composed("++termination.evaluations=9", "+archive=topk", "+llm.options.user=me")
    assert config["termination"]["evaluations"] == 9
    assert config["archive"]["_target_"].endswith("TopK")
    assert config["llm"]["options"] == {"user": "me"}


def test_the_last_of_two_words_for_one_setting_wins():
    config = composed("termination=smoke", "task=rmsnorm", "termination=overnight", "seed=1")
    assert config["task"] == "rmsnorm"
    assert config["termination"]["wall_time"] == "8h"


def test_an_operator_is_left_out_by_null_and_a_foreign_one_is_let_in():
    config = composed(
        "operators.recombine=null", "+operators.mine._target_=operators.local.tune.Tune"
    )
    operators = components.build_operators(config)
    assert set(operators) == {"seed", "inductor", "template_seed", "tune", "mine"}
    assert operators["mine"].weight == 1.0


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("archive.capacity=abc", "archive.capacity"),
        ("archive.capacity=1.5", "archive.capacity"),
        ("archive.capacity=true", "archive.capacity"),
        (
            "archive.axes=[registers]",
            "archive.axes holds settings by name; write archive.axes.NAME=",
        ),
        ("search=[polca,mcts]", "search=[polca,mcts]: these do not go together"),
        ("termination=[a]", "termination can be: default, overnight"),
        ("llm.options=[1]", "llm.options holds settings by name"),
        ("archive=queue", "topk"),
        *((f"{group}=null", f"{group} can be: ") for group, _ in dict(OPTIONS).items()),
        ("archive=3", "archive can be: "),
        ("initial=[[a]]", "initial=[mine.py,other.py]"),
        ("sandbox.read=[[x]]", "sandbox.read=[/data,/models]"),
        ("device.ids=[[0]]", "device.ids=[0,1]"),
        ("operators.tune.weight=-1", "operators.tune.weight must be above 0"),
        ("archvie.capacity=3", "archvie"),
        ("+archive.depht=3", "depht"),
        ("++budget=3", "budget: there is no such setting; write termination.evaluations"),
        ("evaluations=3", "did you mean termination.evaluations?"),
        ("precision=bf16", "did you mean task_config.precision?"),
        ("termination.evaluation=3", "did you mean termination.evaluations?"),
        ("+termination.all_of.foo=3", "termination.all_of.foo: there is no such setting"),
        ("++task_config.foo=1", "task_config.foo: there is no such setting"),
        ("+llm.price.foo=1", "llm.price.foo: there is no such setting"),
        ("~device.slots=null", "device.slots cannot be taken away"),
        ("selection.epsilon=often", "selection.epsilon"),
        ("operators.tune.breadth=x", "operators.tune.breadth"),
        ("operators.tune.weight=x", "operators.tune.weight"),
        ("+operators.mine._target_=nobody.Nothing", "nobody.Nothing"),
        ("task_config.size=huge", "tiny"),
        ("on_exists=maybe", "resume"),
        ("seed=x", "seed"),
        ("termination.evaluations=many", "termination.evaluations"),
        ("termination.wall_time=soon", "termination.wall_time"),
        ("termination.steps=3", "termination.steps"),
        ("initial=[a", "[a"),
        ("sandbox.require=vm", "namespaces"),
        ("archive._target_=os.system", "os.system"),
    ],
)
def test_what_cannot_be_is_refused_by_name(word: str, says: str):
    with pytest.raises(UsageError, match=r".+") as refused:
        config = composed(word)
        components.build_archive(config)
        components.build_operators(config)
        components.build_termination(config)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("word", ["knowledge.folders=[./nope]", "knowledge.limit=-1"])
def test_knowledge_that_cannot_be_is_refused_even_if_nobody_asks_for_it(word: str):
    with pytest.raises(UsageError, match="knowledge"):
        components.build_all(composed(word))


def test_prompts_that_cannot_be_read_are_refused_before_anything_is_judged(tmp_path: Path):
    model = "llm.model=openai/gpt-4o"
    with pytest.raises(UsageError, match=r"operators\.edit\.prompts: .* is no folder"):
        components.build_all(composed(model, f"operators.edit.prompts={tmp_path}/absent"))
    (tmp_path / "mend.j2").write_text("{% if %}")
    with pytest.raises(UsageError, match=r"mend\.j2, line 1"):
        components.build_all(composed(model, f"operators.edit.prompts={tmp_path}"))


def test_a_planner_that_is_no_model_is_refused_before_anything_is_judged():
    words = ("llm.model=openai/gpt-4o", "operators=macro_micro")
    with pytest.raises(UsageError, match="model nobody: there is no such model or role"):
        components.build_all(composed(*words, "operators.macro_micro.planner=nobody"))
    components.build_all(composed(*words, "operators.macro_micro.planner=openai/gpt-4o"))


def test_a_setting_that_operators_share_is_named_with_the_operator():
    config = composed("llm.model=openai/gpt-4o", "operators.edit.prompt_tokens=3")
    with pytest.raises(UsageError, match=r"operators\.edit\.prompt_tokens"):
        components.build_operators(config)


def test_a_value_that_is_given_a_setting_of_its_own_is_refused_in_our_words():
    """Of a run, but for those of components, whose classes say what they have."""
    parts = {*COMPONENTS, *RECORDED}
    whole = {name: value for name, value in composed().items() if name not in parts}
    values = [name for name, value in flatten(whole) if value != {}]
    assert {"task", "initial", "device.ids", "termination.wall_time", "on_exists"} <= {*values}
    for name in values:
        with pytest.raises(UsageError) as caught:
            composed(f"{name}.other=1")
        assert str(caught.value).startswith(f"{name}.other=1: {name} takes "), name
        assert f"{name}=" in str(caught.value).partition(" takes ")[2]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["[a,b]", "{a:1}"])
def test_a_list_or_a_mapping_in_place_of_a_word_is_refused_in_our_words(value: str):
    with pytest.raises(UsageError, match=r"^baseline takes one value; write baseline=\.\.\.$"):
        composed(f"baseline={value}")


def test_no_limit_at_all_is_refused():
    none = [f"termination.{name}=null" for name in ("evaluations", "wall_time", "stagnation")]
    with pytest.raises(UsageError, match="a run needs an end"):
        components.build_termination(composed(*none))


def test_what_comes_from_the_environment_is_stored_by_name_and_not_by_value(monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hunter2")
    word = f"+operators.mine={{_target_: {THING}, count: 1, word: '${{oc.env:MY_SECRET}}'}}"
    config = composed(word, "name=${oc.env:USER_NAME,nobody}")
    assert "hunter2" not in canonical_json(config)
    assert build(config["operators"]["mine"], "operators.mine").word == "hunter2"
    assert config["name"] == "nobody"


class Thing:
    def __init__(self, *, count: int, share: float = 0.5, word: "str" = "") -> None:
        self.count, self.share, self.word = count, share, word


THING = f"{__name__}.Thing"


@given(count=st.integers(), share=st.floats(allow_nan=False), word=st.text(max_size=5))
def test_settings_of_the_right_types_pass(count: int, share: float, word: str):
    check_types({"_target_": THING, "count": count, "share": share, "word": word}, "thing")


@given(st.one_of(st.none(), st.booleans(), st.text(), st.floats(), st.lists(st.integers())))
def test_settings_of_a_wrong_type_are_refused_by_name(value: object):
    with pytest.raises(UsageError, match=r"thing\.count"):
        check_types({"_target_": THING, "count": value}, "thing")


def test_a_missing_setting_is_refused():
    with pytest.raises(UsageError, match="count"):
        check_types({"_target_": THING}, "thing")


def test_a_constructor_that_refuses_is_quoted_in_its_own_words():
    with pytest.raises(UsageError, match=r"archive\.capacity"):
        build({"_target_": "archives.topk.TopK", "capacity": -1}, "archive")


@pytest.mark.slow
def test_hydra_leaves_no_files(evolve, tmp_path: Path):
    assert evolve("run", "task=softmax", "--cfg", "job").returncode == 0
    assert evolve("run", "-m", "task=nothing", "seed=1,2").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_resume_may_change_one_of_the_limits_that_count_together():
    stored = composed("termination.all_of.evaluations=3", "termination.all_of.target_speedup=2")
    changed = overridden(stored, ["termination.all_of.evaluations=5"])
    both = stored["termination"]["all_of"] | {"evaluations": 5}
    assert changed["termination"] == stored["termination"] | {"all_of": both}
    assert both["target_speedup"] == 2.0


def test_a_resume_may_say_again_what_the_run_is_and_nothing_else():
    stored = composed("seed=3", "archive=topk")
    assert overridden(stored, ["seed=3", "archive=topk", "archive.capacity=100"]) == stored
    for word in ("seed=4", "archive=islands", "search=quick"):
        with pytest.raises(UsageError, match=f"refuses to change.*{word.partition('=')[0]}"):
            overridden(stored, [word])


@pytest.mark.parametrize(
    ("verb", "node", "needed"),
    [
        ("bench", BenchConfig, ["suite=shipped"]),
        ("mcp", McpConfig, []),
        ("serve", ServeConfig, []),
        ("work", JudgeConfig, []),
    ],
)
def test_every_setting_of_another_verb_can_be_given(verb: str, node: type, needed: list[str]):
    plain = dict(flatten(compose_other(verb, node, needed)))
    other = {name: _another(name, value) for name, value in plain.items()}
    other |= dict(word.split("=") for word in needed)
    found = flatten(compose_other(verb, node, [f"{name}={word}" for name, word in other.items()]))
    assert {name: str(value).strip("[']") for name, value in found} == {
        name: word.strip("[]") for name, word in other.items()
    }


CHOICES = {
    "final": "none", "transport": "http", "references": "any", "sandbox.require": "uid",
    "device.half_width": "0.5", "budget.usd": "0.5",
}  # fmt: skip


def _another(name: str, value: object) -> str:
    """Another value than the setting has, as it is typed."""
    if isinstance(value, list) or name in ("baselines", "device.ids"):
        return "[7]"
    return CHOICES.get(name) or (str(not value) if isinstance(value, bool) else "7")


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        (["search=kernel_smith", "archive=topk"], "kernel_smith"),  # spelled out for Hydra
        (["search='kernel_smith'", "archive=topk"], "kernel_smith"),
        (['search="quick"'], "quick"),
        (["+search=quick"], "quick"),
        (["operators=[seed,tune]"], "single"),
        ([], "portfolio"),
    ],
)
def test_the_recorded_preset_is_the_one_that_was_typed(words: list[str], preset: str):
    assert composed(*words)["preset"] == preset


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "presets"),
    [
        (["search=kernel_smith", "archive=topk", "seed=1,2"], ["kernel_smith"] * 2),
        (["search=glob([quick,seeds])"], ["quick", "seeds"]),
        (["search=quick,seeds"], ["quick", "seeds"]),
    ],
)
def test_the_recorded_preset_is_that_of_the_job_in_a_sweep(words: list[str], presets: list[str]):
    found = []

    def job(config):
        found.append(config["preset"])
        return 0

    assert run_with_hydra(["-m", "task=softmax", *words], job) == 0
    assert found == presets
