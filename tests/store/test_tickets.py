"""Invariants.

1. asked -> proposed -> evaluated -> told, or asked -> told with a failure; nothing else.
2. `evaluated` and `tell` change nothing when they come again.
3. What a method returned is what another process reads.
4. The counters equal a recount of the steps.
"""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from evolve.core.errors import StoreError, UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.protocols import AddStatus, Failed, Offer, Proposal
from evolve.store import Store, Ticket, TicketState
from tests.store.facts import (
    SmallArchive,
    elite,
    evaluation,
    new_run,
    program,
    ratio,
    recount,
    take_step,
)

BACK_ENDS = ("sqlite", "postgresql")


def open_elsewhere(store: Store, run: int) -> list[Ticket]:
    with Store.open(store.location, read_only=True) as other:
        return other.open_tickets(run)


def test_each_state_is_what_another_process_reads(store: Store) -> None:
    run = new_run(store).id
    parent = take_step(store, run, SmallArchive(), 1).proposal
    assert parent is not None
    parents = (parent.program.digest,)

    ticket = store.ask(run, "tune", parents)
    assert (ticket.sequence, ticket.state, ticket.parents) == (1, TicketState.ASKED, parents)
    assert open_elsewhere(store, run) == [ticket]

    proposal = Proposal(
        program=program(2),
        assignment={"BLOCK": 64, "FAST": True, "EPS": 0.5, "MODE": "row"},
        fidelity=Fidelity.SCREEN,
        parents=parents,
        note="halved",
    )
    ticket = store.propose(ticket, proposal)
    assert ticket.proposal == proposal
    assert open_elsewhere(store, run) == [ticket]

    assert store.start_evaluation(ticket) == 1
    assert store.start_evaluation(ticket) == 2
    ticket = store.evaluated(ticket, evaluation(1.2, fidelity=Fidelity.SCREEN))
    assert (ticket.state, ticket.attempts) == (TicketState.EVALUATED, 2)
    assert open_elsewhere(store, run) == [ticket]

    store.tell(ticket, None, None)
    assert open_elsewhere(store, run) == []


def test_a_failed_proposal_closes_its_ticket_and_counts(store: Store) -> None:
    run = new_run(store).id
    ticket = store.propose(store.ask(run, "seed", ()), Failed("the same instance as step 0"))
    assert ticket.state is TicketState.TOLD
    store.tell(ticket, None, None)
    assert store.open_tickets(run) == []
    assert store.step(run, 0).failure == "the same instance as step 0"
    assert store.proposals(run, "seed") == store.progress(run).proposals == 1
    with pytest.raises(StoreError, match=r"evaluated for ticket 0 of run 'first': it is told"):
        store.evaluated(ticket, evaluation())


def test_evaluating_and_telling_again_changes_nothing(store: Store) -> None:
    run = new_run(store).id
    ticket = store.propose(store.ask(run, "seed", ()), Proposal(program=program(1)))
    first = store.evaluated(ticket, evaluation(1.5))
    assert store.evaluated(ticket, evaluation(9.0)) == first
    offer = Offer(AddStatus.NEW, "a")
    store.tell(first, elite(first, evaluation(1.5)), offer)
    before = list(store.dump(run))
    store.tell(first, elite(first, evaluation(1.5)), Offer(AddStatus.NEW, "b"))
    assert store.evaluated(ticket, evaluation(9.0)).state is TicketState.TOLD
    assert list(store.dump(run)) == before
    assert store.progress(run).evaluations == 1


def test_a_transition_out_of_order_is_refused_and_leaves_no_trace(store: Store) -> None:
    run = new_run(store).id
    asked = store.ask(run, "seed", ())
    for illegal in (
        lambda: store.start_evaluation(asked),
        lambda: store.evaluated(asked, evaluation()),
        lambda: store.tell(asked, None, None),
    ):
        with pytest.raises(StoreError, match="it is asked, not"):
            illegal()
    proposed = store.propose(asked, Proposal(program=program(1)))
    with pytest.raises(StoreError, match="it is proposed, not asked"):
        store.propose(asked, Proposal(program=program(2)))
    with pytest.raises(StoreError, match="it is proposed, not evaluated"):
        store.tell(proposed, None, None)
    assert store.open_tickets(run) == [proposed]
    assert store.progress(run) == recount(store, run)


def test_a_parent_that_was_never_stored_is_refused_whole(store: Store) -> None:
    run = new_run(store).id
    with pytest.raises(UsageError, match="no program"):
        store.ask(run, "tune", (program(5).digest,))
    assert list(store.steps(run)) == []
    assert store.ask(run, "tune", ()).sequence == 0


def test_an_elite_without_its_offer_is_a_mistake_of_the_caller(store: Store) -> None:
    run = new_run(store).id
    ticket = store.propose(store.ask(run, "seed", ()), Proposal(program=program(1)))
    ticket = store.evaluated(ticket, evaluation())
    with pytest.raises(ValueError, match="both"):
        store.tell(ticket, elite(ticket, evaluation()), None)
    assert store.open_tickets(run) == [ticket]


