"""Runs that nothing but answers by hand goes on: from the first prompt, and with what is known.

Invariants:
1. A run whose operators all ask a model is created, asked, told and judged without `llm.model`.
2. What another run knows is there in the first prompt, and is not judged again.
3. An open request that verdicts have overtaken is asked as it would be now; a reply to any text of
   it is taken once, as the answer to that text.
"""

import json
import re
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.config.locate import config_dir
from evolve.core.errors import UsageError
from evolve.store import Store, TicketState
from evolve.testing.synthetic import SEED_SOURCE, synthetic_task
from evolve.worker.service.batch_files import read_requests
from tests.cli.test_batch import judge

PRESETS = [
    path.stem
    for path in sorted((config_dir() / "search").glob("*.yaml"))
    if re.search(r"operators: \[seed, tune, \w+", path.read_text())
]
LIMIT = "termination.evaluations=400"


@pytest.fixture
def evolve(evolve_here, tmp_path: Path):
    """In a folder with the synthetic task, which has no program to start from."""
    (tmp_path / "synthetic.py").write_text(synthetic_task().source)
    return evolve_here


def create(evolve, name: str, *words: str) -> str:
    done = evolve("run", "task=./synthetic.py", f"name={name}", LIMIT, *words, "--create")
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_seed(folder: Path) -> None:
    (folder / "seeds").mkdir()
    (folder / "seeds" / "seed.py").write_text(SEED_SOURCE)


def ask(evolve, name: str, number: int = 1, out: str = "out") -> str:
    done = evolve("ask", name, "-n", str(number), "--out", out)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prompts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prompt.md"))


def reply(prompt: Path, text: str) -> None:
    source = f"{SEED_SOURCE}\nHAND = {text!r}\n"
    path = prompt.with_name(prompt.name.replace(".prompt.md", ".reply.md"))
    path.write_text(f"```python\n{source}```\n")


def tell(evolve, name: str, what: str = "out") -> str:
    done = evolve("tell", name, what)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judged(evolve, folder: Path, name: str, number: int = 4) -> list[str]:
    """Have the run's next programs judged elsewhere; the ids that were asked for."""
    done = evolve("batch", name, "-n", str(number), "-o", "in.jsonl")
    assert done.returncode == 0, done.stderr
    requests = judge(folder, f"verdicts-{name}")
    tell(evolve, name, f"verdicts-{name}")
    return [request.id for request in requests if request.method == "evaluate"]


def stored(name: str, sequence: int):
    with Store.open("runs/evolve.db", read_only=True) as store:
        run = store.run(name)
        return store.ticket(run.id, sequence)


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_whose_operators_all_ask_a_model_is_answered_by_hand(
    preset, evolve, tmp_path: Path
):
    with_seed(tmp_path)
    said = create(evolve, "mine", f"search={preset}", "operators.tune=null")
    assert "evolve ask mine" in said
    assert judged(evolve, tmp_path, "mine") == ["mine:0"]
    ask(evolve, "mine")
    [prompt] = prompts(tmp_path / "out")
    assert "def forward(self, x):" in prompt.read_text()


def test_a_mechanism_that_a_run_by_hand_cannot_come_to_is_named_when_it_is_created(evolve):
    said = create(evolve, "mine", "search=mcts", "selection.dead_stale=100")
    assert "selection.dead_stale has no effect: it would first act at step 100" in said
    assert "has no effect" not in create(evolve, "next", "search=mcts")


def test_a_first_program_may_come_from_a_prompt(evolve, tmp_path: Path):
    words = ("search=single", "operators=rewrite_full")
    refused = evolve("run", "task=./synthetic.py", *words)
    assert refused.returncode == 2
    assert "llm.model=provider/NAME" in refused.stderr
    create(evolve, "mine", *words)
    nothing = evolve("batch", "mine", "-o", "in.jsonl")
    assert "`evolve ask mine` writes prompts" in nothing.stderr + nothing.stdout
    ask(evolve, "mine")
    [prompt] = prompts(tmp_path / "out")
    assert "There is no program with kernels of its own yet" in prompt.read_text()
    reply(prompt, "first")
    assert "1 program proposed" in tell(evolve, "mine")
    assert judged(evolve, tmp_path, "mine") == ["mine:0"]
    ask(evolve, "mine", out="next")
    assert "HAND = 'first'" in prompts(tmp_path / "next")[0].read_text()


