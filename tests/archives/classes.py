"""Every archive, small enough to be full soon."""

from functools import partial

from archives import Islands, Lineage, MapElites, Novelty, Pareto, Priority, TopK, Tree
from archives.distances import Numbers

AXES = {"block": [8, 32, 128], "parallelism": ["serial", "threads", "simd"]}
GOALS = {"block": "min", "parallelism": ["simd", "threads"]}
EXACT_AND_SMALL = {"error": "min", "memory_bytes": "min"}
NEAR = Numbers(descriptors=["block"])

MAKERS = {
    "topk": partial(TopK, capacity=12),
    "topk of one": partial(TopK, capacity=1),
    "lineage": partial(Lineage, capacity=12),
    "lineage of one, with slack": partial(Lineage, capacity=1, slack=0.1),
    "map_elites": partial(MapElites, axes=AXES),
    "map_elites, deep": partial(MapElites, axes=AXES, depth=3),
    "map_elites, more cells than capacity": partial(MapElites, axes=AXES, depth=2, capacity=7),
    "priority": partial(Priority, capacity=10),
    "priority by upper bound": partial(Priority, capacity=10, priority="ucb", noise=0.5),
    "priority by time": partial(Priority, capacity=10, priority="time"),
    "priority of one": partial(Priority, capacity=1, priority="ucb"),
    "tree": partial(Tree, capacity=15),
    "tree of two": partial(Tree, capacity=2),
    "tree of one": partial(Tree, capacity=1),
    "pareto": partial(Pareto, objectives=GOALS, capacity=10),
    "pareto, exact and small": partial(Pareto, objectives=EXACT_AND_SMALL, capacity=8),
    "pareto of one": partial(Pareto, objectives=GOALS, capacity=1),
    "islands": partial(Islands, of=partial(MapElites, axes=AXES), interval=5, patience=20),
    "islands, star": partial(
        Islands, of=partial(TopK, capacity=3), migration="star", interval=2, migrants=2
    ),
    "islands, random, full": partial(
        Islands, of=Tree, capacity=9, count=2, most=3, migration="random", interval=3, patience=9
    ),
    "novelty": partial(Novelty, of=TopK, capacity=12, epsilon=0.4, distance=NEAR),
    "novelty of cells": partial(
        Novelty, of=partial(MapElites, axes=AXES, depth=2), epsilon=0.6, distance=NEAR
    ),
    "islands of novelty": partial(
        Islands, of=partial(Novelty, of=Pareto, epsilon=0.5, distance=NEAR), interval=4
    ),
}
