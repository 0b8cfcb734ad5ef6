"""Invariants of what selection policies see:

1. It follows the archive, whatever its offers move, and equals one made afresh from its slots.
2. Visits equal a recount of the run's steps, and a resumed run sees the same.
3. Every held elite is below its nearest held ancestor, evicted ones and those that return included.
"""

import math
import random
from collections.abc import Iterator

from archives import MapElites, TopK
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import AddStatus, Context, Elite, Failed, Offer, Proposal, Visits, rank
from evolve.search.engine import Search
from evolve.search.population import LivePopulation
from evolve.search.schedule import Scheduled
from evolve.search.selection import Tournament
from evolve.store import RunRow, Store
from evolve.testing.parts import make_elite
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from operators import Remeasure
from tests.search.conftest import make_search, operators


class Children:
    """Makes new programs of its parent; every fifth comes to nothing."""

    parents = 1

    def propose(self, context: Context) -> Proposal | Failed:
        if context.sequence % 5 == 4:
            return Failed("nothing came of it")
        parents = tuple(parent.program for parent in context.parents)
        size = context.rng.choice([16, 32, 64, 128, 256])
        source = SEED_SOURCE.replace("BLOCK = 16", f"BLOCK = {size}")
        return Proposal(program=Program(f"{source}\nCHILD = {context.sequence}\n"), parents=parents)


def breeding(store: Store, run: RunRow, *, again: Scheduled | None = None, **changes) -> Search:
    parts = {"seed": operators()["seed"], "children": Scheduled(operator=Children())}
    if again is not None:
        parts["again"] = again
    return make_search(store, run, operators=parts, **changes)


def step(search: Search, judge: SyntheticEvaluator) -> None:
    ticket = search.ask()
    assert ticket is not None
    if ticket.proposal is not None:
        search.tell(ticket, judge.judge(search.request(ticket)))


def seen(held: LivePopulation) -> dict[str, object]:
    """All that a policy can find out."""
    return {
        "elites": list(held),
        "islands": {name: list(elites) for name, elites in held.islands.items()},
        "slots": [held.slot(elite.program) for elite in held],
        "visits": [held.visits(elite.program) for elite in held],
        "children": [list(held.children(elite.program)) for elite in held],
        "roots": list(held.roots),
    }


def makers(store: Store, run: RunRow) -> dict[str, str | None]:
    """The main parent of every program, from the steps."""
    found: dict[str, str | None] = {}
    for each in store.steps(run.id):
        if each.program is not None:
            found.setdefault(each.program, next(iter(each.parents), None))
    return found


def line(program: str | None, parents: dict[str, str | None]) -> Iterator[str]:
    while program is not None:
        yield program
        program = parents[program]


def recount(store: Store, run: RunRow) -> dict[str, Visits]:
    """Visits by their definition, from the steps alone; tickets are told in order here."""
    parents, counts = makers(store, run), dict[str, dict]()
    for each in store.steps(run.id):
        ticket = store.ticket(run.id, each.sequence)
        ratio = (
            each.ratios.get("eager") if each.custom and each.fidelity is Fidelity.SEARCH else None
        )
        score = None if ratio is None else ratio.log().value
        for depth, program in enumerate(line(next(iter(ticket.parents), None), parents)):
            count = counts.setdefault(program, vars_of(Visits()))
            if not depth:
                count["asked"] += 1
                count["told"] += 1
                count["failed"] += each.status is not Status.CORRECT
            count["subtree"] += 1
            rises = score is not None and (count["best"] is None or score > count["best"])
            count["stale"] = 0 if rises else count["stale"] + 1
            if score is not None:
                count["scored"] += 1
                count["value"] += score
                count["best"] = score if rises else count["best"]
    return {program: Visits(**count) for program, count in counts.items()}


def vars_of(visits: Visits) -> dict:
    return {name: getattr(visits, name) for name in Visits.__slots__}


def test_visits_equal_a_recount_of_the_steps(store, run):
    search = breeding(store, run, archive=TopK(capacity=8), selection=Tournament(size=2))
    judge = SyntheticEvaluator(failures={Status.WRONG_VALUE: 0.2})
    for _ in range(60):
        step(search, judge)
        assert search.population.visits("none") == Visits()  # followed from the first step on
    expected = recount(store, run)
    assert any(visits.failed for visits in expected.values())
    for elite in search.population:
        assert search.population.visits(elite.program) == expected.get(elite.program, Visits())


def test_a_resumed_run_sees_what_the_first_one_would_have_seen(store, run):
    search = breeding(store, run, archive=TopK(capacity=6))
    judge = SyntheticEvaluator()
    for number in range(50):
        step(search, judge)
        if number % 10 == 9:
            fresh = breeding(store, run, archive=TopK(capacity=6))
            assert seen(fresh.population) == seen(search.population)


def test_a_resumed_run_sees_what_was_measured_again(store, run):
    again = {"again": Scheduled(operator=Remeasure(confirm=3, share=0.5), weight=math.inf)}
    search = breeding(store, run, archive=TopK(capacity=6), **again)
    judge = SyntheticEvaluator(noise=0.3, failures={Status.WRONG_VALUE: 0.1})
    for _ in range(40):
        step(search, judge)
        assert search.population.visits("none") == Visits()  # followed from the first step on
        fresh = breeding(store, run, archive=TopK(capacity=6), **again)
        assert seen(fresh.population) == seen(search.population)
    known = {elite.program: elite.fitness.value for elite, _ in store.offers(run.id)}
    parents = makers(store, run)
    assert max(elite.evaluations for elite in search.population) > 2
    for elite in search.population:
        below = [known[each] for each in known if elite.program in [*line(each, parents)][1:]]
        assert search.population.visits(elite.program).best == max(below, default=None)


