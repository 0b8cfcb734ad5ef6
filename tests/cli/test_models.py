"""Invariants of runs that ask models, over real HTTP:

1. `llm.model=provider/name` alone is enough; what cannot be held or reached is said at the start.
2. A recorded run is repeated offline, byte for byte in deterministic mode.
3. Keys are nowhere: not in the database, the configuration, the report or what is printed.
4. No run is a replay of itself, be it by way of others.
"""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.budget import budget_notes
from evolve.app.models import build_model, key_notes
from evolve.app.validation import read_request
from evolve.cli.commands.run import resume
from evolve.cli.commands.run.resume import overridden
from evolve.cli.commands.run.run import check_word
from evolve.core.errors import UsageError
from evolve.llm.secrets import HIDDEN
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow, Store
from evolve.testing.model_server import Answer, ModelServer, Refusal, Request
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.at_terminal import launch, search
from tests.cli.recording import PRICE, diagnosing, script, settings, words, words_for

KEY = "sk-very-secret-0123456789abcdef"


def record(server: ModelServer, *more: str) -> None:
    """A finished deterministic run `demo` whose model is at the server."""
    config = settings("name=demo", "deterministic=true", *words(server, *more))
    config |= {"task": "./synthetic.py", "audit": []}
    task = read_request(config).task

    async def body(store: Store) -> None:
        run = store.create_run(name="demo", task=task, config=config, seed=config["seed"])
        search = components.build_search(store, run, config)
        rule = components.build_termination(config)
        judge = SyntheticEvaluator()
        await Pipeline(search, judge, rule, serial=config["deterministic"]).run()
        await search.model.close()

    with Store.open("runs/evolve.db", create=True) as store:
        asyncio.run(body(store))


def canonical(name: str) -> list[str]:
    with Store.open("runs/evolve.db", read_only=True) as store:
        return list(store.dump(store.run(name).id, canonical=True))


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", ["shares", "bandit"])
def test_a_recorded_run_is_repeated_offline_byte_for_byte(task_folder, schedule):
    words = (f"schedule={schedule}", "termination.evaluations=14")
    with ModelServer(script) as server:
        record(server, *words)
        assert len(server.log.requests) > 3
    again = settings(
        "name=again",
        *("llm=replay", "llm.run=demo", "device=replay", "device.run=demo"),
        *("deterministic=true", "operators=llm", *words),
    )
    assert asyncio.run(launch(again | {"task": "./synthetic.py"})) == 0
    assert canonical("again") == canonical("demo")
    assert any('"rounds"' in line for line in canonical("demo"))
    with Store.open("runs/evolve.db", read_only=True) as store:
        runs = [store.run(name).id for name in ("demo", "again")]
        first, second = map(store.progress, runs)
        assert sum(cost.usd for cost in store.costs(runs[0])) > 0
        assert store.costs(runs[1]) == []  # nothing of it was paid for again
    assert second.device_time_s == first.device_time_s > 0


MODEL_OPERATORS = "seed,universal,edit,crossover,repair,contrastive,macro_micro,summarise,template"


def choosing(request: Request) -> str | Answer | Refusal:
    """Whatever any operator asks for, and a fault now and then."""
    if request.number in (3, 4, 17):
        return Refusal(503)
    if request.number == 9:
        return Answer("class Mod", finish_reason="length")
    return "ACTION: 1" if "ACTION: number" in request.prompt else diagnosing(request)


@pytest.mark.slow
def test_a_replay_of_all_operators_is_repeated_itself(task_folder):
    words = (
        f"operators=[{MODEL_OPERATORS}]",
        *("operators.universal.diagnosis=model", "operators.summarise.every=4"),
        *("operators.edit.samples=2", "schedule=bandit", "termination.proposals=24"),
    )
    with ModelServer(choosing) as server:
        record(server, *words)
    for name, of in (("again", "demo"), ("once_more", "again")):
        replay = ("llm=replay", f"llm.run={of}", "device=replay", f"device.run={of}")
        config = settings(f"name={name}", "deterministic=true", *replay, *words)
        assert asyncio.run(launch(config | {"task": "./synthetic.py"})) == 0
        assert canonical(name) == canonical("demo")


def test_a_replay_that_was_killed_in_a_call_has_paid_for_nothing(task_folder):
    with ModelServer(script) as server:
        record(server, "termination.evaluations=2")
    config = settings("llm=replay", "llm.run=demo", "operators=llm") | {"opponents": {}}
    with Store.open("runs/evolve.db", create=True) as store:
        task = store.run("demo").task
        run = store.create_run(name="again", task=task, config=config, seed=0)
        search = components.build_search(store, run, config)
        ticket = search.ask(operators=["rewrite_full"])
        store.begin_call(ticket, search.model.reserve(ticket.request))
        assert store.costs(run.id) == []
        components.build_search(store, run, config).open_tickets()
        assert store.costs(run.id) == []


