"""Selection policies: which elites become parents. All pick different parents."""

from evolve.search.selection.best import Beam, EpsilonGreedy, ExploreExploit, Greedy
from evolve.search.selection.islands import AdaptiveIslands, IslandRoundRobin
from evolve.search.selection.measured import Polca, Thompson
from evolve.search.selection.proportional import Boltzmann, Curiosity, WeightedSigmoid
from evolve.search.selection.ranked import PowerLaw, Rank, Tournament
from evolve.search.selection.tree import Puct, Uct

__all__ = [
    "AdaptiveIslands",
    "Beam",
    "Boltzmann",
    "Curiosity",
    "EpsilonGreedy",
    "ExploreExploit",
    "Greedy",
    "IslandRoundRobin",
    "Polca",
    "PowerLaw",
    "Puct",
    "Rank",
    "Thompson",
    "Tournament",
    "Uct",
    "WeightedSigmoid",
]