def test_children_are_below_their_nearest_held_ancestor(store, run):
    search = breeding(store, run, archive=TopK(capacity=5), selection=Tournament(size=1))
    for _ in range(60):
        step(search, SyntheticEvaluator(noise=0.2))
        held, parents = search.population, makers(store, run)
        programs = {elite.program for elite in held}
        below: dict[str | None, set[str]] = {}
        for elite in held:
            ancestors = list(line(elite.program, parents))[1:]
            nearest = next((each for each in ancestors if each in programs), None)
            below.setdefault(nearest, set()).add(elite.program)
        assert {elite.program for elite in held.roots} == below.get(None, set())
        for program in programs:
            children = {elite.program for elite in held.children(program)}
            assert children == below.get(program, set())


def test_a_ticket_under_way_is_asked_and_not_told(store, run):
    search = breeding(store, run)
    step(search, SyntheticEvaluator())
    parent = search.leader.program
    assert search.population.visits(parent) == Visits()
    ticket = search.ask()
    assert search.population.visits(parent) == Visits(asked=1, pending=1)
    search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))
    told = search.population.visits(parent)
    assert (told.asked, told.told, told.subtree, told.scored, told.stale) == (1, 1, 1, 1, 0)


def test_a_policy_is_told_whose_turn_it_is(store, run):
    turns = []

    class Watching:
        def select(self, population, count, rng):
            turns.append(population.turn)
            return tuple(population[:count])

    search = breeding(store, run, selection=Watching())
    for _ in range(4):
        step(search, SyntheticEvaluator())
    assert sorted(set(turns)) == [0, 1, 2, 3]


class Roaming:
    """Random offers over random places, and what stands there by the definition of `Offer`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slots: dict[str, Elite] = {}
        self.number = 0

    def next(self) -> tuple[Elite, Offer]:
        self.number += 1
        program = f"p{self.rng.randrange(12)}"
        speedup = self.rng.choice([1.0, 1.5, 2.0])
        elite = make_elite(program, speedup=speedup, sequence=self.number)
        held = {each.program for each in self.slots.values()}
        if self.rng.random() < 0.2:
            if not held:
                return elite, Offer(AddStatus.NOT_ADDED)
            gone = self.rng.choice(sorted(held))
            return elite, self._apply(elite, Offer(AddStatus.NOT_ADDED, evicted=gone))
        places = [f"{island}/{n}" for island in range(3) for n in range(3)]
        slot, *others = self.rng.sample(places, 4)
        movers = sorted({*held, program})
        moves = {place: self.rng.choice([None, *movers]) for place in others}
        return elite, self._apply(elite, Offer(AddStatus.NEW, slot, None, moves))

    def _apply(self, elite: Elite, offer: Offer) -> Offer:
        known = {each.program: each for each in self.slots.values()}
        if offer:
            known[elite.program] = elite
        gone = {offer.evicted, elite.program if offer else None}
        self.slots = {slot: each for slot, each in self.slots.items() if each.program not in gone}
        if offer.slot is not None:
            self.slots[offer.slot] = elite
        for place, program in offer.moves.items():
            self.slots.pop(place, None)
            if program is not None:
                self.slots[place] = known[program]
        return offer


def test_it_follows_offers_that_move_programs_over_several_places(store, run):
    for seed in range(20):
        roaming, held = Roaming(seed), LivePopulation(store, run.id, {})
        assert not held.islands
        for _ in range(40):
            held.update(*roaming.next())
            programs = {elite.program: elite for elite in roaming.slots.values()}
            assert list(held) == sorted(programs.values(), key=rank)
            assert all(held.elite(program) == elite for program, elite in programs.items())
            afresh = LivePopulation(store, run.id, roaming.slots)
            assert {name: list(of) for name, of in held.islands.items()} == {
                name: list(of) for name, of in afresh.islands.items()
            }
            assert [held.slot(each.program) for each in held] == [
                min(slot for slot, elite in roaming.slots.items() if elite == each) for each in held
            ]


def test_places_without_islands_are_one(store, run):
    search = breeding(store, run, archive=MapElites())
    for _ in range(10):
        step(search, SyntheticEvaluator())
    assert list(search.population.islands) == [""]
    assert list(search.population.islands[""]) == list(search.population)


def test_a_program_has_an_island_and_of_several_each_in_turn(store, run):
    speedups = {"a": 1.0, "b": 2.0, "both": 3.0, "c": 4.0}
    elites = {name: make_elite(name, speedup=speedup) for name, speedup in speedups.items()}
    homes = {"x": ("a", "b", "both"), "y": ("both",), "z": ("c",)}
    slots = {
        f"{island}/{number}": elites[program]
        for island, programs in homes.items()
        for number, program in enumerate(programs)
    }
    held = LivePopulation(store, run.id, slots)

    def islands(program: str | None) -> list[str]:
        found = (held.island(program, turn) for turn in range(6))
        return ["".join(elite.program for elite in elites) for elites in found]

    assert islands("a") == islands("b") == 6 * ["bothba"]
    assert islands("c") == 6 * ["c"]
    assert islands("both")[:2] == ["bothba", "both"] == islands("both")[3:5]
    assert set(islands("both")) == {"bothba", "both"}
    assert islands(None) == 2 * ["bothba", "both", "c"]
    assert islands("gone") == 6 * [""]


def test_without_islands_a_program_has_none(store, run):
    held = LivePopulation(store, run.id, {"0": make_elite("a")})
    assert held.island("a", 0) is None
    assert held.island(None, 0) is None
