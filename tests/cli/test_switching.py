"""Another search on an existing run (promise 6).

Invariants:
1. For every archive that ships: a run replayed into it gives the slots that it has if it watched
   the run from the start.
2. `warm_start=RUN search=other` begins with exactly these, with all that is known of them, for no
   budget; a run that dies meanwhile goes on with it.
3. Where the verdicts do not hold, it begins with the best of them as seeds.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from archives import TopK
from evolve.app import components
from evolve.app.config.locate import config_dir
from evolve.app.inputs import WARM, take_over, with_seeds
from evolve.core.protocols import Archive, Elite, Offer, described, rank
from evolve.core.source.tunables import render
from evolve.search.archive_replay import project
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings
from tests.composing import composed
from tests.search.conftest import make_search, variants

OPTIONS = sorted(path.stem for path in (config_dir() / "archive").glob("*.yaml"))


def empty(option: str) -> Archive:
    """A small one, so that programs lose their places."""
    config = composed("task=any", f"archive={option}", "archive.capacity=12")
    return components.build_archive(config)


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
            selection=components.build_selection(config),
            operators=components.build_operators(config),
        )
        judge = SyntheticEvaluator(noise=0.05)
        asyncio.run(Pipeline(search, judge, components.build_termination(config)).run())
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


def taken_over(path: Path, store: Store, option: str, **changes) -> Search:
    """The search of a new run that has taken over the stored one, with another archive."""
    config = settings(f"warm_start={path}:demo", "device=cpu", f"store.path={store.location}")
    config |= {"opponents": {}, "audit": []} | changes
    task, steps = take_over(config, synthetic_task(), SyntheticEvaluator())
    run = store.create_run(name="new", task=task, config=config, seed=1, steps=steps)
    return search_of(store, run, config, option)


def search_of(store: Store, run: RunRow, config, option: str) -> Search:
    return Search(
        store=store,
        run=run,
        archive=empty(option),
        selection=components.build_selection(config),
        operators=components.build_operators(config),
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_warm_start_gives_the_elites_of_an_archive_that_watched_from_the_start(
    option: str, elsewhere: bool, watched, tmp_path
):
    path, watchers = watched
    store = Store.open(tmp_path / "other.db" if elsewhere else path, create=True)
    if not elsewhere:
        store.close()
        copy = tmp_path / "copy.db"
        with Store.open(path, read_only=True) as source:
            source.backup(copy)
        path, store = copy, Store.open(copy)
    with store:
        search = taken_over(path, store, option)
        assert store.progress(search.run.id).evaluations == 0
        store.claim(search.run.id)
        assert search.open_tickets() == []  # which tells them
        assert dict(search.archive.slots()) == dict(watchers[option].slots())
        assert store.slots(search.run.id) == dict(watchers[option].slots())
        progress = store.progress(search.run.id)
        assert (progress.evaluations, progress.device_time_s, progress.proposals) == (0, 0.0, 0)
        assert progress.best is not None


def test_a_run_that_died_while_it_took_over_goes_on_where_it_stood(watched, tmp_path):
    path, watchers = watched
    with Store.open(tmp_path / "other.db", create=True) as store:
        search = taken_over(path, store, "islands")
        store.claim(search.run.id)
        for ticket in store.open_tickets(search.run.id)[:20]:
            search.tell(ticket, ticket.evaluation)
        again = search_of(store, search.run, search.run.config, "islands")
        again.open_tickets()
        assert store.slots(search.run.id) == dict(watchers["islands"].slots())


def test_a_warm_start_goes_on_with_numbers_and_evaluations_of_its_own(watched, tmp_path):
    path, _ = watched
    source, run = stored(path)
    with source, Store.open(tmp_path / "other.db", create=True) as store:
        run_of = taken_over(path, store, "topk").run
        search = make_search(store, run_of, archive=empty("topk"), operators=variants())
        evaluator = SyntheticEvaluator(noise=0.05)
        rule = components.build_termination(settings("termination.evaluations=5"))
        outcome = asyncio.run(Pipeline(search, evaluator, rule).run())
        assert "evaluations" in outcome.reason
        assert store.progress(search.run.id).evaluations == 5
        numbers = [step.sequence for step in store.steps(search.run.id) if step.device_time_s]
        assert min(numbers) >= source.next_sequence(run.id) - 2
        first = project(source, run, empty("topk")).slots()
        best = max(elite.fitness.value for elite in first.values())
        assert search.leader.fitness.value > best - 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"store": {"reuse": False}},
        {"baseline": "compile"},
        {"opponents": {"file:mine.py": "x = 1"}},
    ],
    ids=["not to be reused", "another baseline", "an opponent"],
)
def test_verdicts_that_mean_something_else_are_not_taken_over(changes, watched):
    path, _ = watched
    config = settings(f"warm_start={path}:demo", "device=cpu") | {"opponents": {}} | changes
    task = synthetic_task()
    assert take_over(config, task, SyntheticEvaluator()) == (task, ())
    same = config | {"store": {"reuse": True}, "baseline": "eager", "opponents": {}}
    assert take_over(same, task, SyntheticEvaluator(device_class="another"))[1] == []
    assert take_over(same, task, SyntheticEvaluator())[1] != []


@pytest.mark.sample(2)
@pytest.mark.parametrize("search", ["greedy", "kernel_smith", "polca", "mcts"])
def test_where_verdicts_do_not_hold_the_seeds_are_what_the_other_archive_would_hold(
    search: str, watched
):
    path, _ = watched
    config = settings(f"search={search}", f"warm_start={path}:demo", "device=cpu")
    store, run = stored(path)
    with store:
        held = {
            elite.program: elite
            for elite in project(store, run, components.build_archive(config)).slots().values()
        }
        best = sorted(held.values(), key=rank)[:WARM]
        wanted = [render(store.source(elite.program), elite.assignment) for elite in best]
    assert wanted
    assert list(with_seeds(synthetic_task(), config).seeds)[: len(wanted)] == wanted
