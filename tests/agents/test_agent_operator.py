"""A coding agent as an operator: a real process that speaks MCP, beside a synthetic judge.

Invariants:
1. All that it submits on the way is a step of the run, with its lineage, verdict and place.
2. Its cost and transcript are kept; its verdicts, time and output are bounded.
3. It reaches its folder and the judge; not the database, not the keys.
4. It begins with the run, and its programs are judged before others that wait; only one episode
   begins from nothing while there are programs to start from.
"""

import asyncio
import json
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.agent import episode
from evolve.app.agent.presets import TOOLS
from evolve.app.models import build_model, key_notes
from evolve.core.errors import StoreError, UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.model import CallStatus
from evolve.core.protocols import EvaluationRequest
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings
from tests.operators.test_knowledge import DOCUMENT

SCRIPT = Path(__file__).with_name("scripted_agent.py")


class Search:
    """A search whose only models are the agent; what came of it."""

    def __init__(
        self, folder: Path, *words: str, agent: tuple[str, ...], seeds: int = 1, **limits: object
    ) -> None:
        seed = folder / "seed.py"
        seed.write_text(SEED_SOURCE)
        command = shlex.join([sys.executable, str(SCRIPT), agent[0], str(seed), *agent[1:]])
        named = any(word.startswith("operators=") for word in words)
        operators = () if named else ("operators=agent",)
        config = settings(*operators, "termination.proposals=3", *words) | {"audit": []}
        config["agent"] |= {"command": command, "read": [str(SCRIPT.parent), str(seed)], **limits}
        config["operators"]["agent"]["weight"] = 100.0
        self.said: list[str] = []
        self.store = Store.open(folder / "runs" / "evolve.db", create=True)
        more = tuple(f"{SEED_SOURCE}\n\nSEED = {number}\n" for number in range(1, seeds))
        task = replace(synthetic_task(), seeds=(SEED_SOURCE, *more))
        self.run = self.store.create_run(name="demo", task=task, config=config, seed=0)
        self.config = config

    def go(self, judge: SyntheticEvaluator | None = None) -> None:
        search = components.build_search(self.store, self.run, self.config)
        rule = components.build_termination(self.config)
        judge = judge or SyntheticEvaluator()
        pipeline = Pipeline(search, judge, rule, say=self.said.append, drain_s=0)
        asyncio.run(pipeline.run())

    def steps(self, operator: str) -> list:
        return [step for step in self.store.steps(self.run.id) if step.operator == operator]

    def tried(self) -> list:
        return [step for step in self.steps("agent") if step.program and step.note]

    def replies(self) -> list:
        asked = (self.store.ticket(self.run.id, step.sequence) for step in self.steps("agent"))
        return [exchange.reply for ticket in asked for exchange in ticket.exchanges]


@pytest.fixture
def searched(tmp_path):
    opened: list[Search] = []

    def make(*words: str, **more: object) -> Search:
        opened.append(Search(tmp_path, *words, **more))
        return opened[-1]

    yield make
    for each in opened:
        each.store.close()


def test_programs_that_an_agent_tries_are_steps_with_lineage_cost_and_transcript(searched):
    found = searched(agent=("good",))
    found.go()
    tried = found.tried()
    assert {step.note for step in tried} == {"first try", "second try"}
    assert all(step.status is not None for step in tried)
    programs = {step.program for step in found.store.steps(found.run.id)}
    assert all(step.parents and {*step.parents} <= programs for step in tried[1:])
    [pair] = [step for step in tried if step.note == "second try"][:1]
    first = next(step for step in tried if step.note == "first try")
    assert pair.parents == (first.program,)
    reply = found.replies()[0]
    assert (reply.status, reply.cost_usd) == (CallStatus.COMPLETED, 0.25)
    assert reply.usage.prompt == 1000
    assert "verdicts correct correct" in reply.text
    assert any("but those that it tried" in step.failure for step in found.steps("agent"))
    assert '"type": "tool_result"' in reply.reasoning  # the transcript, for training
    [cost] = [cost for cost in found.store.costs(found.run.id) if cost.calls]
    assert cost.model == "agent"
    assert cost.usd == pytest.approx(0.25 * cost.calls)


