"""TRL: an asynchronous reward function, and an environment for several turns.

A row without a known reward gets None, which TRL leaves out of its group's mean and of the loss
from 1.6 on; older ones count it as 0, and are refused. How many those are is logged as
`infra_masked` (no verdict) and `unscored` (a verdict, but no score). A step here is the share of
one process of the trainer.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, Protocol

from evolve.core.errors import UsageError
from evolve.rl.client import Client
from evolve.rl.masking import MAX_MASKED, MAX_UNSCORED, MaskedRows
from evolve.rl.outcome import Outcome, fault_in, parent_of, worth_of

MASKS_SINCE = (1, 6)
COLUMNS = (
    *("task", "reference", "size", "precision", "accumulation", "baseline"),
    *("parent", "parent_source"),
)
"""Columns of the data set that go into the submission; one of the first two is needed."""

RewardFunction = Callable[..., Awaitable[list[float | None]]]
LogMetric = Callable[[str, float], None]


class Environment(Protocol):
    """The environment for TRL's `environment_factory`, for one episode at a time."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Of the programs submitted so far."""
        ...

    @property
    def origin(self) -> Mapping[str, Any]:
        """The task of the episode's programs."""
        ...

    def reset(self, **columns: Any) -> str | None: ...

    def submit(self, code: str) -> str: ...


def reward_function(
    client: Client,
    *,
    most_masked: float = MAX_MASKED,
    most_unscored: float = MAX_UNSCORED,
    step_rows: int = 0,
) -> RewardFunction:
    """A function for `GRPOTrainer(reward_funcs=...)`, called for all completions of a batch.

    Args:
        client: with exactly one reward.
        most_masked: share of a step's rows that may have no verdict; more stop the training.
        most_unscored: share of them that may have a verdict and no score; more stop it, too.
        step_rows: completions of a step if the trainer asks for them in several calls; below 100 of
            them a single one without a verdict is more than 1 %.

    Raises:
        UsageError: a TRL that counts None as 0, or another number of rewards.
    """
    _require_trl()
    name, masked = _only_reward(client), MaskedRows(most_masked, most_unscored, step_rows)

    async def evolve_reward(
        completions: Sequence[Any],
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        submissions = [
            _submission(columns, n) | {"completion": _text(completion)}
            for n, completion in enumerate(completions)
        ]
        outcomes = await client.judge_async(submissions)
        episodes = [[outcome] for outcome in outcomes]
        return _rewards(episodes, name, masked, trainer_state, log_metric)

    return evolve_reward


def environment(client: Client, *, turns: int = 3) -> type[Environment]:
    """A class for `GRPOTrainer(environment_factory=...)` whose one tool judges a program.

    The model gets the message of the search's own prompts back, and may try again.
    `environment_reward` is the reward of an episode.

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
            self._origin = {key: columns[key] for key in COLUMNS if columns.get(key)}
            self._outcomes = []
            return None

        def submit(self, code: str) -> str:
            """Have a program judged: correctness, speed and bottleneck.

            Args:
                code: The complete Python module with the class ModelNew.

            Returns:
                The verdict, with the next job.
            """
            if len(self._outcomes) >= turns:
                raise ValueError(f"all {turns} programs of this episode have been submitted")
            before = parent_of(self._origin, self._outcomes)
            (outcome,) = client.judge([{**self._origin, **before, "source": code}])
            self._outcomes.append(outcome)
            return tool_result(outcome)

    return KernelEnvironment


def tool_result(outcome: Outcome) -> str:
    """The answer to the model about a program that it has submitted."""
    return outcome.next_turn or "There is no verdict on this program; submit it again."


def environment_reward(
    client: Client,
    *,
    best: bool = True,
    most_masked: float = MAX_MASKED,
    most_unscored: float = MAX_UNSCORED,
    step_rows: int = 0,
) -> RewardFunction:
    """A function for `GRPOTrainer(reward_funcs=...)` beside `environment`.

    Args:
        client: the environment's.
        best: an episode is worth its best turn; else its last one.
        most_masked: share of a step's episodes that may have no verdict; more stop the training.
        most_unscored: share of them that may have verdicts and no score; more stop it, too.
        step_rows: episodes of a step if the trainer asks for them in several calls; below 100 of
            them a single one without a verdict is more than 1 %.

    Raises:
        UsageError: a TRL that counts None as 0, or another number of rewards.
    """
    _require_trl()
    name, masked = _only_reward(client), MaskedRows(most_masked, most_unscored, step_rows)

    async def evolve_reward(
        environments: Sequence[Environment],
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
        **_: Any,
    ) -> list[float | None]:
        silent = [one for one in environments if not one.outcomes]
        nothing = await client.judge_async([{**e.origin, "completion": ""} for e in silent])
        said = dict(zip(map(id, silent), nothing, strict=True))
        episodes = [list(one.outcomes) or [said[id(one)]] for one in environments]
        return _rewards(episodes, name, masked, trainer_state, log_metric, best=best)

    return evolve_reward


def _rewards(
    episodes: Sequence[Sequence[Outcome]],
    name: str,
    masked: MaskedRows,
    trainer_state: Any,
    log_metric: LogMetric | None,
    *,
    best: bool = True,
) -> list[float | None]:
    """The reward of every episode, once those without a known one are counted."""
    rewards = [worth_of(outcomes, name, best=best) for outcomes in episodes]
    faults = [fault for outcomes in episodes if (fault := fault_in(outcomes)) is not None]
    shares = masked.count(
        len(episodes),
        infra_masked=len(faults),
        unscored=rewards.count(None) - len(faults),
        step=getattr(trainer_state, "global_step", None),
        why=f"{faults[0].fault}: {faults[0].message}" if faults else "",
    )
    for metric, share in shares.items():
        if log_metric is not None:
            log_metric(metric, share)
    return rewards


def _submission(columns: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The columns of one row that describe its task."""
    found = {name: columns[name][row] for name in COLUMNS if columns.get(name) is not None}
    return {name: value for name, value in found.items() if value}


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
    """Raise UsageError if TRL is too old; without TRL there is no training."""
    try:
        found = metadata.version("trl")
    except metadata.PackageNotFoundError:
        return
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < MASKS_SINCE:
        wanted = ".".join(map(str, MASKS_SINCE))
        raise UsageError(
            f"trl {found} takes a reward that is not known for 0; pip install 'trl>={wanted}'"
        )