def test_the_best_is_strict_and_at_full_fidelity(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()
    take_step(store, run, archive, 1, judged=evaluation(1.2))
    take_step(store, run, archive, 2, judged=evaluation(9.0, fidelity=Fidelity.SCREEN))
    take_step(store, run, archive, 3, judged=evaluation(8.0, custom=None))
    take_step(store, run, archive, 4, judged=evaluation(None, status=Status.TIMEOUT))
    progress = store.progress(run)
    assert progress.best == ratio(1.2)
    assert (progress.evaluations, progress.screens, progress.evaluations_at_best) == (3, 1, 1)
    assert progress.device_time_s == 4 * 0.25


def test_creeping_within_the_noise_does_not_count_as_improvement(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()
    for number, speedup in enumerate((1.000, 1.005, 1.010, 1.015, 1.030, 1.031), start=1):
        take_step(store, run, archive, number, judged=evaluation(speedup))
    progress = store.progress(run)
    assert progress.best == ratio(1.031)
    assert progress.evaluations_at_best == 5


def test_the_best_is_against_the_baseline_of_the_run(store: Store) -> None:
    run = new_run(store, baseline="compile").id
    ratios = {"eager": ratio(3.0), "compile": ratio(1.1)}
    take_step(store, run, SmallArchive(), 1, judged=evaluation(ratios=ratios))
    take_step(store, run, SmallArchive(), 2, judged=evaluation(4.0))
    assert store.progress(run).best == ratio(1.1)


class Tickets(RuleBasedStateMachine):
    """Any order of calls: legal ones move a model on, illegal ones are refused."""

    directory: Path

    @initialize()
    def begin(self) -> None:
        self.store = Store.open(self.directory / "machine.db", create=True)
        self.run = new_run(self.store, f"run{len(self.store.runs())}").id
        self.tickets: list[Ticket] = []
        self.judged: list[int] = []  # by sequence, in order of the verdicts

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    @rule()
    def ask(self) -> None:
        self.tickets.append(self.store.ask(self.run, "tune", ()))

    @rule(data=st.data(), action=st.sampled_from(["propose", "fail", "start", "judge", "tell"]))
    def act(self, data: st.DataObject, action: str) -> None:
        if not self.tickets:
            return
        place = data.draw(st.integers(0, len(self.tickets) - 1))
        ticket = self.tickets[place]
        failed = bool(ticket.failure)
        allowed = {
            "propose": ticket.state is TicketState.ASKED,
            "fail": ticket.state is TicketState.ASKED,
            "start": ticket.state is TicketState.PROPOSED,
            "judge": ticket.state is not TicketState.ASKED and not failed,
            "tell": ticket.state in (TicketState.EVALUATED, TicketState.TOLD),
        }[action]
        if allowed:
            self.tickets[place] = self._do(ticket, action)
        else:
            with pytest.raises(StoreError):
                self._do(ticket, action)

    def _do(self, ticket: Ticket, action: str) -> Ticket:
        store = self.store
        if action == "propose":
            return store.propose(ticket, Proposal(program=program(ticket.sequence)))
        if action == "fail":
            return store.propose(ticket, Failed("nothing came"))
        if action == "start":
            store.start_evaluation(ticket)
            return self._stored(ticket)
        if action == "judge":
            judged = store.evaluated(ticket, evaluation(1 + ticket.sequence / 10))
            if ticket.sequence not in self.judged:
                self.judged.append(ticket.sequence)
            return judged
        store.tell(ticket, None, None)
        return self._stored(ticket)

    def _stored(self, ticket: Ticket) -> Ticket:
        for stored in self.store.open_tickets(self.run):
            if stored.id == ticket.id:
                return stored
        return self.store.evaluated(ticket, evaluation()) if ticket.evaluation else ticket

    @invariant()
    def open_tickets_are_those_not_told(self) -> None:
        if hasattr(self, "tickets"):
            by_number = {ticket.sequence: ticket for ticket in self.tickets}
            waiting = [number for number in by_number if number not in self.judged]
            expected = [by_number[number] for number in (*self.judged, *waiting)]
            assert self.store.open_tickets(self.run) == [
                ticket for ticket in expected if ticket.state is not TicketState.TOLD
            ]

    @invariant()
    def counters_match_the_tickets(self) -> None:
        if hasattr(self, "tickets"):
            progress = self.store.progress(self.run)
            assert progress.proposals == sum(t.state is not TicketState.ASKED for t in self.tickets)
            assert progress.evaluations == sum(t.evaluation is not None for t in self.tickets)


@pytest.mark.slow
def test_any_order_of_calls_keeps_the_states_and_counters(tmp_path: Path) -> None:
    machine = type("TicketsHere", (Tickets,), {"directory": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=25, stateful_step_count=25, deadline=None, database=None),
    )


def test_a_program_of_a_transaction_that_failed_is_no_parent_later(store: Store) -> None:
    run = new_run(store).id
    lost, kept, child = program(1), program(2), program(3)
    with pytest.raises(UsageError, match="no program"):
        store.record(run, "tune", (), Proposal(program=lost, parents=("0" * 64,)))
    store.record(run, "tune", (), Proposal(program=kept))  # has the id that the other one had
    with pytest.raises(UsageError, match=f"no program '{lost.digest}'"):
        store.record(run, "tune", (), Proposal(program=child, parents=(lost.digest,)))
    with pytest.raises(UsageError, match=f"no program '{lost.digest}'"):
        store.source(lost.digest)
    assert store.source(kept.digest) == kept.source