def test_a_replay_of_a_run_without_a_model_is_refused(task_folder, recorded):
    with pytest.raises(UsageError, match="asked no model"):
        build_model(settings("llm=replay", "llm.run=demo"))
    with pytest.raises(UsageError, match=r"llm\.run=RUN"):
        build_model(settings("llm=replay"))


def test_an_address_without_a_model_is_refused_unrepeated():
    with pytest.raises(UsageError, match=r"llm\.model=openai/NAME") as caught:
        build_model(settings("llm.api_base=https://plain-words-only@gateway/v1"))
    assert "plain-words-only" not in str(caught.value)


def replaying(store: Store, name: str, of: str) -> RunRow:
    """A run of this name that was stored as the replay of another."""
    config = settings(f"name={name}", "llm=replay", f"llm.run={of}", "operators=llm")
    return store.create_run(name=name, task=synthetic_task(), config=config, seed=0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("of", ["demo", "again"])
def test_a_run_does_not_become_a_replay_of_itself(task_folder, of):
    with ModelServer(script) as server:
        record(server, "termination.evaluations=2")
    with Store.open("runs/evolve.db") as store:
        replaying(store, "again", "demo")
        run = store.run("demo")
        config = overridden(run.config, ["llm=replay", f"llm.run={of}"])
        for build in (
            lambda: components.build_all(config, run=run.name),
            lambda: asyncio.run(search(store, run, config, SyntheticEvaluator())),
        ):
            with pytest.raises(UsageError, match=r"demo replays (again replays )?demo.*llm=none"):
                build()
        assert store.run("demo").config == run.config
    with pytest.raises(UsageError, match=r"demo replays (again replays )?demo"):
        resume.main(["demo", "llm=replay", f"llm.run={of}"])
    again = {**config, "task": "./synthetic.py", "on_exists": "resume"}
    with pytest.raises(UsageError, match=r"demo replays (again replays )?demo"):
        read_request(again)


@pytest.mark.slow  # a replay of itself is above
def test_replays_of_each_other_are_refused_and_another_model_ends_it(task_folder):
    with Store.open("runs/evolve.db", create=True) as store:
        runs = [replaying(store, *pair) for pair in (("a", "b"), ("b", "a"), ("c", "c"))]
    for run in runs:
        with pytest.raises(UsageError, match=r"goes in a circle, (\w) .*replays \1: .*llm=none"):
            build_model(run.config)
    mended = overridden(runs[0].config, ["llm=none", "llm.model=openai/gpt-4o"])
    assert build_model(mended, run="a").models[0].name == "openai/gpt-4o"


@pytest.mark.slow  # two runs; replays are above and in search/test_replay
def test_a_new_run_beside_one_of_its_name_may_be_its_replay(task_folder):
    with ModelServer(script) as server:
        record(server, "termination.evaluations=2")
    words = ("name=demo", "on_exists=new", "operators=llm", "termination.evaluations=2")
    replay = ("llm=replay", "llm.run=demo", "device=replay", "device.run=demo")
    config = settings(*words, *replay, "deterministic=true") | {"task": "./synthetic.py"}
    assert asyncio.run(launch(config)) == 0
    assert canonical("demo-1") == canonical("demo")


def test_keys_are_nowhere(task_folder, monkeypatch, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_KEY", KEY)

    def echoing(request: Request) -> str | Refusal:
        if request.number == 1:
            return Refusal(400, message=f"bad request with key {KEY}")
        return script(request)

    with ModelServer(echoing) as server:
        record(server, "termination.evaluations=6", "llm.key_variable=MY_KEY")
        assert server.log.requests[0].headers["authorization"] == f"Bearer {KEY}"
    with Store.open("runs/evolve.db", read_only=True) as store:
        dump = "\n".join(store.dump(store.run("demo").id))
        config = json.dumps(store.run("demo").config)
    from evolve.report.run.facts import gather
    from evolve.report.run.html import render

    with Store.open("runs/evolve.db", read_only=True) as store:
        report = render(gather(store, "demo"))
    printed = "".join(capfd.readouterr())
    for text in (
        dump,
        config,
        report,
        printed,
        Path("runs/evolve.db").read_bytes().decode("latin1"),
    ):
        assert KEY not in text
    assert "bad request" in dump


def test_a_key_of_any_name_that_an_endpoint_quotes_is_stored_nowhere(
    task_folder, monkeypatch, capfd
):
    monkeypatch.setenv("GATEWAY", "swordfish-and-chips")
    monkeypatch.setenv("SUBSCRIPTION", "plain-words-only")
    header = "+llm.options.extra_headers.Subscription='${oc.env:SUBSCRIPTION}'"

    def quoting(request: Request) -> str | Refusal:
        said = f"no: {request.headers['authorization']} {request.headers['subscription']}"
        return Refusal(400, message=said) if request.number == 1 else script(request)

    with ModelServer(quoting) as server:
        record(server, "termination.evaluations=4", "llm.key_variable=GATEWAY", header)
    with Store.open("runs/evolve.db", read_only=True) as store:
        kept = "\n".join(store.dump(store.run("demo").id)) + "".join(capfd.readouterr())
    assert f"bad request: no: Bearer {HIDDEN} {HIDDEN}" in kept
    assert "swordfish" not in kept
    assert "plain-words" not in kept


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "word",
    [
        "+llm.options.extra_headers.Helicone-Auth='Bearer sk-helicone-0123456789abcdef'",
        "+llm.options.extra_headers.Ocp-Apim-Subscription-Key=0123456789abcdef0123456789abcdef",
        "llm.api_base=https://gateway/v1/sk-proj-0123456789abcdef",
        "llm.models.a.options.anything=[sk-proj-0123456789abcdef]",
    ],
)
@pytest.mark.parametrize("kind", [[], ["llm=replay", "llm.run=demo"]])
def test_a_key_that_the_configuration_spells_out_is_refused_unrepeated(word, kind):
    with pytest.raises(
        UsageError, match=r"keys stay in the environment.*\$\{oc\.env:NAME"
    ) as caught:
        components.build_all(settings("llm.model=openai/x", *kind, word))
    assert "0123456789abcdef" not in str(caught.value)


def test_a_header_from_the_environment_is_sent_and_its_value_stored_nowhere(
    task_folder, monkeypatch
):
    monkeypatch.setenv("SUBSCRIPTION", KEY)
    header = "+llm.options.extra_headers.Ocp-Apim-Subscription-Key='${oc.env:SUBSCRIPTION}'"
    with ModelServer(script) as server:
        record(server, "termination.evaluations=3", header)
        assert server.log.requests[0].headers["ocp-apim-subscription-key"] == KEY
    with Store.open("runs/evolve.db", read_only=True) as store:
        assert "${oc.env:SUBSCRIPTION}" in json.dumps(store.run("demo").config)
    assert KEY not in Path("runs/evolve.db").read_bytes().decode("latin1")


def test_the_configuration_is_printed_as_it_is_stored_and_never_resolved():
    check_word("job", before="--cfg")
    with pytest.raises(UsageError, match="the only flags are"):
        check_word("--resolve", before="job")


@pytest.mark.slow  # search/test_outages has a refused key
def test_a_refused_key_costs_nothing_however_many_calls_were_under_way(task_folder):
    def refusing(request: Request) -> Refusal:
        time.sleep(0.2 * request.number)
        return Refusal(401)

    with ModelServer(refusing) as server:
        with pytest.raises(UsageError, match=r"key is missing or refused.*evolve resume"):
            record(server, "deterministic=false", "termination.evaluations=50")
        assert len(server.log.requests) > 1
    with Store.open("runs/evolve.db", read_only=True) as store:
        progress = store.progress(store.run("demo").id)
    assert (progress.calls, progress.tokens, progress.usd) == (0, 0, 0.0)


def test_a_usd_budget_for_an_unpriced_model_is_refused_with_the_remedy():
    config = settings("llm.model=openai/nobody-knows", "termination.usd=5")
    with pytest.raises(UsageError, match=r"llm\.price\.prompt=\.\.\. llm\.price\.completion"):
        build_model(config)
    named = settings("llm.models.fast.model=openai/nobody", "termination.all_of.usd=5")
    with pytest.raises(UsageError, match=r"llm\.models\.fast\.price\.prompt"):
        build_model(named)
    assert build_model(settings("llm.model=openai/nobody-knows", *PRICE, "termination.usd=5"))


def test_one_word_is_enough_and_brings_the_operators():
    config = settings("llm.model=openai/gpt-4o")
    assert build_model(config).models[0].name == "openai/gpt-4o"
    assert "rewrite_full" in components.build_operators(config)


def test_without_a_word_there_is_no_model():
    assert build_model(settings()) is None
    with pytest.raises(UsageError, match=r"llm\.model is empty"):
        build_model(settings("llm.model="))


def test_several_models_are_given_by_name():
    config = settings(
        "llm=ensemble", "llm.models.fast.model=openai/a", "llm.models.strong.model=openai/b"
    )
    assert [card.name for card in build_model(config).models] == ["fast", "strong"]
    with pytest.raises(UsageError, match=r"llm\.models\.fast\.model="):
        build_model(settings("llm=ensemble"))


def test_a_model_that_no_operator_asks_is_said_to_have_no_effect():
    config = settings("llm.model=openai/gpt-4o", "operators=default")
    with pytest.raises(UsageError, match=r"no operator asks a model.*operators=llm"):
        components.build_all(config)


def test_a_task_without_programs_needs_a_model_that_writes_the_first(task_folder):
    Path("seeds/seed.py").unlink()
    with pytest.raises(UsageError, match=r"llm\.model=provider/NAME"):
        read_request(settings("operators.inductor=null") | {"task": "./synthetic.py"})
    config = settings(*words_for("http://127.0.0.1:9/v1")) | {"task": "./synthetic.py"}
    assert read_request(config).task.seeds == ()


@pytest.mark.slow  # what it needs is in another test here
def test_a_search_that_starts_from_nothing_finds_a_program(task_folder):
    Path("seeds/seed.py").unlink()
    with ModelServer(script) as server:
        record(server, "termination.evaluations=4")
    with Store.open("runs/evolve.db", read_only=True) as store:
        assert store.progress(store.run("demo").id).best is not None


def test_a_key_that_is_missing_is_refused_before_anything_is_judged(monkeypatch):
    for variable in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(variable)
    with pytest.raises(UsageError, match=r"llm\.model=openai/gpt-4o: .*export OPENAI_API_KEY"):
        [*key_notes(settings("llm.model=openai/gpt-4o"))]
    assert not [*key_notes(settings(*words_for("http://127.0.0.1:9/v1")))]
    assert not [*key_notes(settings())]
    named = settings("llm.model=openai/gpt-4o", "llm.key_variable=MINE")
    with pytest.raises(UsageError, match=r"llm\.key_variable=MINE: .*export it"):
        [*key_notes(named)]
    monkeypatch.setenv("MINE", KEY)
    assert not [*key_notes(named)]


@pytest.mark.parametrize(
    "instead",
    [
        {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},  # LiteLLM reads it
        {"OPENAI_API_KEY": KEY},
    ],
)
def test_what_may_stand_for_a_key_is_left_to_the_endpoint(monkeypatch, instead):
    for variable in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(variable)
    for variable, value in instead.items():
        monkeypatch.setenv(variable, value)
    notes = [*key_notes(settings("llm.model=openai/gpt-4o"))]
    assert len(notes) == ("OPENAI_API_KEY" not in instead)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "words",
    [
        ["llm.model=openai/gpt-999", "llm.context_tokens=100000"],
        ["llm.model=openai/gpt-999", *PRICE],
        ["llm.model=openai/gpt-4o-2099-01-01"],
        ["llm.model=openai/ft:gpt-4o:mine"],
        ["llm.model=openai/mine", "llm.api_base=http://127.0.0.1:9/v1"],
        ["llm.model=azure/my-deployment", "llm.api_base=http://127.0.0.1:9/v1"],
        ["llm.model=openrouter/somebody/some-model"],
        ["llm.model=ollama/anything"],
    ],
)
def test_a_model_that_may_be_one_is_not_refused(monkeypatch, words):
    for variable in ("OPENAI_API_KEY", "AZURE_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    assert not [*key_notes(settings(*words))]


def test_a_run_that_has_asked_its_model_is_resumed_whatever_the_list_says(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    config = settings("llm.model=openai/gpt-999")
    with pytest.raises(UsageError, match=r"llm\.model=openai/gpt-999: LiteLLM lists no such model"):
        [*key_notes(config)]
    assert not [*key_notes(config, is_new=False)]


def test_a_run_too_short_for_a_model_is_said_to_be_so():
    config = settings("search=quick", "llm.model=openai/gpt-4o", "termination.wall_time=4m")
    [note] = budget_notes(config, "cpu")
    assert note.startswith("termination.wall_time=4m: ")
    longer = settings("search=quick", "llm.model=openai/gpt-4o", "termination.wall_time=10m")
    unlimited = settings("llm.model=openai/gpt-4o", "termination.wall_time=null")
    without = settings("search=quick", "termination.wall_time=4m")
    assert not [note for each in (longer, unlimited, without) for note in budget_notes(each, "cpu")]
