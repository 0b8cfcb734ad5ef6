"""Invariants of searches that are driven by hand (`evolve ask`, `evolve tell`):

1. What is asked is written once, whole, and in the same words as `evolve prompt` shows.
2. Replies may be told in any order, any number of times, in parts, and after any interruption.
3. What is wrong with a reply is said and recorded, and no other reply waits for it. If it is wrong
   in form, its request stays open, and the exit status is 2.
4. Nothing of it costs tokens or money, unless a reply says so.
5. A key in a reply is taken out before it is stored.
"""

import asyncio
import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.attach import attach
from evolve.app.manual.files import ByHand, read_answers
from evolve.core.model import BY_HAND
from evolve.llm.secrets import HIDDEN
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store, TicketState
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from evolve.trajectories.steps import steps
from tests.cli.recording import record

WRITTEN = "Here it is.\n\n```python\n{source}```\n"


@pytest.fixture
def evolve(evolve_here):
    return evolve_here


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of the synthetic task with operators that ask models, and no model."""
    path = tmp_path_factory.mktemp("by_hand") / "evolve.db"
    with Store.open(path, create=True) as store:
        record(store, synthetic_task(), SyntheticEvaluator(), "operators=llm")
    return path


@pytest.fixture
def database(finished: Path, tmp_path: Path) -> Path:
    """A copy of it where `evolve` looks first."""
    path = tmp_path / "runs" / "evolve.db"
    path.parent.mkdir()
    shutil.copy(finished, path)
    return path


@pytest.fixture
def asked(evolve, database, tmp_path) -> Path:
    """A folder with three requests of the run."""
    result = evolve("ask", "demo", "-n", "3", "--operator", "rewrite_full", "--out", "out")
    assert result.returncode == 0, result.stderr
    return tmp_path / "out"


def stems(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".prompt.md") for path in folder.glob("*.prompt.md"))


def reply(folder: Path, stem: str, number: int) -> None:
    source = f"{SEED_SOURCE}\n\nHAND = {number}\n"
    (folder / f"{stem}.reply.md").write_text(WRITTEN.format(source=source))


def states(database: Path) -> list[TicketState]:
    with Store.open(database, read_only=True) as store:
        return [ticket.state for ticket in store.open_tickets(store.run("demo").id)]


def test_a_prompt_is_printed_and_nothing_is_stored(evolve, database):
    before = database.read_bytes()
    result = evolve("prompt", "demo", "--operator", "rewrite_full")
    assert " 0 tokens" not in result.stdout  # a person answers: there are none
    assert result.returncode == 0, result.stderr
    assert "operator    rewrite_full, for propose; parents #" in result.stdout
    assert "def forward(self, x):" in result.stdout
    assert "<!-- system -->" in result.stdout
    assert database.read_bytes() == before


def test_a_prompt_as_json_is_what_would_be_sent(evolve, database, asked):
    shown = json.loads(evolve("prompt", "demo", "--operator", "rewrite_full", "--json").stdout)
    assert {message["role"] for message in shown["messages"]} == {"system", "user"}
    assert shown["operator"] == "rewrite_full"


def test_what_a_step_has_asked_and_was_answered_is_shown(evolve, asked, database):
    stem = stems(asked)[0]
    number = int(stem.partition("-")[0])
    assert "not answered yet" in evolve("prompt", f"demo:{number}").stdout
    reply(asked, stem, 5)
    evolve("tell", "demo", "out")
    shown = evolve("prompt", f"demo:{number}").stdout
    assert "<!-- reply of by_hand, completed -->" in shown
    assert "HAND = 5" in shown
    [one] = json.loads(evolve("prompt", f"demo:{number}", "--json").stdout)
    assert one["reply"]["text"].startswith("Here it is.")
    assert "asked no model" in evolve("prompt", "demo:0").stderr


def test_a_step_that_waits_says_for_what(evolve, asked, database):
    sequence = int(stems(asked)[0].partition("-")[0])
    shown = evolve("show", f"demo:{sequence}").stdout
    assert f"not answered yet; `evolve prompt demo:{sequence}` shows what was asked" in shown
    (asked / f"{stems(asked)[0]}.reply.md").write_text(
        WRITTEN.format(source=SEED_SOURCE + "X = 1\n")
    )
    evolve("tell", "demo", str(asked))
    assert "not judged yet" in evolve("show", f"demo:{sequence}").stdout


def test_an_operator_that_is_not_there_is_named_with_those_that_are(evolve, database):
    result = evolve("prompt", "demo", "--operator", "rewrite")
    assert result.returncode == 2
    assert "it has" in result.stderr
    assert "rewrite_full" in result.stderr


def test_a_run_without_such_operators_says_how_to_have_them(evolve, recorded, tmp_path):
    result = evolve("ask", "demo", "--out", "out")
    assert result.returncode == 2
    assert "operators=llm" in result.stderr
    assert not (tmp_path / "out").exists()


def test_asking_writes_prompts_and_tickets(asked, database):
    assert len(stems(asked)) == 3
    for stem in stems(asked):
        about = json.loads((asked / f"{stem}.ticket.json").read_text())
        text = (asked / f"{stem}.prompt.md").read_text()
        assert about["run"] == "demo"
        assert all(message["content"].strip() in text for message in about["messages"])
    assert states(database) == [TicketState.ASKED] * 3


@pytest.mark.slow  # such prompts are in another test here
def test_prompts_before_any_verdict_say_how_to_have_better_ones(evolve, database):
    assert evolve("run", "task=softmax", "operators=llm", "--create", "name=new").returncode == 0
    assert "`evolve resume new` first" in evolve("ask", "new", "-n", "1", "--out", "out").stdout
    assert "first gives" not in evolve("ask", "demo", "-n", "1", "--out", "other").stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_prompts_before_any_verdict_know_the_device_of_the_configuration(evolve, tmp_path, device):
    words = ("task=softmax", "operators=llm", f"device={device}", "--create", "name=new")
    assert evolve("run", *words).returncode == 0
    shown = evolve("prompt", "new", "--operator", "rewrite_full").stdout
    assert f"- device_class: {device}" in shown
    evolve("ask", "new", "-n", "1", "--operator", "rewrite_full", "--out", "out")
    [path] = (tmp_path / "out").glob("*.prompt.md")
    assert f"- device_class: {device}" in path.read_text()


@pytest.mark.slow  # starts a run for one message
def test_a_run_whose_budget_is_used_says_how_to_go_on(evolve, tmp_path):
    with Store.open(tmp_path / "runs.db", create=True) as store:
        words = ("operators=llm", "termination.evaluations=2")
        record(store, synthetic_task(), SyntheticEvaluator(), *words)
    result = evolve("ask", "--store", "runs.db", "--out", "out")
    assert result.returncode == 2
    assert "2 of 2 evaluations used" in result.stderr
    assert "warm_start=demo" in result.stderr
    assert not (tmp_path / "out").exists()


def test_asking_again_writes_what_is_open_and_asks_nothing_new(evolve, asked, database):
    before = {path.name: path.read_text() for path in asked.iterdir()}
    (asked / next(iter(before))).unlink()
    evolve("ask", "demo", "-n", "3", "--out", "out")
    assert {path.name: path.read_text() for path in asked.iterdir()} == before
    assert len(states(database)) == 3


@pytest.mark.slow
def test_replies_in_any_order_and_any_number_of_times_give_the_same(evolve, asked, database):
    first, second, third = stems(asked)
    reply(asked, third, 3)
    one = evolve("tell", "demo", "out")
    assert "1 program proposed" in one.stdout, one.stdout + one.stderr
    reply(asked, first, 1)
    reply(asked, second, 2)
    two = evolve("tell", "demo", "out")
    assert "2 programs proposed" in two.stdout
    assert "1 known already" in two.stdout
    three = evolve("tell", "demo", "out")
    assert "0 programs proposed" in three.stdout
    assert states(database) == [TicketState.PROPOSED] * 3


def test_a_reply_without_code_is_recorded_or_asked_once_more(evolve, asked, database):
    stem = stems(asked)[0]
    (asked / f"{stem}.reply.md").write_text("I would use more threads.")
    assert "one more round" in evolve("tell", "demo", "out").stdout
    evolve("ask", "demo", "-n", "3", "--out", "out")
    [again] = [name for name in stems(asked) if name.endswith("-1")]
    (asked / f"{again}.reply.md").write_text("Still words.")
    result = evolve("tell", "demo", "out")
    assert "no_code" in result.stdout
    with Store.open(database, read_only=True) as store:
        sequence = int(stem.partition("-")[0])
        assert "no_code" in store.step(store.run("demo").id, sequence).failure


UNREADABLE = {
    "{not json": "it is not JSON",
    "nope": "it is not JSON",
    "[1]": "it holds [1]; write an object",
    "[" * 9999: "it is not JSON",
    "{}": "text is missing; write the reply as a string",
    '{"model": "x"}': "text is missing",
    '{"text": 5}': "text is 5; write the reply as a string",
    '{"text": null}': "text is null",
    '{"text": "\\ud800"}': 'text is "\\ud800"',
    '{"text": "x", "model": "\\udfff"}': 'model is "\\udfff"',
    '{"text": "x", "model": 5}': "model is 5; write the model's name as a string",
    '{"text": "x", "cost_usd": "much"}': 'cost_usd is "much"; write a number from 0 to 1e+12',
    '{"text": "x", "cost_usd": true}': "cost_usd is true",
    '{"text": "x", "cost_usd": -3}': "cost_usd is -3",
    '{"text": "x", "cost_usd": NaN}': "cost_usd is NaN",
    '{"text": "x", "prompt_tokens": -5}': "prompt_tokens is -5; write a whole number",
    '{"text": "x", "completion_tokens": 1.5}': "completion_tokens is 1.5",
    '{"text": "x", "prompt_tokens": 1e30, "completion_tokens": 1}': "prompt_tokens is 1e+30",
    '{"text": "x", "cost_usd": "sk-proj-0123456789abcdef"}': f'cost_usd is "{HIDDEN}"',
}


def test_a_reply_that_cannot_be_taken_is_named_with_field_value_and_remedy(asked, database):
    stem = stems(asked)[0]
    path = asked / f"{stem}.reply.json"
    for text, words in UNREADABLE.items():
        path.write_text(text)
        [said] = read_answers(asked)
        assert isinstance(said, str), text
        assert said.startswith(f"{path.name}: {words}"), text
        assert ";" in said, "the remedy"
    path.unlink()
    (asked / f"{stem}.reply.md").write_bytes(b"\xff")
    [said] = read_answers(asked)
    assert "write UTF-8 text" in said


def test_a_reply_that_cannot_be_taken_leaves_its_request_open_and_may_be_corrected(
    evolve, asked, database
):
    stem = stems(asked)[0]
    path = asked / f"{stem}.reply.json"
    path.write_text('{"text": 5}')
    reply(asked, stems(asked)[1], 6)
    result = evolve("tell", "demo", "out")
    assert result.returncode == 2
    assert f"not told: {path.name}: text is 5" in result.stdout
    assert "1 program proposed" in result.stdout  # it stops no other
    assert "1 reply file not told" in result.stderr
    assert "evolve tell demo out" in result.stderr
    assert states(database).count(TicketState.ASKED) == 2
    path.unlink()
    reply(asked, stem, 7)
    assert "1 program proposed" in evolve("tell", "demo", "out").stdout


@pytest.mark.parametrize("left", ["others", "nothing"])
def test_a_reply_without_its_ticket_is_named(evolve, asked, database, left):
    stem = stems(asked)[0]
    reply(asked, stem, 1)
    for ticket in asked.glob(f"{stem}.ticket.json" if left == "others" else "*.ticket.json"):
        ticket.unlink()
    result = evolve("tell", "demo", "out")
    assert result.returncode == 2
    assert f"not told: {stem}.reply.md: {stem}.ticket.json is missing" in result.stdout


SECRETS = ("planted-7f3a9b", "sk-proj-0123456789abcdef")


@pytest.mark.parametrize("suffix", ["md", "json"])
def test_a_key_in_a_reply_is_not_stored(evolve, asked, database, monkeypatch, suffix):
    monkeypatch.setenv("SOME_API_KEY", SECRETS[0])
    text = WRITTEN.format(source=f"{SEED_SOURCE}\nHAND = {SECRETS}\n")
    text = f"Mine is {SECRETS[0]} or {SECRETS[1]}.\n{text}"
    path = asked / f"{stems(asked)[0]}.reply.{suffix}"
    path.write_text(text if suffix == "md" else json.dumps({"text": text, "model": SECRETS[1]}))
    assert "1 program proposed" in evolve("tell", "demo", "out").stdout
    sequence = int(path.name.partition("-")[0])
    with Store.open(database, read_only=True) as store:
        run = store.run("demo")
        [exchange] = store.ticket(run.id, sequence).exchanges
        kept = exchange.reply.text + exchange.reply.model
        kept += store.source(store.step(run.id, sequence).program)
    assert kept.count(HIDDEN) >= 4
    assert not [secret for secret in SECRETS if secret in kept]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "value"),
    [("sequence", "x"), ("round", None), ("run", 3), ("round", 7), ("round", -1), ("sequence", -1)],
)
def test_a_ticket_that_somebody_has_changed_is_said(evolve, asked, database, name, value):
    stem = stems(asked)[0]
    ticket = asked / f"{stem}.ticket.json"
    ticket.write_text(json.dumps(json.loads(ticket.read_text()) | {name: value}))
    (asked / f"{stem}.reply.md").write_text("whatever")
    done = evolve("tell", "demo", str(asked))
    assert (done.returncode, done.stdout.count("not told: ")) == (2, 1)


def test_two_replies_to_one_request_are_refused(evolve, asked):
    stem = stems(asked)[0]
    reply(asked, stem, 1)
    (asked / f"{stem}.reply.txt").write_text("another")
    assert "keep one of them" in evolve("tell", "demo", "out").stdout


def test_replies_of_another_run_are_refused(evolve, asked, database):
    reply(asked, stems(asked)[0], 1)
    for path in asked.glob("*.ticket.json"):
        path.write_text(path.read_text().replace('"demo"', '"other"'))
    assert "of run other, not of demo" in evolve("tell", "demo", "out").stdout


def test_a_reply_to_another_prompt_is_not_taken_for_the_answer(evolve, asked, database):
    """As where a database was made anew, with a run of the same name, beside an old folder."""
    first = stems(asked)[0]
    reply(asked, first, 1)
    ticket = asked / f"{first}.ticket.json"
    ticket.write_text(json.dumps(json.loads(ticket.read_text()) | {"key": "0" * 64}))
    told = evolve("tell", "demo", "out")
    assert "answers another request than step" in told.stdout
    assert states(database) == [TicketState.ASKED] * 3
    again = evolve("ask", "demo", "-n", "3", "--out", "out")
    assert again.returncode == 2
    assert f"{first}.reply.md answers another request" in again.stderr
    (asked / f"{first}.reply.md").unlink()
    assert evolve("ask", "demo", "-n", "3", "--out", "out").returncode == 0
    reply(asked, first, 1)
    assert "1 program proposed" in evolve("tell", "demo", "out").stdout


def test_a_reply_to_another_prompt_is_said_also_where_the_step_was_answered(
    evolve, asked, database
):
    stem = stems(asked)[0]
    reply(asked, stem, 1)
    evolve("tell", "demo", "out")
    ticket = asked / f"{stem}.ticket.json"
    ticket.write_text(json.dumps(json.loads(ticket.read_text()) | {"key": "0" * 64}))
    assert "not told: " in evolve("tell", "demo", "out").stdout


def test_what_a_reply_says_it_cost_is_counted(evolve, asked, database):
    stem = stems(asked)[0]
    said = {"text": WRITTEN.format(source=SEED_SOURCE + "HAND = 1\n"), "model": "agent"}
    said |= {"prompt_tokens": 900, "completion_tokens": 100, "cost_usd": 0.25}
    (asked / f"{stem}.reply.json").write_text(json.dumps(said))
    evolve("tell", "demo", "out")
    rows = list(csv.DictReader(io.StringIO(evolve("cost", "--by", "operator", "--csv").stdout)))
    [row] = [row for row in rows if row["operator"] == "rewrite_full"]
    assert (row["tokens"], row["usd"], row["calls"]) == ("1000", "0.250000", "1")


def test_a_cost_is_counted_where_tokens_are_not_known(evolve, asked, database):
    said = {"text": WRITTEN.format(source=SEED_SOURCE + "HAND = 1\n"), "cost_usd": 0.25}
    (asked / f"{stems(asked)[0]}.reply.json").write_text(json.dumps(said))
    evolve("tell", "demo", "out")
    assert "0.25" in evolve("cost", "--by", "operator").stdout


def test_by_hand_costs_nothing(evolve, asked, database):
    reply(asked, stems(asked)[0], 1)
    evolve("tell", "demo", "out")
    with Store.open(database, read_only=True) as store:
        progress = store.progress(store.run("demo").id)
    assert (progress.tokens, progress.usd) == (0, 0.0)


def test_what_was_told_is_judged_by_the_next_sitting(evolve, asked, database):
    reply(asked, stems(asked)[0], 1)
    evolve("tell", "demo", "out")
    with Store.open(database) as store:
        run = store.run("demo")
        search = components.build_search(store, run, run.config)
        judge = SyntheticEvaluator()
        rule = components.build_termination(run.config)
        asyncio.run(Pipeline(search, judge, rule, verify=False).run())
        step = store.step(run.id, int(stems(asked)[0].partition("-")[0]))
        assert step.status is not None
        assert step.operator == "rewrite_full"
    assert states(database) == [TicketState.ASKED] * 2  # those nobody has answered


@pytest.mark.parametrize("named", ["my-agent", None])
def test_a_step_counts_as_made_by_the_model_that_its_reply_names(evolve, asked, database, named):
    said = {"text": WRITTEN.format(source=SEED_SOURCE + "HAND = 1\n"), "model": named}
    expected = named or BY_HAND
    (asked / f"{stems(asked)[0]}.reply.json").write_text(json.dumps(said))
    evolve("tell", "demo", "out")
    with Store.open(database) as store:
        run = store.run("demo")
        search = components.build_search(store, run, run.config)
        rule = components.build_termination(run.config)
        asyncio.run(Pipeline(search, SyntheticEvaluator(), rule, verify=False).run())
        made = store.step(run.id, int(stems(asked)[0].partition("-")[0]))
        assert store.models_behind(made.program) == {expected}
        for texts in (True, False):
            [step] = [
                step for step in steps(store, [run.id], texts=texts) if step.program == made.program
            ]
            assert step.model == expected
            assert step.models == {expected}
    rows = list(csv.DictReader(io.StringIO(evolve("cost", "--by", "model", "--csv").stdout)))
    [row] = [row for row in rows if row["model"] == expected]
    assert (row["calls"], row["evaluations"]) == ("1", "1")


def test_a_role_of_models_is_answered_by_hand_too(tmp_path):
    with Store.open(tmp_path / "runs.db", create=True) as store:
        words = ("operators=[seed,macro_micro]", "operators.macro_micro.planner=openai/x")
        record(store, synthetic_task(), SyntheticEvaluator(), *words)
        with attach(store, store.run("demo"), model=ByHand()) as search:
            asked = search.ask(operators=["macro_micro"])
    assert (asked.request.purpose, asked.request.model) == ("plan", BY_HAND)


def test_costs_are_told_apart_and_add_up(evolve, database):
    result = evolve("cost", "--by", "task,model,operator")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^synthetic +\(none\) +seed", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-1].startswith("all")
    assert evolve("cost", "--by", "colour").returncode == 2


def test_an_empty_folder_of_requests_says_what_is_missing(evolve, database, tmp_path):
    (tmp_path / "empty").mkdir()
    result = evolve("tell", "demo", "empty")
    assert result.returncode == 2
    assert "evolve ask" in result.stderr
