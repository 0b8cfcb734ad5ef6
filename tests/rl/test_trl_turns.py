"""Optimiser steps of `TurnTrainer` on a random model of a few thousand weights; needs TRL.

Invariants: after a step every weight is where one step of plain gradient descent takes it with the
advantages worked out by hand, so that a good turn becomes likelier and a bad one less likely; what
is masked or rejected moves no weight.
"""

import json

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import chat_template_utils as templates

from evolve.core.errors import UsageError
from evolve.rl import Client
from evolve.rl.trl import environment, environment_reward, reward_function
from evolve.rl.trl_trainer import TurnTrainer
from tests.rl.test_trl_trainer import model, settings, tokenizer, tool_call
from tests.serve.serving import candidate, serving

pytestmark = pytest.mark.timeout(300)

RATE = 1e-2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("turns"), attempts=1, retry_s=0.05) as running:
        yield running


@pytest.fixture
def words():
    found = tokenizer()
    found.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    found.eos_token, found.chat_template = "<|im_end|>", templates.qwen3_chat_template
    return found


class Scripted(TurnTrainer):
    """Its model says what is written; `off_by` is added to what the sampling calls likely."""

    def __init__(self, turns: list[list[str]], off_by: list[float] | None = None, **arguments):
        self.turns, self.off_by = [list(turn) for turn in turns], off_by
        self.batches: list[dict] = []
        super().__init__(**arguments)

    def _generate_single_turn(self, prompt_ids, *_, **__):
        said = self.turns.pop(0)
        ids = [self.encoded(text) for text in said]
        if self.off_by is None:
            return ids, None
        sampled = [
            (log_probs(self.model, prompt, answer).detach() + off).tolist()
            for prompt, answer, off in zip(prompt_ids, ids, self.off_by, strict=True)
        ]
        return ids, sampled

    def encoded(self, text: str) -> list[int]:
        return self.processing_class.encode(text, add_special_tokens=False)

    def _compute_loss(self, model, inputs):
        self.batches.append({name: one.clone() for name, one in inputs.items()})
        return super()._compute_loss(model, inputs)


