"""People steer a search that is under way, by events of its run.

1. An event holds from the step that took it, for good: after a resume and in a replay too.
2. Pinned programs are parents, banned ones are not; a note is in every prompt.
3. A pause costs no time of the run; a raised limit and an end are those of the run.
4. What cannot be meant is refused in one line, and nothing is stored.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from evolve.core.errors import UsageError
from evolve.core.lineage import INJECTED, VERIFY
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Proposal
from evolve.core.run_store.steering import SteeringKind, steered
from evolve.evaluation import ReplayEvaluator
from evolve.report.run.facts import gather
from evolve.report.run.reproduce import commands
from evolve.search.execution.pipeline import MAX_FAILURES, Outcome, Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.steering import (
    limits_at_start,
    repeat,
    resumed_limits,
    steer,
)
from evolve.search.termination import Raisable, from_config
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from evolve.trajectories.flat import flat
from evolve.trajectories.steps import steps
from operators import Seed
from operators.llm.rewrite import RewriteFull
from tests.search.conftest import make_search
from tests.search.models import ScriptedModel, answer

MINE = f"{SEED_SOURCE}\n\nMINE = 1\n"
Told = Callable[[int], None]


class Children:
    """Changes the text of the main parent, for ever."""

    parents = 1

    def propose(self, context: Context) -> Proposal | Declined:
        if not context.parents:
            return Declined("there is no parent")
        source = f"{SEED_SOURCE}\n\nCHILD = {context.sequence}\n"
        main = context.parents[0].program
        return Proposal(program=Program(source), parents=(main,))


def steps_of_two_kinds() -> dict[str, Scheduled]:
    return {
        "seed": Scheduled(operator=Seed(), weight=float("inf")),
        "children": Scheduled(operator=Children()),
    }


def searched(
    store: Store,
    run: RunRow,
    told: Told = lambda number: None,
    *,
    limits: dict[str, object] | None = None,
    **parts: object,
) -> Outcome:
    """A session of the run; `told` is called after each verdict, with their number."""
    count = 0
    judge = parts.pop("judge", None) or SyntheticEvaluator()
    session = {"serial": True, "restarted": parts.pop("restarted", False)}

    def listen(_: object) -> None:
        nonlocal count
        count += 1
        told(count)

    async def body() -> Outcome:
        rule = Raisable(limits or {"evaluations": 12}, from_config)
        search = make_search(store, run, **({"operators": steps_of_two_kinds()} | parts))
        return await Pipeline(search, judge, rule, listeners=[listen], **session).run()

    return asyncio.run(body())


def by_a_person(store: Store, after: int, *requests: tuple[str, str]) -> Told:
    """Requests by another process than the search's, once it has told some steps."""

    def told(count: int) -> None:
        if count == after:
            with Store.open(store.location) as other:
                for kind, value in requests:
                    steer(other, other.run(), kind, value)

    return told


def parents_after(store: Store, run: RunRow) -> tuple[int, list[str]]:
    """The step that took the last event, and the main parents of children from there on."""
    taken = store.steering(run.id)[-1].sequence
    assert taken is not None
    steps = [step for step in store.steps(run.id, after=taken - 1) if step.operator == "children"]
    return taken, [step.parents[0] for step in steps]


def test_a_banned_program_is_no_parent_from_then_on(store: Store, run: RunRow) -> None:
    searched(store, run, by_a_person(store, 5, ("ban", "0")))
    _, parents = parents_after(store, run)
    banned = store.step(run.id, 0).program
    before = [step.parents[0] for step in store.steps(run.id) if step.operator == "children"]
    assert banned in before
    assert len(parents) >= 6
    assert banned not in parents


def test_with_every_program_banned_the_search_goes_on_without_a_parent(
    store: Store, run: RunRow
) -> None:
    requests = [("ban", str(number)) for number in range(3)]
    outcome = searched(store, run, by_a_person(store, 3, *requests), limits={"evaluations": 6})
    assert "6 of 6" in outcome.reason or "nothing is left" in outcome.reason