class SlowSeeds(SyntheticEvaluator):
    """Judges one program at a time, a seed only once an agent has submitted a program.

    Attributes:
        order: whether each program was no agent's, as they were judged.
    """

    def __init__(self, search: Search) -> None:
        super().__init__()
        self.search = search
        self.order: list[bool] = []
        self.ends = time.monotonic() + 20.0

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        is_seed = "NUMBER_" not in request.source
        self.order.append(is_seed)
        while is_seed and time.monotonic() < self.ends and not self.search.tried():
            await asyncio.sleep(0.05)
        return await super().evaluate(request)


@pytest.mark.slow  # none is quick: seeds wait for an agent's process, and for each other
def test_an_agent_begins_with_the_run_and_its_programs_do_not_queue_behind_seeds(searched):
    found = searched("termination.proposals=4", agent=("good",), seeds=6)
    judge = SlowSeeds(found)
    found.go(judge)
    assert time.monotonic() < judge.ends  # else a seed has waited in vain
    assert judge.order[:2] == [True, False]
    first = next(step for step in found.steps("agent") if step.note == "first try")
    assert first.parents == () and first.status is not None


@pytest.mark.slow  # none is quick: several agents' processes, one after the other
def test_only_one_of_several_agents_begins_from_nothing(searched):
    found = searched("termination.proposals=6", agent=("good",), seeds=2, slots=3)
    judge = SlowSeeds(found)
    found.go(judge)
    assert time.monotonic() < judge.ends
    episodes = [step for step in found.steps("agent") if found.store.ticket(
        found.run.id, step.sequence).exchanges]  # fmt: skip
    assert len(episodes) > 1
    assert [bool(step.parents) for step in episodes] == [False] + [True] * (len(episodes) - 1)


def test_processes_that_an_agent_starts_in_another_session_end_with_its_episode(searched, tmp_path):
    found = searched(agent=("good",))
    found.go()
    assert found.replies()
    assert not processes_of(tmp_path)


@pytest.mark.slow  # the tools are in test_mcp, documents in test_knowledge
def test_an_agent_finds_the_records_of_its_run_and_the_documents_of_the_run_s_folders(
    searched, tmp_path
):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "own.md").write_text(DOCUMENT.replace("First the rule.", "First ask the quokkas."))
    found = searched(f"knowledge.folders=[{folder}]", agent=("look_up", "quokkas"))
    found.go()
    told = json.loads(found.replies()[0].text)
    assert told["tools"] == [*TOOLS]
    assert [each["id"] for each in told["found"]["documents"]] == ["mine"]
    assert told["best"]["run"] == "demo"


def test_an_agent_gets_the_verdicts_of_an_episode_and_no_more(searched):
    found = searched(agent=("greedy",), verdicts=2)
    found.go()
    told = json.loads(found.replies()[0].text)
    assert told[:2] == ["ok", "ok"]
    assert all("all 2 verdicts of this episode are used up" in each for each in told[2:4])


