"""Types of the components that ship, so that `archive.capacity=abc` fails at composition.

Each mirrors the constructor of its `_target_`; the values stand in the YAML of the same name.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from evolve.cli.config.schema import LocalDevice, ReplayDevice


@dataclass
class TopK:
    _target_: str = "archives.topk.TopK"
    capacity: int = MISSING


@dataclass
class MapElites:
    _target_: str = "archives.map_elites.MapElites"
    capacity: int = MISSING
    depth: int = MISSING
    axes: dict[str, list[Any]] = MISSING


@dataclass
class Greedy:
    _target_: str = "evolve.search.selection.Greedy"


@dataclass
class Tournament:
    _target_: str = "evolve.search.selection.Tournament"
    size: int = MISSING


@dataclass
class EpsilonGreedy:
    _target_: str = "evolve.search.selection.EpsilonGreedy"
    epsilon: float = MISSING


@dataclass
class Seed:
    _target_: str = "operators.seed.Seed"
    weight: float = MISSING


@dataclass
class Tune:
    _target_: str = "operators.tune.Tune"
    weight: float = MISSING
    breadth: int = MISSING
    reduction: int = MISSING
    limit: int = MISSING


@dataclass
class Recombine:
    _target_: str = "operators.recombine.Recombine"
    weight: float = MISSING


@dataclass
class DefaultOperators:
    seed: Seed | None = field(default_factory=Seed)
    tune: Tune | None = field(default_factory=Tune)
    recombine: Recombine | None = field(default_factory=Recombine)


COMPONENTS: dict[str, dict[str, Any]] = {
    "archive": {"topk": TopK, "map_elites": MapElites},
    "selection": {"greedy": Greedy, "tournament": Tournament, "epsilon_greedy": EpsilonGreedy},
    "operators": {"default": DefaultOperators},
    "device": {"local": LocalDevice, "replay": ReplayDevice},
}
