"""The promises of every `RunStore`. Subclass, define `open`, and let pytest collect it.

class TestMine(StoreConformance):
    def open(self, folder):
        return MyStore(folder / "searches")
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evolve.core.errors import StoreError, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.model import (
    BY_HAND,
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
    Usage,
)
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import AddStatus, Elite, Failed, Offer, Proposal
from evolve.core.records import Judge, Ticket, TicketState
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import SteeringKind
from evolve.core.task import Task
from evolve.testing.archives import mirrored

TASK = Task(name="rows", source="class Model: pass\n", seeds=())
PLACES = 3
WORST = Reservation(tokens=100, usd=0.5)


def program(number: int) -> Program:
    """A program that no other number has."""
    return Program(f"SIZE = {number}\n\n\nclass ModelNew:\n    rows = {number}\n")


def verdict(speedup: float, *, fidelity: Fidelity = Fidelity.SEARCH) -> Evaluation:
    """A correct program that is so many times as fast as `eager`."""
    return Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=fidelity,
        task_revision=TASK.revision,
        device_class="test",
        evaluator_version="1",
        ratios={"eager": Ratio(speedup, speedup * 0.99, speedup * 1.01)},
        custom=True,
        suite=None,
        feedback=f"{speedup} times as fast",
        samples={"large": {"candidate": [speedup, 1.0]}},
        device_time_s=0.5,
    )


def wrong() -> Evaluation:
    """A program whose output differs."""
    return Evaluation(
        status=Status.WRONG_VALUE,
        stage=Stage.CORRECTNESS,
        fidelity=Fidelity.SEARCH,
        task_revision=TASK.revision,
        device_class="test",
        evaluator_version="1",
        custom=None,
        suite=None,
        device_time_s=0.25,
    )


@contextmanager
def raises(kind: type[Exception], words: str = "") -> Iterator[None]:
    """Assert that the block raises such an error with these words."""
    try:
        yield
    except kind as error:
        assert words in str(error), f"{error} does not say: {words}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


class Steps:
    """Takes whole steps of a run, with an archive of a few places that keep the fitter one."""

    def __init__(self, store: RunStore, run: int) -> None:
        self.store, self.run = store, run
        self.held: dict[str, Elite] = {}

    def judge(self, number: int, item: Evaluation, *parents: str) -> Ticket:
        """A ticket with a verdict, which is not told yet."""
        ticket = self.store.ask(self.run, "seed", parents)
        ticket = self.store.propose(ticket, Proposal(program=program(number), parents=parents))
        self.store.start_evaluation(ticket)
        return self.store.evaluated(ticket, item)

    def take(self, number: int, speedup: float, *parents: str) -> Ticket:
        """A whole step."""
        ticket = self.judge(number, verdict(speedup), *parents)
        elite = self.store.standing(self.run, ticket)
        assert elite is not None
        self.store.tell(ticket, elite, self.offer(elite))
        return ticket

    def offer(self, elite: Elite) -> Offer:
        """The archive's answer."""
        slot = f"place{elite.sequence % PLACES}"
        before = self.held.get(slot)
        if before is not None and before.fitness.value >= elite.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        evicted = None if before is None else before.program
        offer = Offer(AddStatus.NEW if before is None else AddStatus.IMPROVED, slot, evicted)
        self.held = mirrored(self.held, elite, offer)
        return offer


