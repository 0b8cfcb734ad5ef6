"""The shipped conformance suites catch parts that break their contract."""

import random
from dataclasses import replace

import pytest

from archives import Islands, TopK
from evolve.core.program import Program
from evolve.core.protocols import AddStatus, Declined, Offer, Proposal
from evolve.testing.archives import ArchiveConformance
from evolve.testing.operators import OperatorConformance
from evolve.testing.selection import SelectionConformance


class Hoarder(TopK):
    """Holds more than its capacity."""

    @property
    def capacity(self):
        return 3


class Liar(TopK):
    """Says that every place was empty."""

    def offer(self, elite):
        offer = super().offer(elite)
        return Offer(AddStatus.NEW, offer.slot, offer.evicted) if offer else offer


class Silent(TopK):
    """Does not say whom it evicted."""

    def offer(self, elite):
        offer = super().offer(elite)
        return Offer(offer.status, offer.slot)


class Forgetful(TopK):
    """Loses everything when it is full."""

    def offer(self, elite):
        if len(self.slots()) == self.capacity:
            self.restore({})
        return super().offer(elite)


class Amnesiac(TopK):
    """Restores nothing."""

    def restore(self, slots):
        super().restore({})


class Clinging(TopK):
    """Does not let a program go."""

    def remove(self, program):
        return self._table.slot_of(program) is not None


class Moody(TopK):
    """Depends on more than the offers."""

    def offer(self, elite):
        return super().offer(elite) if random.random() < 0.5 else Offer(AddStatus.NOT_ADDED)


class Leaky(TopK):
    """Gives its own table away."""

    def slots(self):
        return self._table._elites


class Believer(TopK):
    """Keeps the best that it ever heard of a program."""

    def offer(self, elite):
        held = self._table.elite(elite.program)
        lower = held is not None and elite.fitness.value < held.fitness.value
        return Offer(AddStatus.NOT_ADDED) if lower else super().offer(elite)


class Smuggler(Islands):
    """Does not say who migrates."""

    def offer(self, elite):
        return replace(super().offer(elite), moves={})


class Narrow(TopK):
    """Raises for descriptors that it did not expect."""

    def offer(self, elite):
        elite.descriptors["block"]
        return super().offer(elite)


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (Hoarder, "test_it_never_holds_more_than_its_capacity"),
        (Liar, "test_an_offer_says_what_became_of_it"),
        (Silent, "test_an_offer_says_what_became_of_it"),
        (Forgetful, "test_the_best_elite_stays_until_a_better_one_comes"),
        (Amnesiac, "test_restoring_is_the_identity_and_the_future_is_the_same"),
        (Clinging, "test_a_program_can_be_taken_out_and_the_others_stay"),
        (Moody, "test_the_same_offers_give_the_same_slots_in_the_same_order"),
        (Leaky, "test_slots_are_a_snapshot"),
        (Narrow, "test_odd_descriptors_are_no_error"),
        (Believer, "test_what_is_known_of_a_held_program_replaces_what_was"),
        (Smuggler, "test_a_mirror_kept_from_offers_alone_equals_the_slots"),
    ],
)
def test_a_broken_archive_is_caught(broken, caught_by):
    class Suite(ArchiveConformance):
        def make(self):
            return Smuggler(of=TopK) if broken is Smuggler else broken(capacity=8)

    with pytest.raises((AssertionError, KeyError)):
        getattr(Suite(), caught_by)()


class Twice:
    """Selects one parent again and again."""

    def select(self, elites, count, rng):
        return tuple(elites[:1] * min(count, len(elites)))


class Turner:
    """Turns round what it was lent."""

    def select(self, population, count, rng):
        population.roots.reverse()
        return tuple(population[:count])


class Stateful:
    """Takes the next ones each time that it is asked."""

    asked = 0

    def select(self, population, count, rng):
        self.asked += 1
        return tuple(population[self.asked : self.asked + count])


class Ambient:
    """Draws from ambient randomness."""

    def select(self, elites, count, rng):
        return tuple(random.sample(elites, min(count, len(elites))))


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (Twice, "test_parents_are_elites_and_all_different"),
        (Turner, "test_the_population_is_left_alone"),
        (Stateful, "test_what_it_has_chosen_before_makes_no_difference"),
        (Ambient, "test_the_same_generator_gives_the_same_parents"),
    ],
)
def test_a_broken_selection_policy_is_caught(broken, caught_by):
    class Suite(SelectionConformance):
        def make(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Suite(), caught_by)()


class Counting:
    """Keeps state between calls."""

    parents = 0
    calls = 0

    def propose(self, context):
        Counting.calls += 1
        return Proposal(program=Program(f"x = {Counting.calls}"))


class Wild:
    """Proposes values outside of the space, from parents nobody gave it."""

    parents = 1

    def propose(self, context):
        if not context.parents:
            return Declined("")
        source = context.facts.source(context.parents[0].program)
        return Proposal(program=Program(source), assignment={"BLOCK": 17}, parents=("nobody",))


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (Counting, "test_the_same_context_twice_gives_the_same_answer"),
        (Wild, "test_a_proposal_renders_and_parses"),
        (Wild, "test_a_proposal_names_parents_that_the_archive_holds"),
    ],
)
def test_a_broken_operator_is_caught(broken, caught_by):
    class Suite(OperatorConformance):
        def make(self):
            return broken()

    with pytest.raises((AssertionError, ValueError)):
        getattr(Suite(), caught_by)()