def test_an_agent_cannot_leave_its_folder_nor_see_keys(searched, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cret-value-123")
    database = tmp_path / "runs" / "evolve.db"
    found = searched(agent=("escape", str(database), str(database.parent), str(Path.home())))
    found.go()
    told = json.loads(found.replies()[0].text)
    assert told["keys"] == []
    tries = told["found"]
    assert len(tries) == 9
    assert {*tries.values()} <= {"PermissionError", "IsADirectoryError", "NotADirectoryError"}
    assert tries[f"read_bytes {database}"] == "PermissionError"
    assert tries[f"iterdir {database.parent}"] == "PermissionError"


NPM_SCRIPT = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
submit=$(cat) && printf '%s' "trusted: $GEMINI_CLI_TRUST_WORKSPACE, beside: "
cat "$here/../../cli-linux-x64/binary" || exit 1
"""


def test_an_agent_of_npm_reads_the_packages_beside_it_and_gets_its_variables(searched, tmp_path):
    modules = tmp_path / "tool" / "node_modules"
    for name, text in {"cli/bin/start": NPM_SCRIPT, "cli-linux-x64/binary": "found"}.items():
        (modules / "@maker" / name).parent.mkdir(parents=True)
        (modules / "@maker" / name).write_text(text)
    (modules / "@maker" / "cli" / "bin" / "start").chmod(0o755)
    (modules / ".bin").mkdir()
    program = modules / ".bin" / "gemini"
    program.symlink_to("../@maker/cli/bin/start")
    found = searched("termination.wall_time=10s", agent=("good",), command=str(program), read=[])
    found.go()
    assert [reply.text for reply in found.replies()][:1] == ["trusted: true, beside: found"]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "told"), [("silent", "no answer within 3 s"), ("flood", "MiB")])
def test_an_agent_that_never_ends_is_ended_and_the_search_goes_on(
    searched, monkeypatch, what, told
):
    monkeypatch.setattr(episode, "MAX_TRANSCRIPT", 4 << 20)
    found = searched(agent=(what,), deadline="3s" if what == "silent" else "30s")
    began = time.monotonic()
    found.go()
    assert time.monotonic() - began < 60
    assert found.replies()[0].status is CallStatus.UNKNOWN  # charged, and not sent again
    assert told in found.replies()[0].error
    assert [step for step in found.store.steps(found.run.id) if step.operator != "agent"]


@pytest.mark.slow
def test_an_agent_that_cannot_begin_pauses_the_operator_and_is_named(searched):
    found = searched("termination.wall_time=4s", agent=("broken",))
    found.go()
    assert any("exit status 1: log in first" in line for line in found.said)


@pytest.mark.slow
def test_a_search_that_is_killed_takes_its_agent_along_and_keeps_the_tried_programs(tmp_path):
    command = [sys.executable, "-m", "tests.agents.agent_run", str(tmp_path)]
    process = subprocess.Popen(command, cwd=SCRIPT.parents[2])
    database, tried = tmp_path / "runs" / "evolve.db", []
    try:
        while not tried:
            assert process.poll() is None
            time.sleep(0.2)
            tried = [step for step in steps_of(database) if step.note == "before the end"]
            tried = [step for step in tried if step.status is not None]
    finally:
        process.kill()
        process.wait()
    time.sleep(1)
    assert not processes_of(tmp_path)
    with Store.open(database) as store:
        run = store.run("demo")
        search = components.build_search(store, run, run.config)
        store.claim(run.id)
        assert search.open_tickets() is not None  # as a resume begins
        [cost] = [cost for cost in store.costs(run.id) if cost.calls]
        assert (cost.calls, cost.unknown) == (1, 1)  # charged as reserved, and not sent again
        assert [step.status for step in store.steps(run.id) if step.note == "before the end"]


def steps_of(database: Path) -> list:
    try:
        with Store.open(database, read_only=True) as store:
            return list(store.steps(store.run("demo").id))
    except (UsageError, StoreError):  # it is being made
        return []


def processes_of(folder: Path) -> list[bytes]:
    """Command lines that name the folder: of the agent, and of what it has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [each for each in found if str(folder).encode() in each]


@pytest.mark.slow
def test_an_agent_at_work_does_not_take_the_places_of_other_models(searched, tmp_path):
    fast = tmp_path / "fast.py"
    fast.write_text(
        "import os, sys\nsys.stdin.read()\n"
        "print('```python', open(sys.argv[1]).read(), f'N = {os.getpid()}', '```', sep='\\n')\n"
    )
    words = ("llm=command", "termination.wall_time=8s")
    found = searched("operators=[llm,agent]", *words, agent=("silent",), deadline="60s")
    command = [sys.executable, str(fast), str(tmp_path / "seed.py")]
    found.config["llm"] |= {"command": command, "model": "fast"}
    found.config["termination"]["proposals"] = None
    found.config["termination"]["evaluations"] = None
    found.go()
    costs = [cost for cost in found.store.costs(found.run.id) if cost.calls]
    assert sum(cost.calls for cost in costs if cost.model == "agent") == 1
    assert sum(cost.calls for cost in costs if cost.model == "fast") >= 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["operators=agent"], "agent.command='claude -p'"),
        (["agent.command='claude -p'", "llm.model=openai/x"], "take operators=agent"),
        (["operators=agent", "agent.command='x \"'"], "agent.command"),
        (["operators=agent", "agent.command=codex", "agent.usd=1"], "agent.usd=1"),
        (["operators=agent", "agent.command=codex", "termination.usd=1"], "no known price"),
        (["operators=agent", "agent.command=x", "agent.verdicts=0"], "agent.verdicts=0"),
        (["operators=agent", "agent.command=x", "agent.deadline=soon"], "soon"),
    ],
)
def test_settings_of_an_agent_that_cannot_be_are_named(words, told):
    with pytest.raises(UsageError, match=told):
        build_model(settings(*words))


def test_an_agent_that_is_not_installed_is_named_before_the_judge_starts():
    config = settings("operators=agent", "agent.command='no_such_agent -p'")
    with pytest.raises(UsageError, match="no program 'no_such_agent'"):
        list(key_notes(config))
