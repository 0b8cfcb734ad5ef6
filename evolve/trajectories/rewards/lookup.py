"""Rewards by name: those that ship, a user's own function, and shapings on top of them."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.trajectories.names import find
from evolve.trajectories.rewards.reward import Reward
from evolve.trajectories.rewards.shaping import SHAPINGS, Scores, Shaping, Tree
from evolve.trajectories.rewards.turns import TURN_REWARDS


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A reward of steps, and the transformation of the scores of a whole run."""

    reward: Reward
    shapings: tuple[Shaping, ...] = ()

    @property
    def name(self) -> str:
        return "+".join((self.reward.name, *(shaping.name for shaping in self.shapings)))

    def shape(self, scores: Scores, tree: Tree) -> Scores:
        """The scores of a run's steps as a trainer would take them."""
        for shaping in self.shapings:
            scores = shaping.apply(scores, tree)
        return scores


def reward(name: str) -> Reward:
    """The reward of this name: `dr_kernel@1`, or a user's own as `my_file.py:function`.

    Raises:
        UsageError: there is none; a name without its version says which there are.
    """
    if ":" in name:
        return _own(name)
    return find(name, TURN_REWARDS, "reward")


def pipeline(name: str) -> Pipeline:
    """A reward with shapings after a plus sign each: `dr_kernel@1+return@1+trloo@2`.

    Raises:
        UsageError: one of them does not exist.
    """
    first, *rest = name.split("+")
    shapings = tuple(find(one, SHAPINGS, "shaping") for one in rest)
    return Pipeline(reward(first), shapings)


def reward_names() -> list[str]:
    """Names of the rewards that ship."""
    return [one.name for one in TURN_REWARDS]


def shaping_names() -> list[str]:
    """Names of the shapings that ship."""
    return [one.name for one in SHAPINGS]


def _own(name: str) -> Reward:
    """A function of a user's file; its name is pinned by a digest of the file's text."""
    path, _, function = name.rpartition(":")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"reward {name}: {path} cannot be read ({error})") from error
    found = getattr(_module(path, name), function, None)
    if not callable(found):
        raise UsageError(f"reward {name}: {path} defines no function {function!r}")
    digest = framed_digest("reward", text)[:8]
    return Reward(
        name=f"{Path(path).name}:{function}@{digest}",
        source=path,
        compute=found,
        needs_samples=True,
        needs_texts=True,
    )


def _module(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"reward {name}: {path} is no Python file; its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise UsageError(f"reward {name}: {path} cannot be imported: {error}") from error
    return module
