"""What finished runs tell the next one (`memory`).

Invariants:
1. Rules, ideas and summaries of finished runs on the same kind of operation stand in the first
   prompt of the next run, quoted, each with its runs, device and figures.
2. Nothing is told of other operations or of runs that go on, nor with `memory.runs=0`.
3. What is told is bounded, and fixed when the run begins: what ends later changes no prompt of it.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.recall import with_recalled
from evolve.app.validation import read_request
from evolve.core.evaluation import Evaluation, Status
from evolve.core.source.tokens import estimate_tokens
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store
from evolve.testing.model_server import ModelServer
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from evolve.worker.service.batch_files import read_requests
from evolve.worker.service.shards import Shards
from tests.cli.at_terminal import launch
from tests.cli.recording import settings
from tests.cli.test_batch import answer
from tests.cli.test_models import script, words_for
from tests.operators.history import constants_set

HEADING = "# What finished runs on the same kind of operation have found"
WORDS = ("search=single", "termination.evaluations=400")
OPERATORS = "operators=[seed,rewrite_full]"
WIDE = constants_set(SEED_SOURCE, BLOCK=64) + "\nWIDE = 1\n"
FAILS = "FAILS"
MESSAGE = "candidate.py line {}: arange's range must be a power of 2, not {}"

Answer = tuple[str, str]  # what is said, and the program


@pytest.fixture
def evolve(evolve_here, tmp_path: Path):
    """In a folder with tasks of which `soft` and `logsoft` are of one kind, and `scan` is not."""
    calls = {"soft": "x.softmax(-1)", "logsoft": "x.log_softmax(-1)", "scan": "x.cumsum(-1)"}
    for name, call in calls.items():
        source = synthetic_task().source.replace("return x\n", f"return {call}\n")
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "seed.py").write_text(SEED_SOURCE)
    return evolve_here


def create(evolve, task: str, name: str, *words: str) -> str:
    operators = () if any(word.startswith("operators=") for word in words) else (OPERATORS,)
    given = (f"task=./{task}.py", f"name={name}", "initial=[seed.py]", *WORDS, *operators, *words)
    done = evolve("run", *given, "--create")
    assert done.returncode == 0, done.stderr
    return done.stdout


def judged(evolve, folder: Path, name: str) -> None:
    """Judge what waits; a program that says FAILS n does not compile, in a line of its own."""
    done = evolve("batch", name, "-o", "in.jsonl")
    if "known to this database already, and told" in done.stdout:
        return
    assert done.returncode == 0, done.stderr
    shards = Shards(folder / f"verdicts-{name}")
    for request in read_requests(folder / "in.jsonl")[0]:
        result = answer(request)
        found = re.search(rf"{FAILS} = (\d+)", request.params.get("source", ""))
        if found:
            result = failed(result, MESSAGE.format(found[1], found[1]))
        about = {"id": request.id, "subject": request.subject, "final": True, "seconds": 1.0}
        shards.write({**about, "result": result})
    shards.close()
    assert evolve("tell", name, f"verdicts-{name}").returncode == 0


def failed(verdict, message: str):
    right = Evaluation.from_json(verdict)
    wrong = replace(right, status=Status.COMPILE_ERROR, ratios={}, cases=(), custom=None)
    return replace(wrong, feedback=message, descriptors={}).to_json()


def answered(
    evolve, folder: Path, name: str, answers: Sequence[Answer], operator: str = "rewrite_full"
) -> None:
    """Ask for so many programs, and have these judged."""
    out = folder / f"out-{name}"
    words = ("ask", name, "--operator", operator, "-n", str(len(answers)), "--out", str(out))
    assert evolve(*words).returncode == 0
    waiting = [p for p in sorted(out.glob("*.prompt.md")) if not reply_of(p).exists()]
    for prompt, (said, source) in zip(waiting, answers, strict=True):
        reply_of(prompt).write_text(f"{said}\n\n```python\n{source}```\n")
    assert evolve("tell", name, str(out)).returncode == 0
    judged(evolve, folder, name)


def reply_of(prompt: Path) -> Path:
    return prompt.with_name(prompt.name.replace(".prompt.md", ".reply.md"))


def finish(name: str) -> None:
    with Store.open("runs/evolve.db") as store:
        run = store.run(name)
        store.claim(run.id)
        store.release(run.id, "finished", "its budget is used")


def fails(count: int) -> list[Answer]:
    return [("A try.", f"{SEED_SOURCE}\n{FAILS} = {100 + number}\n") for number in range(count)]


def past(evolve, folder: Path, name: str = "past", task: str = "soft", failures: int = 3) -> None:
    """A finished run: failures of one kind, and a program that is faster than the seed."""
    create(evolve, task, name)
    judged(evolve, folder, name)
    answered(evolve, folder, name, [*fails(failures), ("Wider loads.", WIDE)])
    finish(name)


def prompt(evolve, name: str) -> str:
    done = evolve("prompt", name, "--operator", "rewrite_full")
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(text: str) -> str:
    """The section of a prompt that finished runs fill."""
    assert HEADING in text
    return text.partition(HEADING)[2].partition("\n# ")[0]


def test_the_next_run_is_told_rules_and_ideas_with_where_they_come_from(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    said = create(evolve, "logsoft", "next")
    assert "findings of finished runs for its prompts" in said
    section = told(prompt(evolve, "next"))
    assert "- rule: compile error, 3 of 5 attempts in run past, synthetic" in section
    assert re.search(r"message or note>\narange's range must be a power of 2, not 10\d", section)
    best = (
        r"- idea: best program, \d.\d\dx as fast as PyTorch eager \(95 % interval .* not verified"
    )
    assert re.search(rf"{best}: run past, task soft, synthetic, made by rewrite_full", section)
    gain = r"- idea: \d.\d\dx as fast as what it was made from \(95 % interval .*, indirect\)"
    assert re.search(gain, section)
    assert "\nWider loads." in section
    assert section.count("<quoted") == section.count("\n- ")


@pytest.mark.slow  # two runs by commands; rules and ideas are above
def test_a_failure_that_was_put_right_says_how(evolve, tmp_path: Path):
    create(
        evolve, "soft", "past", "operators=[seed,rewrite_full,repair]", "operators.repair.share=1"
    )
    judged(evolve, tmp_path, "past")
    answered(evolve, tmp_path, "past", fails(3))
    answered(evolve, tmp_path, "past", [("The range is now 128.", WIDE)], "repair")
    finish("past")
    create(evolve, "soft", "next")
    section = told(prompt(evolve, "next"))
    rule = section[section.index("- rule:") :].partition("</quoted")[0]
    assert "The correct program that was made of one of them: The range is now 128." in rule


@pytest.mark.slow
def test_other_operations_runs_that_go_on_and_a_setting_tell_nothing(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    create(evolve, "scan", "other")
    assert HEADING not in prompt(evolve, "other")
    create(evolve, "soft", "without", "memory.runs=0")
    assert HEADING not in prompt(evolve, "without")
    create(evolve, "soft", "rarely", "memory.seen=4")
    assert "- rule:" not in told(prompt(evolve, "rarely"))
    create(evolve, "soft", "next")
    assert "- rule:" in told(prompt(evolve, "next"))


def test_a_run_that_goes_on_tells_nothing(evolve, tmp_path: Path):
    create(evolve, "soft", "past")
    judged(evolve, tmp_path, "past")
    create(evolve, "soft", "next")
    assert HEADING not in prompt(evolve, "next")


@pytest.mark.slow
def test_failures_of_several_runs_make_a_rule_together(evolve, tmp_path: Path):
    past(evolve, tmp_path, "one", failures=2)
    past(evolve, tmp_path, "two", "logsoft", failures=1)
    create(evolve, "soft", "next")
    assert "3 of 7 attempts in runs two, one, synthetic" in told(prompt(evolve, "next"))


@pytest.mark.slow
def test_what_a_run_is_told_stays_as_it_was_when_it_began(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    create(evolve, "soft", "next")
    before = prompt(evolve, "next")
    past(evolve, tmp_path, "later")
    assert prompt(evolve, "next") == before
    shown = json.loads(evolve("show", "next", "--json").stdout)
    assert {each["kind"] for each in shown["config"]["recalled"]} == {"rule", "idea"}
    create(evolve, "soft", "newest")
    assert "run later" in told(prompt(evolve, "newest"))


@pytest.mark.slow
def test_a_replay_is_told_what_the_run_was_told_that_it_replays(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    create(evolve, "soft", "next")
    past(evolve, tmp_path, "later")
    replay = settings("llm=replay", "llm.run=next", OPERATORS, "device=cpu")
    with Store.open("runs/evolve.db", read_only=True) as store:
        run = store.run("next")
    again = with_recalled(replay, run.task)["recalled"]
    assert again == run.config["recalled"]
    assert with_recalled({**replay, "llm": run.config["llm"]}, run.task)["recalled"] != again


def recorded(name: str, server: ModelServer, *words: str) -> None:
    """A finished deterministic run whose model is at the server."""
    given = words_for(server.api_base, "deterministic=true", "device=cpu", *words)
    config = settings(f"name={name}", *given) | {"task": "./soft.py", "audit": []}
    task = read_request(config).task
    config = with_recalled(config, task)

    async def body(store: Store) -> None:
        run = store.create_run(name=name, task=task, config=config, seed=config["seed"])
        search = components.build_search(store, run, config)
        rule = components.build_termination(config)
        await Pipeline(search, SyntheticEvaluator(), rule, serial=True).run()
        await search.model.close()

    with Store.open("runs/evolve.db", create=True) as store:
        asyncio.run(body(store))


@pytest.mark.slow
def test_a_run_that_was_told_something_is_repeated_offline_byte_for_byte(evolve):
    words = ("initial=[seed.py]", "operators=[seed,rewrite_full]", "termination.evaluations=6")
    with ModelServer(script) as server:
        recorded("first", server, *words)
        before = len(server.log.requests)
        recorded("second", server, *words)
        asked = [request.prompt for request in server.log.requests]
    assert not any(HEADING in prompt for prompt in asked[:before])
    assert all(HEADING in prompt for prompt in asked[before:] if "Your job" in prompt)
    assert any("run first, task soft" in prompt for prompt in asked[before:])
    replay = ("llm=replay", "llm.run=second", "device=replay", "device.run=second")
    again = settings("name=again", "deterministic=true", *replay, *words) | {"task": "./soft.py"}
    assert asyncio.run(launch(again)) == 0
    with Store.open("runs/evolve.db", read_only=True) as store:
        second, repeated = (
            list(store.dump(store.run(name).id, canonical=True)) for name in ("second", "again")
        )
    assert repeated == second


def test_what_is_told_is_bounded(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    create(evolve, "soft", "whole")
    whole = told(prompt(evolve, "whole"))
    create(evolve, "soft", "short", "memory.tokens=150")
    short = told(prompt(evolve, "short"))
    assert 0 < estimate_tokens(short.partition("\n- ")[2]) <= 150 < estimate_tokens(whole)
    create(evolve, "soft", "none", "memory.tokens=0")
    assert HEADING not in prompt(evolve, "none")


@pytest.mark.slow  # what is told is in the tests above
def test_a_summary_that_a_model_wrote_is_told(evolve, tmp_path: Path):
    words = ("operators=[seed,rewrite_full,summarise]", "operators.summarise.every=1")
    create(evolve, "soft", "past", *words)
    judged(evolve, tmp_path, "past")
    evolve("ask", "past", "-n", "1", "--operator", "summarise", "--out", "summary")
    [asked] = (tmp_path / "summary").glob("*.prompt.md")
    reply_of(asked).write_text("Loads of 128 bits helped most.")
    assert "one more round" in evolve("tell", "past", "summary").stdout
    finish("past")
    create(evolve, "soft", "next")
    section = told(prompt(evolve, "next"))
    assert "- skill: summary that a model wrote of run past, task soft, synthetic" in section
    assert "Loads of 128 bits helped most." in section


@pytest.mark.slow  # two runs by commands; the next test has one that is told
def test_a_run_that_asks_no_model_is_told_nothing(evolve, tmp_path: Path):
    past(evolve, tmp_path)
    assert "findings" not in create(evolve, "soft", "next", "operators=[seed,tune]")


@pytest.mark.slow  # composes a comparison for one message
def test_where_runs_are_compared_the_setting_is_refused(evolve):
    searches = ("--search", "single memory.runs=2", "--search", "greedy")
    refused = evolve("compare", "task=./soft.py", "termination.evaluations=9", *searches)
    assert refused.returncode == 2
    assert "memory.* has no effect here" in refused.stderr


def test_a_setting_that_cannot_be_is_refused(evolve):
    words = ("run", "task=./soft.py", *WORDS, OPERATORS, "memory.runs=-1", "--create")
    refused = evolve(*words)
    assert refused.returncode == 2
    assert "memory.runs must be a whole number from 0, got -1" in refused.stderr