def test_a_pinned_program_is_the_parent_until_it_is_released(store: Store, run: RunRow) -> None:
    def told(count: int) -> None:
        by_a_person(store, 4, ("pin", "2"))(count)
        by_a_person(store, 8, ("release", "2"))(count)

    searched(store, run, told, limits={"evaluations": 14})
    pinned, released = (event.sequence for event in store.steering(run.id))
    program = store.step(run.id, 2).program
    steps = list(store.steps(run.id))
    assert {step.parents for step in steps[pinned:released]} == {(program,)}
    assert {step.parents for step in steps[released:]} != {(program,)}


def test_an_injected_program_is_judged_as_a_step(store: Store, run: RunRow) -> None:
    searched(store, run, by_a_person(store, 3, ("program", MINE)))
    (number,) = store.made_by(run.id, INJECTED)
    step = store.step(run.id, number)
    assert step.program == Program(MINE).digest
    assert step.status == "correct"
    assert store.steering(run.id)[0].sequence == number


def test_a_program_is_judged_once_if_a_crash_comes_while_it_is_taken(
    store: Store, run: RunRow
) -> None:
    with closing(sqlite3.connect(store.location)) as broken:
        broken.execute(
            "CREATE TRIGGER crash BEFORE INSERT ON steering_taken "
            "BEGIN SELECT RAISE(ABORT, ''); END"
        )
        with pytest.raises(IntegrityError):
            searched(store, run, by_a_person(store, 3, ("program", MINE)))
        broken.execute("DROP TRIGGER crash")
    searched(store, run)
    (number,) = store.made_by(run.id, INJECTED)
    assert store.step(run.id, number).status == "correct"
    assert store.steering(run.id)[0].sequence == number


def test_a_program_that_is_injected_again_and_again_ends_no_run(store: Store, run: RunRow) -> None:
    requests = [("program", MINE)] * (MAX_FAILURES + 2)
    outcome = searched(store, run, by_a_person(store, 3, *requests))
    assert outcome.reason == "12 of 12 evaluations used"


def test_exported_steps_list_the_changes_before_them(store: Store, run: RunRow) -> None:
    searched(store, run, by_a_person(store, 3, ("pin", "1"), ("note", "wider")))
    taken = store.steering(run.id)[0].sequence
    found = {step.sequence: flat(step)["steering"] for step in steps(store, [run.id])}
    pinned = store.step(run.id, 1).program
    assert pinned is not None
    assert found.pop(taken) == [f"pin program {pinned[:8]}", "note wider"]
    assert set(map(tuple, found.values())) == {()}


def test_a_note_is_in_every_prompt_until_it_is_taken_back(store: Store, run: RunRow) -> None:
    model = ScriptedModel(lambda _, n: answer(f"```python\n{SEED_SOURCE}\n\nA = {n}\n```"), slots=1)

    def told(count: int) -> None:
        by_a_person(store, 3, ("note", "Use <|im_end|> wgmma."))(count)
        by_a_person(store, 5, ("note", ""))(count)

    rewrite = {"rewrite": Scheduled(operator=RewriteFull(mends=0))}
    parts = {"operators": steps_of_two_kinds() | rewrite, "model": model}
    searched(store, run, told, limits={"evaluations": 16}, **parts)
    begin, end = (event.sequence for event in store.steering(run.id))
    asked = [(n, store.ticket(run.id, n)) for n in store.made_by(run.id, "rewrite")]
    said = {n: ticket.exchanges[0].request.messages[-1].content for n, ticket in asked}
    assert any(begin <= n < end for n in said)
    for number, prompt in said.items():
        assert ("Note from the person" in prompt) == (begin <= number < end)
    assert all("<|im_end|>" not in prompt for prompt in said.values())


def test_a_pause_stops_the_search_and_costs_it_no_time(store: Store, run: RunRow) -> None:
    paused_s = 1.0

    async def body() -> Outcome:
        search = make_search(store, run, operators=steps_of_two_kinds())
        rule = Raisable({"evaluations": 8, "wall_time": 60}, from_config)
        said: list[str] = []
        pipeline = Pipeline(
            search,
            SyntheticEvaluator(),
            rule,
            listeners=[lambda told: by_a_person(store, 3, ("pause", ""))(
                told.progress.evaluations
            )],
            say=said.append,
            serial=True,
        )  # fmt: skip
        session = asyncio.create_task(pipeline.run())
        while not store.steering_counts(run.id)[1]:
            await asyncio.sleep(0.01)
        asked = store.next_sequence(run.id)
        await asyncio.sleep(paused_s)
        assert store.next_sequence(run.id) == asked
        steer(store, store.run(run.name), "continue")
        outcome = await session
        assert said[0].startswith("steered by ")
        return outcome

    assert asyncio.run(body()).finished
    assert store.progress(run.id).evaluations == 8
    assert store.progress(run.id).wall_time_s < paused_s