@pytest.mark.slow  # first prompts are in other tests here
def test_the_first_prompt_has_the_costs_that_a_judge_elsewhere_found(evolve, tmp_path: Path):
    create(evolve, "mine", "search=single", "operators=rewrite_full")
    assert judged(evolve, tmp_path, "mine") == []
    ask(evolve, "mine")
    said = prompts(tmp_path / "out")[0].read_text()
    assert "- PyTorch eager about 2 ms (no interval yet)." in said
    assert "memory sets the ceiling, 0.2 ms, 10 times as fast as eager" in said
    assert "- 100 %, 2 ms: `relu`, 80 MB (40 GB/s)" in said
    assert "- device: Synthetic 9000" in said
    create(evolve, "next", "search=single", "operators=rewrite_full", "warm_start=mine")
    assert "Synthetic 9000" not in evolve("prompt", "next").stdout  # nothing is judged there


def test_a_run_by_hand_goes_on_without_a_model_when_it_is_resumed(evolve, tmp_path: Path):
    with_seed(tmp_path)
    create(evolve, "mine", "operators=[seed,rewrite_full]", "search=single")
    judged(evolve, tmp_path, "mine")
    with Store.open("runs/evolve.db", read_only=True) as store:
        run = store.run("mine")
    components.build_all(run.config, run=run.name)
    with pytest.raises(UsageError, match="evolve run --create"):
        components.build_all(run.config)


WARM = ("search=single", "operators=[seed,rewrite_full]")


@pytest.mark.slow  # warm starts are in test_switching
def test_a_warm_start_is_there_at_the_first_prompt_and_is_not_judged_again(evolve, tmp_path):
    with_seed(tmp_path)
    create(evolve, "first", *WARM)
    assert judged(evolve, tmp_path, "first") == ["first:0"]
    said = create(evolve, "second", *WARM, "warm_start=first")
    assert "with 1 verdict of another run" in said
    shown = evolve("prompt", "second", "--operator", "rewrite_full").stdout
    ask(evolve, "second")
    text = prompts(tmp_path / "out")[0].read_text()
    for prompt in (shown, text):
        assert "There is no program with kernels of its own yet" not in prompt
        assert "x as fast as PyTorch eager" in prompt
    done = evolve("batch", "second", "-o", "in.jsonl")
    assert done.returncode == 2
    assert "nothing to judge now" in done.stderr


def test_what_the_database_knows_of_a_task_is_told_and_not_asked_for(evolve, tmp_path: Path):
    with_seed(tmp_path)
    create(evolve, "first", *WARM)
    judged(evolve, tmp_path, "first")
    create(evolve, "second", *WARM)
    done = evolve("batch", "second", "-o", "in.jsonl")
    assert "1 verdict of synthetic known to this database already, and told" in done.stdout
    create(evolve, "anew", *WARM, "store.reuse=false")
    assert evolve("batch", "anew", "-o", "in.jsonl").returncode == 0
    assert "anew:0" in [request.id for request in read_requests(tmp_path / "in.jsonl")[0]]


@pytest.mark.slow
def test_a_reply_that_another_run_has_judged_is_not_judged_again(evolve, tmp_path: Path):
    with_seed(tmp_path)
    for name in ("first", "second"):
        create(evolve, name, *WARM)
        if name == "first":
            judged(evolve, tmp_path, name)
        else:
            evolve("batch", name, "-o", "in.jsonl")
        ask(evolve, name, out=f"out-{name}")
        reply(prompts(tmp_path / f"out-{name}")[0], "same")
        tell(evolve, name, f"out-{name}")
        if name == "first":
            assert judged(evolve, tmp_path, name) == ["first:1"]
    assert "1 verdict of synthetic known" in evolve("batch", "second", "-o", "in.jsonl").stdout


