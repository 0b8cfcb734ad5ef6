"""A program as the model (`llm=command`): real processes that read a prompt and print an answer.

Invariants:
1. One prompt in, one answer out, once: no shell, no file of the folder, no key that is not named.
2. Whatever the program does, the call ends in time, with all its processes, and is accounted for.
"""

import asyncio
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.models import build_model
from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, Usage
from evolve.llm import CommandModel
from evolve.llm.programs import process
from evolve.llm.programs.printed import read_printed
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings

SAYS = "import sys\nprompt = sys.stdin.read()\n"


def program(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", SAYS + code, *words]


def ask(command: list[str], text: str = "make it fast", **more) -> ModelReply:
    async def answer() -> ModelReply:
        model = CommandModel(command=command, **more)
        request = model.resolve(ModelRequest(messages=(Message("user", text),)))
        sent: list[int] = []
        reply = await model.complete(request, commit=lambda: sent.append(1))
        assert sent == [1]
        return reply

    return asyncio.run(answer())


def test_the_prompt_goes_in_and_the_output_is_the_answer():
    reply = ask(program("print('got', prompt.count('x'))"), "x" * 300_000)
    assert (reply.status, reply.text) == (CallStatus.COMPLETED, "got 300000\n")
    assert reply.usage is None  # and not 0
    assert reply.cost_usd is None
    assert reply.model == Path(sys.executable).name


def test_reasoning_is_kept_apart_from_the_answer():
    reply = ask(program("print('<think>hm</think>yes')"))
    assert (reply.reasoning, reply.text.strip()) == ("hm", "yes")


def test_no_shell_reads_the_words_and_the_folder_is_empty():
    reply = ask(program("import os\nprint(sys.argv[1:], os.listdir())", "$HOME; echo hi", "*"))
    assert reply.text.strip() == "['$HOME; echo hi', '*'] []"


def test_variables_reach_the_program_only_if_they_are_named(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "not-for-it-1234")
    monkeypatch.setenv("MY_LOGIN", "for-it-1234")
    code = "import os\nprint(sorted(n for n in os.environ if n.endswith(('KEY', 'LOGIN', 'PATH'))))"
    assert ask(program(code)).text.strip() == "['PATH']"
    assert ask(program(code), environment=["MY_LOGIN"]).text.strip() == "['MY_LOGIN', 'PATH']"


DAEMON = "import subprocess\nsubprocess.Popen(['sleep', '61'], start_new_session=True)\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "ending",
    [
        "time.sleep(60)",
        "subprocess.Popen(['sleep', '61'])\ntime.sleep(60)",
        f"{DAEMON}time.sleep(60)",
    ],
)
def test_one_that_never_answers_is_ended_with_all_its_processes(ending):
    began = time.monotonic()
    reply = ask(program(f"import subprocess, time\n{ending}"), deadline_s=1)
    assert reply.status is CallStatus.UNKNOWN  # charged as reserved, and never sent again
    assert "no answer within 1 s" in reply.error
    assert time.monotonic() - began < 10
    assert not running("sleep", "61")


def test_one_that_answers_leaves_no_process_behind_though_it_has_a_session_of_its_own():
    began = time.monotonic()
    assert ask(program(f"{DAEMON}print('hi')"), deadline_s=30).text == "hi\n"
    assert time.monotonic() - began < 10  # the daemon holds the output open, and is not waited for
    assert not running("sleep", "61")


def test_one_that_the_system_cannot_start_is_a_setting_to_correct(tmp_path):
    file = tmp_path / "agent"
    file.write_bytes(b"\x7fELF no program")
    file.chmod(0o700)
    with pytest.raises(UsageError, match=r"llm\.command: .*agent: Exec format error"):
        ask([str(file)])


def running(*words: str) -> bool:
    wanted = "\0".join(words).encode() + b"\0"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return wanted in found


def test_one_that_floods_is_ended_and_says_so(monkeypatch):
    monkeypatch.setattr(process, "MAX_OUTPUT", 1 << 20)
    monkeypatch.setitem(process.run.__kwdefaults__, "most", 1 << 20)
    reply = ask(program("while True: print('x' * 100_000)"))
    assert (reply.status, reply.text) == (CallStatus.UNKNOWN, "")
    assert "more than 1 MiB" in reply.error


def test_a_failure_is_an_endpoint_that_is_down_and_its_words_hide_keys(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cret-value-123")
    code = "print('usage limit reached for s3cret-value-123', file=sys.stderr)\nsys.exit(3)"
    with pytest.raises(
        ModelUnavailable, match=r"exit status 3: usage limit reached for \[key hidden\]"
    ):
        ask(program(code))


def test_a_program_that_reads_nothing_still_answers():
    assert ask([sys.executable, "-c", "print('hi')"], "x" * 1_000_000).text == "hi\n"


def test_a_program_that_prints_nothing_gives_an_empty_answer():
    assert ask(program("")).status is CallStatus.EMPTY


CLAUDE = {
    "type": "result",
    "is_error": False,
    "result": "the answer",
    "total_cost_usd": 0.25,
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 70,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    },
    "modelUsage": {"claude-x": {}},
}
CODEX = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "the answer"}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 60, "cached_input_tokens": 50, "output_tokens": 3},
    },
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 40, "cached_input_tokens": 20, "output_tokens": 4},
    },
]
GEMINI = {
    "response": "the answer",
    "stats": {
        "models": {
            "gemini-x": {"tokens": {"prompt": 80, "candidates": 3, "thoughts": 2, "cached": 70}},
            "gemini-y": {"tokens": {"prompt": 20, "candidates": 1, "thoughts": 1}},
        }
    },
}
CURSOR = {"type": "result", "subtype": "success", "is_error": False, "result": "the answer"}


