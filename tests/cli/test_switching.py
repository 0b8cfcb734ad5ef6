"""Another search on an existing run (promise 6).

Invariants:
1. For every archive that ships: a run replayed into it gives the slots that it has if it watched
   the run from the start.
2. `warm_start=RUN search=other` begins with the elites that the other archive would hold.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from archives import TopK
from evolve.cli import parts
from evolve.cli.config.compose import compose, to_plain
from evolve.cli.config.locate import config_dir
from evolve.cli.inputs import WARM, with_seeds
from evolve.core.protocols import Archive, Elite, Offer, described
from evolve.core.tunables import render
from evolve.search.engine import Search
from evolve.search.pipeline import Pipeline
from evolve.search.projection import project
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings

OPTIONS = sorted(path.stem for path in (config_dir() / "archive").glob("*.yaml"))


def empty(option: str) -> Archive:
    """A small one, so that programs lose their places."""
    config = to_plain(compose(["task=any", f"archive={option}", "archive.capacity=12"]))
    return parts.build_archive(config)


class Watched(TopK):
    """A run's archive, and others that are told the same, with what they want to know of texts."""

    def __init__(self, watchers: Mapping[str, Archive], source: Callable[[str], str]) -> None:
        super().__init__(capacity=8)
        self.watchers = watchers
        self.source = source

    def offer(self, elite: Elite) -> Offer:
        for watcher in self.watchers.values():
            watcher.offer(described(elite, watcher, partial(self.source, elite.program)))
        return super().offer(elite)

    def remove(self, program: str) -> bool:
        for watcher in self.watchers.values():
            watcher.remove(program)
        return super().remove(program)


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> tuple[Path, dict[str, Archive]]:
    """A run with lucky measurements that are taken back, and the archives that watched it."""
    path = tmp_path_factory.mktemp("watched") / "evolve.db"
    config = settings("name=demo", "operators=[default,remeasure]", "termination.evaluations=60")
    watchers = {option: empty(option) for option in OPTIONS}
    with Store.open(path, create=True) as store:
        task = synthetic_task()
        run = store.create_run(name="demo", task=task, config=config | {"audit": []}, seed=0)
        search = Search(
            store=store,
            run=run,
            archive=Watched(watchers, store.source),
            selection=parts.build_selection(config),
            operators=parts.build_operators(config),
        )
        judge = SyntheticEvaluator(noise=0.05)
        asyncio.run(Pipeline(search, judge, parts.build_termination(config)).run())
    return path, watchers


def stored(path: Path) -> tuple[Store, RunRow]:
    store = Store.open(path, read_only=True)
    return store, store.run("demo")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_replayed_run_gives_the_elites_of_an_archive_that_watched_from_the_start(
    option: str, watched
):
    path, watchers = watched
    store, run = stored(path)
    with store:
        slots = project(store, run, empty(option)).slots()
        offers = [elite for elite, _ in store.offers(run.id)]
    assert dict(slots) == dict(watchers[option].slots())
    assert slots
    assert any(elite.evaluations > 1 for elite in offers)


@pytest.mark.parametrize("search", ["greedy", "kernel_smith", "polca", "mcts"])
def test_a_warm_start_begins_with_what_the_other_archive_would_hold(search: str, watched):
    path, _ = watched
    config = settings(f"search={search}", f"warm_start={path}:demo", "device=cpu")
    store, run = stored(path)
    with store:
        held = project(store, run, parts.build_archive(config)).slots().values()
        wanted = {render(store.source(elite.program), elite.assignment) for elite in held}
    seeds = with_seeds(synthetic_task(), config).seeds
    assert seeds
    assert {*seeds} - {*synthetic_task().seeds} <= wanted
    assert len(seeds) <= WARM + len(synthetic_task().seeds)
