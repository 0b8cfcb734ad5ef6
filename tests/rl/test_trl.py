"""The reward function and the environment for TRL, called as `GRPOTrainer` calls them.

Invariants:
- one reward for each completion, in order; None where nobody knows what it is worth;
- the model is told what the search tells a model;
- a step of which too much is masked stops the training.
"""

import asyncio
import inspect
from types import SimpleNamespace

import pytest

from evolve.core.errors import UsageError
from evolve.rl import Client, TooManyMasked
from evolve.rl.trl import environment, environment_reward, reward_function
from tests.serve.serving import candidate, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("trl"), attempts=1, retry_s=0.05) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return Client(server.url, rewards=["kevin@1"], again=0)


def reply(*words: str) -> str:
    return f"So be it.\n```python\n{candidate(*words)}```"


def call(function, **arguments):
    """As `_calculate_rewards` of TRL does: in an event loop, with every column as a list."""
    assert inspect.iscoroutinefunction(function)
    return asyncio.run(function(**arguments))


def test_completions_are_scored_in_order(client):
    function = reward_function(client)
    metrics = {}
    rewards = call(
        function,
        prompts=["p"] * 3,
        completions=[reply("speedup 2.0"), "no program", reply("wrong_value")],
        completion_ids=[[1]] * 3,
        task=["rmsnorm"] * 3,
        trainer_state=None,
        log_metric=metrics.__setitem__,
    )
    assert rewards == pytest.approx([2.3, 0.0, 0.0])
    assert metrics == {"infra_masked": 0.0, "unscored": 0.0}


def test_a_conversation_is_worth_its_last_reply(client):
    messages = [
        {"role": "assistant", "content": reply("speedup 2.0")},
        {"role": "tool", "content": "it is slow"},
        {"role": "assistant", "content": reply("speedup 3.0")},
    ]
    rewards = call(reward_function(client), completions=[messages], task=["rmsnorm"])
    assert rewards == pytest.approx([3.3])


def test_a_row_without_a_verdict_is_none(client):
    function = reward_function(client, most_masked=0.5)
    rewards = call(function, completions=[reply("fail"), reply()], task=["rmsnorm"] * 2)
    assert rewards == [None, pytest.approx(1.8)]


def test_a_step_with_too_many_of_them_stops_the_training(client):
    completions = [reply("fail"), *[reply(f"speedup 1.{n}") for n in range(10, 60)]]
    with pytest.raises(TooManyMasked, match=r"1 of 51 rows.*infra: .*the stub fails"):
        call(reward_function(client), completions=completions, task=["rmsnorm"] * 51)


def test_a_row_with_a_verdict_and_no_score_is_counted_and_none(server):
    client = Client(server.url, rewards=["dr_kernel@1"])
    metrics = {}
    completions = [reply("speedup 2.0"), reply("speedup 2.0", "unprofiled")]
    rewards = call(
        reward_function(client),
        completions=completions,
        task=["rmsnorm"] * 2,
        log_metric=metrics.__setitem__,
    )
    assert rewards == [pytest.approx(3.5), None]
    assert metrics == {"infra_masked": 0.0, "unscored": 0.5}
    with pytest.raises(TooManyMasked, match="unscored: 2 of 2 rows"):
        call(reward_function(client), completions=completions[1:] * 2, task=["rmsnorm"] * 2)


def test_the_calls_of_one_step_are_counted_together(client):
    function = reward_function(client, step_rows=100)

    def ask(completion: str, step: int) -> list[float | None]:
        state = SimpleNamespace(global_step=step)
        return call(function, completions=[completion], task=["rmsnorm"], trainer_state=state)

    assert ask(reply("fail", "1"), 0) == [None]  # one of a hundred
    assert ask(reply("fail", "2"), 1) == [None]
    with pytest.raises(TooManyMasked, match="2 of 100 rows"):
        ask(reply("fail", "3"), 1)


def test_a_rows_parent_is_what_a_gain_is_over_in_every_turn(server):
    client = Client(server.url, rewards=["kernel_smith@1"])
    parents = [candidate("speedup 2.0"), ""]  # one row goes on from no program
    rewards = call(
        reward_function(client, most_unscored=1.0),
        completions=[reply("speedup 3.0")] * 2,
        task=["rmsnorm"] * 2,
        parent_source=parents,
    )
    assert rewards == [pytest.approx(1.5), None]
    episode = environment(client)()
    episode.reset(task="rmsnorm", parent_source=parents[0])
    episode.submit(candidate("speedup 4.0"))
    episode.submit(candidate("speedup 3.0"))
    assert call(environment_reward(client), environments=[episode]) == pytest.approx([2.0])
    assert call(environment_reward(client, best=False), environments=[episode]) == pytest.approx(
        [1.5]
    )


def test_an_episode_with_a_fault_in_any_turn_is_masked(client):
    episode = environment(client)()
    episode.reset(task="rmsnorm")
    episode.submit(candidate("speedup 3.0"))
    assert "There is no verdict" in episode.submit(candidate("fail"))
    assert call(environment_reward(client, most_masked=1.0), environments=[episode]) == [None]
    with pytest.raises(TooManyMasked, match="1 of 1 rows"):
        call(environment_reward(client), environments=[episode])


def test_an_empty_completion_is_a_failure_of_the_models(client):
    rewards = call(reward_function(client), completions=["", []], task=["rmsnorm"] * 2)
    assert rewards == [0.0, 0.0]


def test_an_environment_is_what_trl_asks_for(client):
    """`reset` takes columns; every other public method is a tool with documented arguments."""
    kind = environment(client)
    public = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"]
    assert sorted(public) == ["reset", "submit"]
    assert kind().reset(task="rmsnorm", prompt="p", nothing=None) is None
    assert "Args:\n    code: " in inspect.getdoc(kind.submit)


def test_an_episode_is_told_how_it_goes_and_worth_its_best_turn(client):
    episode = environment(client, turns=2)()
    episode.reset(task="rmsnorm")
    assert "Verdict: correct, 3.00x" in episode.submit(candidate("speedup 3.0"))
    assert "stub: wrong_value" in episode.submit(candidate("wrong_value"))
    with pytest.raises(ValueError, match="all 2 programs"):
        episode.submit(candidate())
    assert call(environment_reward(client), environments=[episode]) == pytest.approx([3.3])
    assert call(environment_reward(client, best=False), environments=[episode]) == [0.0]


def test_an_episode_begins_anew_with_a_reset(client):
    episode = environment(client)()
    episode.reset(task="rmsnorm")
    episode.submit(candidate("speedup 3.0"))
    episode.reset(task="rmsnorm")
    assert call(environment_reward(client), environments=[episode]) == [0.0]


def test_an_episode_whose_verdicts_are_all_missing_is_none(client):
    episode = environment(client)()
    episode.reset(task="rmsnorm")
    episode.submit(candidate("fail"))
    assert call(environment_reward(client, most_masked=1.0), environments=[episode]) == [None]
    with pytest.raises(TooManyMasked):
        call(environment_reward(client), environments=[episode])


def test_a_trainer_takes_one_reward():
    with pytest.raises(UsageError, match="a trainer takes one"):
        reward_function(Client("http://127.0.0.1:9", rewards=["kevin@1", "mtmc@1"]))


def test_a_trl_that_counts_none_as_zero_is_refused(tmp_path, monkeypatch):
    installed = tmp_path / "trl-1.5.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 1.5.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"trl>=1\.6"):
        reward_function(Client("http://127.0.0.1:9", rewards=["kevin@1"]))