@pytest.mark.parametrize(
    ("output", "tokens", "cost"),
    [
        (json.dumps(CLAUDE), (100, 7, 70, None), 0.25),
        (json.dumps(CLAUDE, indent=2), (100, 7, 70, None), 0.25),
        ("\n".join(map(json.dumps, [{"type": "system"}, CLAUDE])), (100, 7, 70, None), 0.25),
        ("\n".join(map(json.dumps, CODEX)), (100, 7, 70, None), None),
        (json.dumps(GEMINI), (100, 7, 70, 3), None),
        (json.dumps(CURSOR), None, None),
        (json.dumps(CLAUDE | {"total_cost_usd": -1, "usage": {"input_tokens": "x"}}), None, None),
    ],
)
def test_results_of_common_programs_are_read_with_their_costs(output, tokens, cost):
    found = read_printed(output)
    assert found.text == "the answer"
    assert found.cost_usd == cost
    assert (found.usage and dataclasses.astuple(found.usage)) == tokens


@pytest.mark.parametrize("output", ["{", "{}", "[1]", '{"a": 1}\n{"b', "{" * 100_000, "plain", ""])
def test_any_other_output_is_the_text(output):
    assert read_printed(output).text == output


def test_a_program_that_says_in_its_json_that_it_failed_has_failed():
    free = {"is_error": True, "result": "log in first", "total_cost_usd": 0, "usage": {}}
    with pytest.raises(ModelUnavailable, match="log in first"):
        ask(program("print(sys.argv[1])", json.dumps(CLAUDE | free)))


def test_a_failure_that_was_billed_is_charged_and_not_sent_again():
    told = json.dumps(CLAUDE | {"is_error": True, "result": "too many turns"})
    reply = ask(program("print(sys.argv[1])", told))
    assert (reply.status, reply.text) == (CallStatus.EMPTY, "")
    assert reply.cost_usd == CLAUDE["total_cost_usd"]
    assert "too many turns" in reply.error


def test_a_price_of_the_users_goes_before_the_stated_cost():
    command = program("print(sys.argv[1])", json.dumps(CLAUDE))
    reply = ask(command, price={"prompt": 1.0, "completion": 2.0, "cached": 0.0})
    assert reply.cost_usd == pytest.approx(
        (10 + 20 + 2 * 7) / 1e6
    )  # what is written to a cache is not read from it
    assert reply.usage == Usage(prompt=100, completion=7, cached=70)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["llm=command"], "llm.command"),
        (["llm=command", "llm.command=[]"], "llm.command"),
        (["llm=command", "llm.command=[x]", "llm.temperature=0.5"], "llm.temperature=0.5 has no"),
        (["llm.command=[x]", "llm.model=openai/x"], "without llm=command"),
        (["llm=command", "llm.command=[x]", "termination.usd=1"], "no known price"),
        (["llm=command", "llm.command=[x,sk-proj-abcdefgh12345]"], "keys stay in the environment"),
    ],
)
def test_settings_that_cannot_be_are_named(words, told):
    with pytest.raises(UsageError, match=told):
        build_model(settings(*words))


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="no program 'no_such_program'"):
        ask(["no_such_program"])


def test_a_search_asks_the_program_and_its_costs_are_in_the_ledger(tmp_path, monkeypatch):
    counter = tmp_path / "count"
    code = (
        f"import json, os, pathlib\n"
        f"count = pathlib.Path({str(counter)!r})\n"
        f"with count.open('a') as f: f.write('.')\n"
        f"source = {SEED_SOURCE!r} + f'\\nNUMBER = {{os.getpid()}}\\n'\n"
        f"answer = f'```python\\n{{source}}```'\n"
        f"print(json.dumps({{'type': 'result', 'result': answer, 'total_cost_usd': 0.5,"
        f" 'usage': {{'input_tokens': 5, 'output_tokens': 3}}}}))\n"
    )
    words = ["llm=command", "operators=llm", "termination.evaluations=4"]
    config = settings(*words) | {"audit": []}
    config["llm"] |= {"command": program(code), "model": "mine"}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        search = components.build_search(store, run, config)
        rule = components.build_termination(config)
        asyncio.run(Pipeline(search, SyntheticEvaluator(), rule).run())
        costs = [cost for cost in store.costs(run.id) if cost.calls]
        calls = sum(cost.calls for cost in costs)
        assert {cost.model for cost in costs} == {"mine"}
        assert calls == len(counter.read_text()) >= 1
        assert sum(cost.usd for cost in costs) == pytest.approx(0.5 * calls)
        assert sum(cost.unpriced for cost in costs) == 0
        assert any(step.status == "correct" for step in store.steps(run.id))
    assert not list((tmp_path / "work").iterdir())