def log_probs(network, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Of each token of an answer."""
    tokens = torch.tensor([[*prompt, *answer]])
    logits = network(tokens).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.float(), -1).gather(1, tokens[0, len(prompt) :, None])[:, 0]


Rows = list[list[tuple[str, float | None]]]
"""What the model said in each row, with the advantage by hand; None for what is not trained on."""


def weights(network) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in network.parameters()]).clone()


def said_in(trainer: Scripted, network, rows: Rows) -> list[tuple[torch.Tensor, float | None]]:
    """The log-probabilities of everything that was said, with its advantage."""
    found = []
    (batch,) = trainer.batches
    for n, ids in enumerate(batch["completion_ids"].tolist()):
        prompt = batch["prompt_ids"][n][batch["prompt_mask"][n].bool()].tolist()
        logs = log_probs(network, prompt, ids)
        (row,) = [row for row in rows if _place(ids, trainer.encoded(row[0][0])) == 0]
        for text, advantage in row:
            answer = trainer.encoded(text)
            start = _place(ids, answer)
            found.append((logs[start : start + len(answer)], advantage))
    return found


def _place(ids: list[int], part: list[int]) -> int:
    places = (n for n in range(len(ids)) if ids[n : n + len(part)] == part)
    return next(places, -1)


def by_hand(trainer: Scripted, start: dict, rows: Rows) -> torch.Tensor:
    """The weights after one step of gradient descent on minus advantage times log-probability."""
    network = model(trainer.processing_class)
    network.load_state_dict(start)
    said = said_in(trainer, network, rows)
    tokens = sum(len(logs) for logs, advantage in said if advantage is not None)
    loss = sum(-advantage * logs.sum() for logs, advantage in said if advantage) / tokens
    loss.backward()
    moved = [one - RATE * one.grad for one in network.parameters()]
    return torch.cat([one.detach().flatten() for one in moved])


def assert_one_step(trainer: Scripted, rows: Rows) -> None:
    """Train, and compare with the step by hand: both move, by the same amounts."""
    start = {name: one.clone() for name, one in trainer.model.state_dict().items()}
    before = weights(trainer.model)
    trainer.train()
    expected = by_hand(trainer, start, rows) - before
    moved = weights(trainer.model) - before
    assert expected.abs().max() > 1e-5
    assert torch.allclose(moved, expected, rtol=1e-2, atol=1e-6)


def trainer_of(words, folder, client, turns, **others) -> Scripted:
    is_episode = "environment_factory" in others
    reward = environment_reward if is_episode else reward_function
    masked = {"most_masked": others.pop("most_masked", 0.01)}
    row = {"prompt": [{"role": "user", "content": "Make it fast."}], "task": "rmsnorm"}
    return Scripted(
        turns,
        model=model(words),
        reward_funcs=reward(client, **masked),
        args=settings(
            folder,
            len(turns[0]),
            max_completion_length=6000,
            learning_rate=RATE,
            max_grad_norm=1e9,
            bf16=False,
            optim="sgd",
            lr_scheduler_type="constant",
            loss_type="bnpo",
        ),
        train_dataset=Dataset.from_list([row]),
        processing_class=words,
        **others,
    )


def reply(*said: str) -> str:
    return f"```python\n{candidate(*said)}```<|im_end|>"


def test_a_step_makes_the_good_answer_likelier_and_the_bad_one_less_likely(server, words, tmp_path):
    """kevin@1 gives 3.3 and 0, each the other's baseline."""
    client = Client(server.url, rewards=["kevin@1"])
    good, bad = reply("speedup 3.0"), reply("wrong_value")
    trainer = trainer_of(words, tmp_path, client, [[good, bad]])
    untrained = model(words)
    rows = [[(good, 3.3)], [(bad, -3.3)]]
    assert_one_step(trainer, rows)
    for (before, advantage), (after, _) in zip(
        said_in(trainer, untrained, rows), said_in(trainer, trainer.model, rows), strict=True
    ):
        assert (after.mean() > before.mean()) == (advantage > 0)


CLOSING = "So be it.<|im_end|>"


def test_every_turn_of_an_episode_is_moved_by_its_own_advantage(server, words, tmp_path):
    """Scores (0, 3.3) and (1.3, 0): returns 3.3, 3.3 and 1.3, 0. The last words bring nothing."""
    client = Client(server.url, rewards=["kevin@1"])
    first = [tool_call(candidate("wrong_value")), tool_call(candidate("speedup 1.0"))]
    second = [tool_call(candidate("speedup 3.0")), tool_call(candidate("wrong_value", "2"))]
    trainer = trainer_of(
        words,
        tmp_path,
        client,
        [first, second, [CLOSING] * 2],
        environment_factory=environment(client, turns=2),
    )
    one = [(first[0], 2.0), (second[0], 3.3), (CLOSING, 0.0)]
    other = [(first[1], -2.0), (second[1], -3.3), (CLOSING, 0.0)]
    assert_one_step(trainer, [one, other])


def test_a_call_that_never_reached_the_judge_has_no_score_of_anothers(server, words, tmp_path):
    """Scores (none, 3.3) and (1.3, 2.3): returns none, 3.3 and 3.6, 2.3."""
    client = Client(server.url, rewards=["kevin@1"])
    call = json.dumps({"name": "submit", "arguments": {}})
    broken = f"<tool_call>\n{call}\n</tool_call><|im_end|>"
    first = [broken, tool_call(candidate("speedup 1.0"))]
    second = [tool_call(candidate("speedup 3.0")), tool_call(candidate("speedup 2.0"))]
    trainer = trainer_of(
        words,
        tmp_path,
        client,
        [first, second, [CLOSING] * 2],
        environment_factory=environment(client, turns=2),
    )
    one = [(first[0], 0.0), (second[0], 1.0), (CLOSING, 0.0)]
    other = [(first[1], 3.6), (second[1], -1.0), (CLOSING, 0.0)]
    assert_one_step(trainer, [one, other])


def test_a_row_without_a_verdict_moves_no_weight(server, words, tmp_path):
    client = Client(server.url, rewards=["kevin@1"], again=0)
    turns = [[reply("fail"), reply("fail", "2")]]
    trainer = trainer_of(words, tmp_path, client, turns, most_masked=1.0)
    before = weights(trainer.model)
    trainer.train()
    assert torch.equal(weights(trainer.model), before)


@pytest.mark.parametrize(("off_by", "share"), [([0.0, 0.0], 0.0), ([0.0, 0.01], 0.5)])
def test_a_rollout_that_the_trained_model_would_not_sample_is_rejected(
    server, words, tmp_path, off_by, share
):
    """Its tokens are 1 % likelier there than here; its score stays the other's baseline."""
    client = Client(server.url, rewards=["kevin@1"])
    good, bad = reply("speedup 3.0"), reply("speedup 1.0")
    trainer = trainer_of(words, tmp_path, client, [[good, bad]], off_by=off_by)
    assert_one_step(trainer, [[(good, 2.0)], [(bad, None if share else -2.0)]])
    assert trainer.state.log_history[0]["mismatch/rejected"] == share


def test_where_all_are_rejected_no_weight_moves(server, words, tmp_path):
    client = Client(server.url, rewards=["kevin@1"])
    turns = [[reply("speedup 3.0"), reply("speedup 1.0")]]
    trainer = trainer_of(words, tmp_path, client, turns, off_by=[0.01, -0.01])
    before = weights(trainer.model)
    trainer.train()
    assert torch.equal(weights(trainer.model), before)


def test_a_turn_has_one_score(server, words, tmp_path):
    client = Client(server.url, rewards=["kevin@1"])
    with pytest.raises(UsageError, match="a turn has one score, not 2"):
        Scripted(
            [],
            model=model(words),
            args=settings(tmp_path, 2),
            processing_class=words,
            reward_funcs=[reward_function(client)] * 2,
            train_dataset=Dataset.from_list([{"prompt": "p", "task": "rmsnorm"}]),
        )
