"""From a stored run over an export to a reward: what TRL would hand on is what the server takes.

Invariant: a gain is over the program that the row's prompt goes on from.
"""

import asyncio
from pathlib import Path

import pytest

from evolve.rl import Client
from evolve.rl.trl import environment, environment_reward, reward_function
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.formats import find_format
from evolve.trajectories.loading import load_dataset
from evolve.trajectories.views.recipes import find_recipe
from tests.serve.serving import candidate, serving
from tests.trajectories.conftest import search, store
from tests.trajectories.searched import Searched, story

__all__ = ["search", "store"]  # fixtures


@pytest.fixture
def rows(search: Searched, tmp_path: Path) -> list[dict]:
    story(search)
    plan = Plan(format=find_format("trl-grpo"), recipe=find_recipe("kernel_smith@2"))
    export(search.store, [search.run], tmp_path / "out", plan, lambda *_: None)
    return list(load_dataset(tmp_path / "out", "prompt"))


@pytest.mark.slow
def test_an_exported_prompt_is_scored_over_the_program_it_goes_on_from(rows, tmp_path):
    """The stub judge takes a program that says nothing of its speed for 1.5 times as fast."""
    with serving(tmp_path, references="any") as server:
        client = Client(server.url, rewards=["kernel_smith@1"])
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        replies = [f"```python\n{candidate('speedup 3.0')}```" for _ in rows]
        rewards = asyncio.run(reward_function(client)(completions=replies, **columns))
        episode = environment(client)()
        episode.reset(**rows[0])
        episode.submit(candidate("wrong_value"))
        episode.submit(candidate("speedup 4.5"))
        several = asyncio.run(environment_reward(client)(environments=[episode]))
    assert rewards == pytest.approx([2.0, 2.0])
    assert several == pytest.approx([3.0])