@pytest.mark.slow  # a pause, and a stop, are in other tests
def test_a_stop_file_ends_a_paused_run(store: Store, run: RunRow, tmp_path: Path) -> None:
    stop_file = tmp_path / "STOP"
    store.steer(run.id, SteeringKind.PAUSE, due=3)

    async def body() -> Outcome:
        search = make_search(store, run, operators=steps_of_two_kinds())
        rule = Raisable({"evaluations": 8}, from_config)
        pipeline = Pipeline(search, SyntheticEvaluator(), rule, serial=True, stop_file=stop_file)
        session = asyncio.create_task(pipeline.run())
        while not store.steering_counts(run.id)[1]:
            await asyncio.sleep(0.01)
        stop_file.touch()
        return await asyncio.wait_for(session, 20)

    outcome = asyncio.run(body())
    assert outcome.finished
    assert outcome.reason == "STOP file found"
    assert store.made_by(run.id, VERIFY)


def test_a_raised_limit_is_the_limit_of_the_run(store: Store) -> None:
    limits = {"evaluations": 6, "usd": None}
    config = {"baseline": "eager", "termination": limits}
    task = synthetic_task()
    run = store.create_run(name="demo", task=task, config=config, seed=7)
    requests = [("budget", "evaluations=5"), ("budget", "evaluations=2")]
    outcome = searched(store, run, by_a_person(store, 3, *requests), limits=limits)
    assert outcome.reason == "13 of 13 evaluations used"
    assert store.run("demo").config["termination"] == {"evaluations": 13, "usd": None}


def test_a_raised_limit_leaves_the_rest_of_the_configuration_as_a_resume_set_it(
    store: Store,
) -> None:
    limits = {"evaluations": 6}
    config = {"baseline": "eager", "termination": limits, "llm": "old"}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=7)

    def told(count: int) -> None:
        if count == 2:
            store.reconfigure(run.id, {**config, "llm": "new"})
        by_a_person(store, 3, ("budget", "evaluations=2"))(count)

    searched(store, run, told, limits=limits)
    stored = store.run("demo").config
    assert (stored["llm"], stored["termination"]) == ("new", {"evaluations": 8})


def test_a_run_that_its_first_words_continue_keeps_a_raised_limit(store: Store) -> None:
    limits = {"evaluations": 6}
    config = {"baseline": "eager", "termination": limits}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=7)
    searched(store, run, by_a_person(store, 3, ("budget", "evaluations=2")), limits=limits)
    stored = store.run("demo").config
    assert resumed_limits(stored, limits) == {"evaluations": 8}
    assert resumed_limits(stored, {"evaluations": 20}) == {"evaluations": 20}


def test_a_replay_begins_with_the_limits_that_the_run_began_with(store: Store) -> None:
    limits = {"evaluations": 6}
    config = {"baseline": "eager", "termination": limits}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=7)
    requests = [("budget", "evaluations=3"), ("budget", "evaluations=2")]
    outcome = searched(store, run, by_a_person(store, 3, *requests), limits=limits)
    command = next(c for said, c in commands(gather(store, "demo")) if said.startswith("Search"))
    assert command.endswith(" termination.evaluations=6")
    began = limits_at_start(store.run("demo").config)
    config = {"baseline": "eager", "termination": began}
    again = store.create_run(name="again", task=run.task, config=config, seed=7)
    repeat(store, again.id, run.id)
    judge = ReplayEvaluator(store, run.id)
    assert searched(store, again, judge=judge, limits=dict(began), reuse=False) == outcome
    assert store.run("again").config == store.run("demo").config
    dump = list(store.dump(run.id, canonical=True))
    assert list(store.dump(again.id, canonical=True)) == dump


def test_a_limit_that_is_raised_during_the_verification_lets_the_run_go_on(store: Store) -> None:
    limits = {"evaluations": 4}
    config = {"baseline": "eager", "termination": limits}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=7)

    def told(count: int) -> None:
        if store.made_by(run.id, VERIFY) and not store.steering(run.id):
            by_a_person(store, count, ("budget", "evaluations=3"))(count)

    assert searched(store, run, told, limits=limits).reason == "7 of 7 evaluations used"


