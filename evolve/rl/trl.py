"""TRL: an asynchronous reward function, and an environment for several turns.

A row whose verdict is missing through no fault of its own is worth None, which TRL leaves out of
its group's mean and of the loss from 1.6 on; older ones count it as 0, and are refused.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, Protocol

from evolve.core.errors import UsageError
from evolve.rl.client import Client
from evolve.rl.masking import MOST, MaskedRows
from evolve.rl.outcome import Outcome

MASKS_SINCE = (1, 6)
COLUMNS = ("task", "reference", "size", "precision", "accumulation", "baseline", "parent")
"""Columns of the data set that go into the submission; one of the first two is needed."""

RewardFunction = Callable[..., Awaitable[list[float | None]]]


class Environment(Protocol):
    """What TRL's `environment_factory` makes, for one episode at a time."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Of the programs submitted so far."""
        ...

    @property
    def origin(self) -> Mapping[str, Any]:
        """What the episode's programs are for."""
        ...

    def reset(self, **columns: Any) -> str | None: ...

    def submit(self, code: str) -> str: ...


def reward_function(client: Client, *, most_masked: float = MOST) -> RewardFunction:
    """A function for `GRPOTrainer(reward_funcs=...)`, called once for all completions of a step.

    Args:
        client: with exactly one reward.
        most_masked: share of a step's rows that may have no verdict; more stop the training.

    Raises:
        UsageError: a TRL that counts None as 0, or another number of rewards.
    """
    _require_trl()
    name, masked = _only_reward(client), MaskedRows(most_masked)

    async def evolve_reward(
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        submissions = [
            _submission(columns, n) | {"completion": _text(completion) or " "}
            for n, completion in enumerate(completions)
        ]
        outcomes = await client.judge_async(submissions)
        share = _count(masked, [one for one in outcomes if one.is_masked], len(outcomes))
        if log_metric is not None:
            log_metric("infra_masked", share)
        return [outcome.rewards.get(name) for outcome in outcomes]

    return evolve_reward


def environment(client: Client, *, turns: int = 3) -> type[Environment]:
    """A class for `GRPOTrainer(environment_factory=...)` whose one tool judges a program.

    The model gets the message of the search's own prompts back, and may try again. What an episode
    is worth says `environment_reward`.

    Args:
        client: with exactly one reward.
        turns: programs that may be submitted in one episode.
    """

    class KernelEnvironment:
        """One episode: a task, and the programs that were submitted for it."""

        def __init__(self) -> None:
            self._origin: Mapping[str, Any] = {}
            self._outcomes: list[Outcome] = []

        @property
        def outcomes(self) -> Sequence[Outcome]:
            return self._outcomes

        @property
        def origin(self) -> Mapping[str, Any]:
            return self._origin

        def reset(self, **columns: Any) -> str | None:
            self._origin = {key: columns[key] for key in COLUMNS if columns.get(key) is not None}
            self._outcomes = []
            return None

        def submit(self, code: str) -> str:
            """Have a program judged: whether it is correct, how fast it is, and what limits it.

            Args:
                code: The complete Python module with the class ModelNew.

            Returns:
                The verdict, with what to do next.
            """
            if len(self._outcomes) >= turns:
                raise ValueError(f"all {turns} programs of this episode have been submitted")
            before = {"parent": self._outcomes[-1].job} if self._outcomes else {}
            (outcome,) = client.judge([{**self._origin, **before, "source": code or " "}])
            self._outcomes.append(outcome)
            return outcome.next_turn or "There is no verdict on this program; submit it again."

    return KernelEnvironment


def environment_reward(
    client: Client, *, best: bool = True, most_masked: float = MOST
) -> RewardFunction:
    """A function for `GRPOTrainer(reward_funcs=...)` beside `environment`.

    Args:
        client: the environment's.
        best: an episode is worth its best turn; else its last one.
        most_masked: share of a step's episodes that may have no verdict; more stop the training.

    Raises:
        UsageError: a TRL that counts None as 0, or another number of rewards.
    """
    _require_trl()
    name, masked = _only_reward(client), MaskedRows(most_masked)

    async def evolve_reward(
        environments: Sequence[Environment],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        silent = [one for one in environments if not one.outcomes]
        nothing = await client.judge_async([{**e.origin, "completion": " "} for e in silent])
        said = dict(zip(map(id, silent), nothing, strict=True))
        episodes = [list(one.outcomes) or [said[id(one)]] for one in environments]
        rewards = [_worth(outcomes, name, best=best) for outcomes in episodes]
        unknown = [
            next((outcome for outcome in outcomes if outcome.is_masked), None)
            for outcomes, reward in zip(episodes, rewards, strict=True)
            if reward is None
        ]
        share = _count(masked, [outcome for outcome in unknown if outcome], len(episodes))
        if log_metric is not None:
            log_metric("infra_masked", share)
        return rewards

    return evolve_reward


def _worth(outcomes: Sequence[Outcome], name: str, *, best: bool) -> float | None:
    """What an episode is worth; None where that is not known."""
    known = [outcome.rewards.get(name) for outcome in outcomes]
    if not best:
        return known[-1]
    return max((reward for reward in known if reward is not None), default=None)


def _count(masked: MaskedRows, faults: Sequence[Outcome], rows: int) -> float:
    why = f"{faults[0].fault}: {faults[0].message}" if faults else ""
    return masked.count(len(faults), rows, why)


def _submission(columns: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The columns of one row that say what it is for."""
    found = {name: columns[name][row] for name in COLUMNS if columns.get(name) is not None}
    return {name: value for name, value in found.items() if value is not None}


def _text(completion: Any) -> str:
    """The text of a completion, which is a string or a list of messages."""
    if isinstance(completion, str):
        return completion
    said = [message.get("content") for message in completion if message["role"] == "assistant"]
    return next((text for text in reversed(said) if text), "")


def _only_reward(client: Client) -> str:
    if len(client.rewards) != 1:
        raise UsageError(
            f"rewards={list(client.rewards)}: a trainer takes one; give Client(rewards=['kevin@1'])"
        )
    return client.rewards[0]


def _require_trl() -> None:
    """Raise UsageError where TRL is too old; where there is none, nobody trains."""
    try:
        found = metadata.version("trl")
    except metadata.PackageNotFoundError:
        return
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < MASKS_SINCE:
        wanted = ".".join(map(str, MASKS_SINCE))
        raise UsageError(
            f"trl {found} takes a reward that is not known for 0; pip install 'trl>={wanted}'"
        )