class StoreConformance:
    """The promises of `evolve.core.run_store.RunStore`."""

    def open(self, folder: Path) -> RunStore:
        """The store in a folder, made if it is missing; each call is another process's view."""
        raise NotImplementedError

    def begun(self, folder: Path) -> tuple[RunStore, int]:
        """The store with one run."""
        store = self.open(folder)
        return store, store.create_run(name="first", task=TASK, config={"key": [1]}, seed=7).id

    # Runs

    def test_a_run_is_found_by_name_and_the_newest_without_one(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        names = ("first", "second")
        made = [store.create_run(name=name, task=TASK, config={}, seed=0) for name in names]
        assert [store.run(name) for name in names] == made
        assert store.run() == made[-1]
        assert store.runs() == made

    def test_a_name_is_taken_once(self, tmp_path: Path) -> None:
        store, _ = self.begun(tmp_path)
        with raises(UsageError, "exists already"):
            store.create_run(name="first", task=TASK, config={}, seed=0)
        with raises(UsageError, "first"):
            store.run("nowhere")

    def test_one_process_continues_a_run(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        other = self.open(tmp_path)
        store.claim(run)
        with raises(UsageError, "being continued"):
            other.claim(run)
        with raises(StoreError):
            other.ask(run, "seed", ())
        with raises(StoreError):
            other.heartbeat(run, 1.0)
        store.heartbeat(run, 1.5)
        assert store.progress(run).wall_time_s == 1.5
        store.release(run, "finished", "enough")
        other.claim(run)
        assert other.ask(run, "seed", ()).sequence == 0
        other.release(run, "interrupted", "a test")
        assert (store.run().state, store.run().reason) == ("interrupted", "a test")

    # Tickets

    def test_a_ticket_has_one_way(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        ticket = store.ask(run, "seed", ())
        assert (ticket.sequence, ticket.state) == (0, TicketState.ASKED)
        with raises(StoreError):
            store.evaluated(ticket, verdict(2.0))
        ticket = store.propose(ticket, Proposal(program=program(1)))
        with raises(StoreError):
            store.propose(ticket, Proposal(program=program(2)))
        assert store.start_evaluation(ticket) == 1
        assert store.start_evaluation(ticket) == 2
        ticket = store.evaluated(ticket, verdict(2.0))
        assert store.open_tickets(run) == [store.ticket(run, 0)]
        store.tell(ticket, None, None)
        assert store.open_tickets(run) == []
        assert store.next_sequence(run) == 1

    def test_the_first_verdict_stays_and_telling_again_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        ticket = steps.take(1, 2.0)
        before = store.progress(run), store.slots(run), list(store.offers(run))
        kept = store.evaluated(ticket, wrong())
        assert kept.evaluation == verdict(2.0)
        store.tell(ticket, None, None)
        assert (store.progress(run), store.slots(run), list(store.offers(run))) == before

    def test_what_is_written_is_there_for_others_at_once(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        steps.take(1, 2.0)
        waiting = steps.judge(2, verdict(3.0), program(1).digest)
        other = self.open(tmp_path)
        assert other.slots(run) == steps.held
        (found,) = other.open_tickets(run)
        assert found == store.ticket(run, waiting.sequence)
        assert found.evaluation == verdict(3.0)
        assert other.source(program(2).digest) == program(2).source

    def test_a_failure_to_propose_is_a_step(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        store.propose(store.ask(run, "seed", ()), Failed("no idea"))
        (step,) = store.steps(run)
        assert (step.failure, step.program) == ("no idea", None)
        assert store.progress(run).proposals == 1

    def test_counters_follow_from_the_steps(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        for number, speedup in enumerate((1.5, 3.0, 2.0), start=1):
            steps.take(number, speedup)
        store.tell(steps.judge(4, wrong()), None, None)
        progress = store.progress(run)
        assert (progress.proposals, progress.evaluations, progress.screens) == (4, 4, 0)
        assert math.isclose(progress.device_time_s, 1.75)
        assert progress.best is not None
        assert progress.best.value == 3.0
        assert progress.evaluations_at_best == 2
        again = store.ask(run, VERIFY, ())
        again = store.propose(again, Proposal(program=program(2), fidelity=Fidelity.VERIFY))
        store.evaluated(again, verdict(2.9, fidelity=Fidelity.VERIFY))
        assert store.progress(run).evaluations == 4

    # Calls of models

    def test_a_call_is_charged_from_before_it_is_sent(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        request = ModelRequest(messages=(Message("user", "Faster."),), samples=2)
        one, two = store.request(run, "write", (), request, "m/one")
        call = store.begin_call(one, WORST)
        assert store.pending_calls(run) == [call]
        assert store.progress(run).tokens_reserved == WORST.tokens
        usage = Usage(prompt=4, completion=6)
        reply = ModelReply(
            status=CallStatus.COMPLETED, text="So.", usage=usage, cost_usd=0.25, model="one"
        )
        replied = store.end_call(call, reply)
        assert replied.state is TicketState.REPLIED
        assert replied.exchanges[0].reply.text == "So."
        assert store.end_call(call, ModelReply(status=CallStatus.FAILED)) == replied
        progress = store.progress(run)
        assert (progress.calls, progress.tokens, progress.tokens_reserved) == (1, 10, 0)
        assert progress.usd == 0.25
        unknown = store.begin_call(two, WORST)
        store.end_call(unknown, ModelReply(status=CallStatus.UNKNOWN))
        assert store.progress(run).tokens == 10 + WORST.tokens
        told = store.propose(replied, Proposal(program=program(1)), ReplyStatus.PROGRAM)
        assert told.state is TicketState.PROPOSED

    def test_a_recorded_reply_is_found_by_its_request(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        request = ModelRequest(messages=(Message("user", "Faster."),))
        (asked,) = store.request(run, "write", (), request, "m/one")
        assert store.recorded_reply(run, request.key, 0) is None
        store.answer(asked, ModelReply(status=CallStatus.COMPLETED, text="by hand"))
        found = store.recorded_reply(run, request.key, asked.sample)
        assert found is not None
        assert found.text == "by hand"

    def test_a_reply_by_hand_counts_for_the_model_that_it_names(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        request = ModelRequest(messages=(Message("user", "Faster."),), model=BY_HAND, samples=2)
        names = ("agent", "")
        for number, asked in enumerate(store.request(run, "write", (), request, BY_HAND)):
            reply = ModelReply(status=CallStatus.COMPLETED, text="So.", model=names[number])
            proposal = Proposal(program=program(number))
            ticket = store.propose(store.answer(asked, reply), proposal, ReplyStatus.PROGRAM)
            store.evaluated(ticket, verdict(2.0))
        costs = [(cost.model, cost.calls, cost.evaluations) for cost in store.costs(run)]
        assert costs == [("agent", 1, 1), (BY_HAND, 1, 1)]
        assert store.models_behind(program(0).digest) == {"agent"}
        assert store.models_behind(program(1).digest) == {BY_HAND}

    # Facts, archive, lineage

    def test_slots_follow_from_the_offers(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        for number in range(1, 30):
            steps.take(number, 1.0 + math.sin(number) ** 2)
        assert store.slots(run) == steps.held
        held: dict[str, Elite] = {}
        for elite, offer in store.offers(run):
            held = mirrored(held, elite, offer)
        assert held == steps.held
        assert store.elite(run, program(1).digest) is not None

    def test_evaluations_of_one_instance_are_pooled(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        steps.take(1, 2.0)
        ticket = store.ask(run, "again", ())
        ticket = store.propose(ticket, Proposal(program=program(1), is_reevaluation=True))
        ticket = store.evaluated(ticket, verdict(8.0))
        elite = store.standing(run, ticket)
        assert elite is not None
        assert elite.evaluations == 2
        assert math.isclose(elite.fitness.value, math.log(4.0))

    def test_programs_and_verdicts_are_shared_between_runs(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        Steps(store, run).take(1, 2.0)
        other = store.create_run(name="second", task=TASK, config={}, seed=0).id
        key = (instance_digest(program(1).digest, {}), TASK.revision, "test", "1", "search")
        assert store.cached(*key) == verdict(2.0)
        assert not store.seen(other, key[0])
        assert store.seen(run, key[0])

    def test_a_program_descends_from_what_it_was_made_of(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        steps.take(1, 2.0)
        for number in range(2, 6):
            steps.take(number, 2.0, program(number - 1).digest)
        digests = [program(number).digest for number in range(1, 6)]
        assert [step.program for step in store.ancestors(run, digests[-1])] == digests
        assert store.line_to(run, digests[-1]) == list(range(5))
        visits = store.visits(run, digests[-1])
        assert list(visits) == digests[::-1]
        assert visits[digests[0]].subtree == 4

    def test_a_run_may_begin_with_the_verdicts_of_another(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        steps = Steps(store, run)
        steps.take(1, 2.0)
        steps.take(2, 3.0, program(1).digest)
        taken = store.judged_steps(run, TASK.revision, Judge("test", "1"))
        assert [step.sequence for step in taken] == [0, 1]
        assert store.judged_steps(run, TASK.revision, Judge("other", "1")) == []
        second = store.create_run(name="second", task=TASK, config={}, seed=0, steps=taken)
        assert [ticket.sequence for ticket in store.open_tickets(second.id)] == [0, 1]
        assert store.progress(second.id).evaluations == 0

    def test_equal_runs_have_equal_canonical_dumps(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        other = store.create_run(name="second", task=TASK, config={}, seed=7).id
        for each in (run, other):
            steps = Steps(store, each)
            for number in range(1, 8):
                steps.take(number, 1.0 + number / 7)
        dumps = [list(store.dump(each, canonical=True)) for each in (run, other)]
        assert dumps[0] == dumps[1]
        assert len(dumps[0]) > 14

    def test_steering_is_kept_and_taken_once(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        store.claim(run)
        note = store.steer(run, SteeringKind.NOTE, "wider")
        store.steer(run, SteeringKind.PAUSE, due=3)
        store.steer(run, SteeringKind.NOTE, "narrower", due=9)
        assert store.steering(run, due=0) == [note]
        store.take_steering(run, note, 2, {"baseline": "eager", "changed": True})
        assert store.steering(run, due=2) == []
        assert [event.sequence for event in store.steering(run)] == [2, None, None]
        assert [event.kind for event in store.steering(run, due=3)] == [SteeringKind.PAUSE]
        assert store.steering_counts(run) == (3, 1)
        assert store.run().config["changed"]
        other = self.open(tmp_path)
        with raises(StoreError, "another process"):
            other.take_steering(run, store.steering(run)[1], 4)
        assert other.steering(run) == store.steering(run)

    def test_a_backup_is_whole(self, tmp_path: Path) -> None:
        store, run = self.begun(tmp_path)
        Steps(store, run).take(1, 2.0)
        store.backup(tmp_path / "copy")
        with raises(UsageError, "exists already"):
            store.backup(tmp_path / "copy")
