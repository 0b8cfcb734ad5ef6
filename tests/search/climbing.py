"""Whole searches of landscapes, for tests and benchmarks."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from archives import Tree
from evolve.core.protocols import Archive, SelectionPolicy
from evolve.search.engine import Search
from evolve.search.execution.verification import verify_champion
from evolve.search.schedule import Scheduled
from evolve.store import RunRow, Store, Ticket
from evolve.testing.landscapes import Landscape
from evolve.testing.landscapes_parts import LandscapeEvaluator, Mutate, climb
from operators import Seed

_numbers = count()


def operators(landscape: Landscape, **others: Scheduled) -> dict[str, Scheduled]:
    """The seed, small changes of one program, and what else is given."""
    return {
        "seed": Scheduled(operator=Seed(), weight=float("inf")),
        "mutate": Scheduled(operator=Mutate(landscape=landscape)),
        **others,
    }


def start(store: Store, landscape: Landscape, seed: int) -> RunRow:
    """A run of its own."""
    return store.create_run(
        name=f"run-{next(_numbers)}",
        task=landscape.task(),
        config={"baseline": "eager"},
        seed=seed,
    )


def go_on(
    store: Store,
    run: RunRow,
    landscape: Landscape,
    selection: SelectionPolicy,
    *,
    evaluations: int,
    archive: Callable[[], Archive] = Tree,
    others: Mapping[str, Scheduled] | None = None,
    **parts: Any,
) -> Search:
    """A search of the run, as if it were resumed, after so many further evaluations."""
    search = Search(
        store=store,
        run=run,
        archive=archive(),
        selection=selection,
        operators=operators(landscape, **(others or {})),
        **parts,
    )
    climb(search, LandscapeEvaluator(landscape=landscape, seed=run.seed), evaluations)
    return search


def climbed(
    store: Store,
    landscape: Landscape,
    selection: SelectionPolicy,
    *,
    seed: int,
    evaluations: int,
    **parts: Any,
) -> Search:
    """A search after so many evaluations, in a run of its own."""
    run = start(store, landscape, seed)
    return go_on(store, run, landscape, selection, evaluations=evaluations, **parts)


def verified(search: Search, landscape: Landscape) -> None:
    """Let the leader stand its verification."""
    judge = LandscapeEvaluator(landscape=landscape, seed=search.run.seed)

    async def run_alone(ticket: Ticket, opponents: Mapping[str, str]) -> None:
        search.tell(ticket, judge.judge(search.request(ticket, opponents)))

    asyncio.run(verify_champion(search, run_alone, lambda: False))


def progress(search: Search, landscape: Landscape) -> float:
    """How far the leader has really come: 0 is the start, 1 the optimum."""
    leader = search.leader
    return landscape.progress(search.store.source(leader.program)) if leader else 0.0