def test_an_ended_run_is_verified_and_finished(store: Store, run: RunRow) -> None:
    outcome = searched(store, run, by_a_person(store, 3, ("end", "")), limits={"evaluations": 99})
    assert outcome.finished
    assert outcome.reason.startswith("ended by ")
    assert store.made_by(run.id, VERIFY)
    assert store.progress(run.id).evaluations < 6
    with pytest.raises(UsageError, match=r"'demo' is finished: ended by .*`evolve resume demo`"):
        steer(store, store.run("demo"), "pause")


def test_a_resumed_run_keeps_its_steering_but_goes_on(store: Store, run: RunRow) -> None:
    requests = [("ban", "0"), ("note", "wider"), ("end", "")]
    searched(store, run, by_a_person(store, 5, *requests), limits={"evaluations": 99})
    asked = store.next_sequence(run.id)
    outcome = searched(store, store.run("demo"), limits={"evaluations": 12})
    assert outcome.reason == "12 of 12 evaluations used"
    held = steered(store.steering(run.id))
    assert held.note == "wider"
    assert not held.has_ended
    later = [step for step in store.steps(run.id, after=asked - 1) if step.operator == "children"]
    assert later
    assert all(store.step(run.id, 0).program not in step.parents for step in later)


@pytest.mark.parametrize(("restarted", "reason"), [(True, "ended by "), (False, "12 of 12 ")])
def test_a_person_who_resumes_a_run_undoes_its_end_but_a_restart_does_not(
    store: Store, run: RunRow, restarted: bool, reason: str
) -> None:
    store.claim(run.id)
    store.take_steering(run.id, steer(store, run, "end"), 0)
    store.release(run.id, "interrupted", "stopped by SIGUSR1")
    outcome = searched(store, store.run("demo"), restarted=restarted)
    assert outcome.reason.startswith(reason)


def test_a_finished_run_goes_on_in_a_restart_too(store: Store, run: RunRow) -> None:
    searched(store, run, by_a_person(store, 3, ("end", "")))
    outcome = searched(store, store.run("demo"), restarted=True)
    assert outcome.reason == "12 of 12 evaluations used"


def test_an_end_that_no_session_has_taken_holds_in_the_next(store: Store, run: RunRow) -> None:
    steer(store, run, "end")
    assert searched(store, run).reason.startswith("ended by ")


def test_a_replay_of_a_steered_run_has_the_same_dump(store: Store, run: RunRow) -> None:
    def told(count: int) -> None:
        by_a_person(store, 3, ("pin", "1"), ("note", "wider"), ("program", MINE))(count)
        by_a_person(store, 7, ("ban", "1"), ("end", ""))(count)

    searched(store, run, told, limits={"evaluations": 99})
    again = store.create_run(name="again", task=run.task, config=dict(run.config), seed=run.seed)
    repeat(store, again.id, run.id)
    judge = ReplayEvaluator(store, run.id)
    searched(store, again, judge=judge, limits={"evaluations": 99}, reuse=False)
    dump = list(store.dump(run.id, canonical=True))
    assert list(store.dump(again.id, canonical=True)) == dump
    assert sum('"kind":"steering"' in line for line in dump) == 5


@pytest.mark.slow  # replays of steered runs are below
def test_a_replay_of_an_ended_and_resumed_run_goes_on_as_it_did(store: Store, run: RunRow) -> None:
    searched(store, run, by_a_person(store, 3, ("end", "")))
    resumed = searched(store, store.run("demo"))
    again = store.create_run(name="again", task=run.task, config=dict(run.config), seed=run.seed)
    repeat(store, again.id, run.id)
    judge = ReplayEvaluator(store, run.id)
    assert searched(store, again, judge=judge, reuse=False) == resumed
    dump = list(store.dump(run.id, canonical=True))
    assert list(store.dump(again.id, canonical=True)) == dump


def test_an_event_is_stored_before_it_holds(store: Store, run: RunRow) -> None:
    event = steer(store, run, "pause")
    assert event.kind is SteeringKind.PAUSE
    assert not steered(store.steering(run.id)).is_paused
    assert store.steering_counts(run.id) == (1, 0)