@pytest.fixture
def overtaken(evolve, tmp_path: Path):
    """A run that asked two first versions, of which the first was answered and judged."""
    create(evolve, "mine", "search=single", "operators=rewrite_full")
    ask(evolve, "mine", 2)
    first, second = prompts(tmp_path / "out")
    reply(first, "first")
    tell(evolve, "mine")
    judged(evolve, tmp_path, "mine")
    return second


def test_an_open_request_is_composed_anew_after_verdicts_and_once_only(
    overtaken: Path, evolve, tmp_path: Path
):
    before = overtaken.read_text()
    said = ask(evolve, "mine")
    assert "000001-0.1.prompt.md (composed anew)" in said
    [_, anew] = prompts(tmp_path / "out")
    assert "HAND = 'first'" in anew.read_text()
    assert "There is no program with kernels of its own yet" in before
    assert not overtaken.exists()
    again = anew.read_text()
    ask(evolve, "mine")
    assert prompts(tmp_path / "out")[-1].read_text() == again
    shown = evolve("prompt", "mine:1").stdout
    assert "There is no program with kernels of its own yet" in shown
    assert "HAND = 'first'" in shown


def test_a_reply_to_the_text_before_is_the_answer_to_that_text(
    overtaken: Path, evolve, tmp_path: Path
):
    before = json.loads((tmp_path / "out" / "000001-0.ticket.json").read_text())["messages"]
    ask(evolve, "mine")
    judged_first = stored("mine", 0).proposal.program.digest
    assert stored("mine", 1).parents == (judged_first,)
    reply(overtaken, "late")
    assert "1 program proposed" in tell(evolve, "mine")
    ticket = stored("mine", 1)
    assert ticket.state is TicketState.PROPOSED
    assert ticket.parents == ticket.proposal.parents == ()
    [exchange] = ticket.exchanges
    assert [message.content for message in exchange.request.messages] == [
        message["content"] for message in before
    ]
    reply(tmp_path / "out" / "000001-0.1.prompt.md", "newer")
    assert "0 programs proposed, 3 known already" in tell(evolve, "mine")
    assert stored("mine", 1) == ticket


def test_a_reply_to_the_new_text_has_its_parents(overtaken: Path, evolve, tmp_path: Path):
    ask(evolve, "mine")
    reply(tmp_path / "out" / "000001-0.1.prompt.md", "newer")
    tell(evolve, "mine")
    parent = stored("mine", 0).proposal.program.digest
    assert stored("mine", 1).proposal.parents == (parent,)
    reply(overtaken, "late")
    tell(evolve, "mine")
    assert "newer" in stored("mine", 1).proposal.program.source


def test_a_request_with_a_reply_beside_it_is_left_as_it_is(overtaken: Path, evolve, tmp_path):
    before = overtaken.read_text()
    reply(overtaken, "second")
    ask(evolve, "mine")
    assert overtaken.read_text() == before
    assert not list((tmp_path / "out").glob("000001-0.1.*"))


def test_what_was_asked_before_is_in_the_dump_and_counts_no_parent_twice(
    overtaken: Path, evolve, tmp_path: Path
):
    for _ in range(2):
        ask(evolve, "mine")
    reply(overtaken, "late")
    tell(evolve, "mine")
    parent = stored("mine", 0).proposal.program.digest
    with Store.open("runs/evolve.db", read_only=True) as store:
        run = store.run("mine")
        assert store.visits(run.id, parent)[parent].asked == 0
        lines = [json.loads(line) for line in store.dump(run.id)]
    [rounds] = [line["rounds"] for line in lines if line.get("sequence") == 1]
    assert [("reply" in text, text.get("replaced")) for text in rounds] == [
        (True, None),
        (False, [parent]),
    ]
