"""One queue before several workers: real processes that misbehave on demand, and two real judges.

Invariants:
- an evaluation goes to the first place with room, and no place gets more than it has room for;
- what fails at one place is judged at another; a place that fails and fails is left out, and said;
- a candidate that kills workers costs no place its service and no neighbour its verdict;
- all places are of one kind of device, or nothing starts;
- a task with few calls under way is next, however many of another have waited for longer;
- cores are shared out, so that two workers do not measure on the same one.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation import Deadlines, LocalEvaluator
from tests.worker.serving import RELU_TASK, ROOT, forward

SCRIPT = Path(__file__).with_name("scripted_worker.py")
TASK = Task(name="task", source="")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def request(source: str) -> EvaluationRequest:
    return EvaluationRequest(task=TASK, instance=source, source=source, fidelity=Fidelity.SCREEN)


@contextlib.asynccontextmanager
async def pool(deadlines: Deadlines | None = None, **modes: str):
    """A judge with a scripted worker for each name."""
    judge = LocalEvaluator(
        {
            f"GPU {name}": [sys.executable, "-SE", str(SCRIPT), mode, name]
            for name, mode in modes.items()
        },
        dict(os.environ),
        deadlines=deadlines or Deadlines(close_s=5),
    )
    try:
        async with asyncio.timeout(30):
            yield judge
    finally:
        await judge.close()


def judge_all(*sources: str, up: bool = True, **modes: str):
    """The evaluations of sources that are all under way at once."""

    async def run():
        async with pool(**modes) as judge:
            if up:
                await judge.up()
            return await asyncio.gather(*(judge.evaluate(request(source)) for source in sources))

    return asyncio.run(run())


def starts(name: str) -> int:
    path = Path(f"starts{name}")
    return path.read_text().count("\n") if path.exists() else 0


def test_a_task_of_one_candidate_does_not_wait_for_all_those_of_another():
    ended: list[str] = []

    async def judged(judge: LocalEvaluator, asked: EvaluationRequest) -> None:
        await judge.evaluate(asked)
        ended.append(asked.instance)

    async def run() -> None:
        async with pool(a="") as judge:
            await judge.up()
            many = [asyncio.create_task(judged(judge, request(f"where {n}"))) for n in range(40)]
            await asyncio.sleep(0)
            other = replace(request("where else"), task=replace(TASK, source="other = 1"))
            await asyncio.gather(*many, judged(judge, other))

    asyncio.run(run())
    assert len(ended) == 41
    assert ended.index("where else") < 6
    several = [name for name in ended if name != "where else"]
    assert several == [f"where {n}" for n in range(40)]


@pytest.mark.slow  # waits for calls that do not end; turns of tasks are above
def test_of_tasks_whose_calls_never_end_each_has_its_turn():
    ended: Counter[str] = Counter()

    async def callers(judge: LocalEvaluator, name: str) -> None:
        task = replace(TASK, source=f"name = {name!r}")
        while ended.total() < 60:
            await judge.evaluate(replace(request("where"), task=task))
            ended[name] += 1

    async def run() -> None:
        async with pool(a="") as judge:
            await judge.up()
            await asyncio.gather(*(callers(judge, name) for name in "abc" for _ in range(3)))

    asyncio.run(run())
    assert min(ended[name] for name in "abc") > 15


def test_evaluations_are_spread_over_all_places():
    verdicts = judge_all(*(f"where {n}" for n in range(4)), a="", b="")
    assert Counter(verdict.feedback for verdict in verdicts) == {"a": 2, "b": 2}


def test_a_task_stays_where_it_is_known_while_the_others_have_no_more_room():
    async def run():
        async with pool(a="", b="") as judge:
            await judge.up()
            found = {}
            for turn in range(6):
                tasks = [Task(name=name, source=name) for name in ("one", "two")]
                verdicts = await asyncio.gather(
                    *(
                        judge.evaluate(replace(request(f"where {turn}"), task=task))
                        for task in (tasks if turn % 2 else tasks[::-1])
                    )
                )
                order = tasks if turn % 2 else tasks[::-1]
                for task, verdict in zip(order, verdicts, strict=True):
                    found.setdefault(task.name, set()).add(verdict.feedback)
            return found

    found = asyncio.run(run())
    assert sorted(map(len, found.values())) == [1, 1]
    assert found["one"] != found["two"]


def test_what_is_judged_again_goes_to_another_place_where_there_is_room():
    """A gain that is one device's own shows only on another one."""

    async def run():
        async with pool(a="", b="") as judge:
            await judge.up()
            found = []
            for repeat in range(4):
                again = replace(request("where it was"), repeat=repeat)
                found.append((await judge.evaluate(again)).feedback)
                await judge.evaluate(request(f"where {repeat}"))
            return found

    found = asyncio.run(run())
    assert found in (["a", "b", "a", "b"], ["b", "a", "b", "a"])


def test_what_finds_no_room_waits_for_the_first_place_that_has_some():
    slow = ["late a", "late b"]  # one at each place
    verdicts = judge_all(*slow, *(f"where {n}" for n in range(6)), a="", b="")
    assert all(verdict.status is Status.CORRECT for verdict in verdicts)
    assert (starts("a"), starts("b")) == (1, 1)


def test_there_are_as_many_slots_as_all_places_have():
    async def run():
        async with pool(a="", b="", c="") as judge:
            await judge.up()
            return judge.slots

    assert asyncio.run(run()) == 6


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["broken", "breaks"])
def test_a_place_that_fails_and_fails_is_left_out_and_the_other_gives_all_verdicts(mode, capfd):
    async def run():
        async with pool(a=mode, b="") as judge:
            await judge.up()
            assert judge.slots == 4
            words = [f"where {n}" for n in range(20)]
            verdicts = await asyncio.gather(*(judge.evaluate(request(word)) for word in words))
            return verdicts, judge.slots

    verdicts, slots = asyncio.run(run())
    assert {verdict.feedback for verdict in verdicts} == {"b"}
    assert slots == 2
    assert (starts("a"), starts("b")) == (3, 1)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("evolve: ")]
    assert line.startswith("evolve: GPU a gets no more candidates: it failed under 3 in a row")
    assert "the device" in line


def test_a_place_whose_worker_does_not_come_up_again_is_left_out(capfd):
    verdicts = judge_all("die_at a", *(f"where {n}" for n in range(8)), a="fall_later", b="")
    assert {verdict.feedback for verdict in verdicts[1:]} <= {"a", "b"}
    assert all(verdict.status is Status.CORRECT for verdict in verdicts)
    assert "GPU a gets no more candidates: the worker cannot be used" in capfd.readouterr().err


def test_a_candidate_that_kills_every_worker_costs_no_place_its_service(capfd):
    async def run():
        async with pool(a="", b="") as judge:
            await judge.up()
            for _ in range(4):
                neighbours = [judge.evaluate(request(f"where {n}")) for n in range(3)]
                killer, *others = await asyncio.gather(judge.evaluate(request("die")), *neighbours)
                assert killer.status is Status.INFRA
                assert "so long" in killer.feedback
                assert {other.status for other in others} == {Status.CORRECT}
            return judge.slots

    assert asyncio.run(run()) == 4
    assert "no more candidates" not in capfd.readouterr().err


def test_different_candidates_that_kill_workers_between_good_ones_cost_no_place_its_service():
    async def run():
        async with pool(a="") as judge:
            for n in range(5):
                assert (await judge.evaluate(request(f"die {n}"))).status is Status.INFRA
                assert (await judge.evaluate(request(f"where {n}"))).feedback == "a"
            return judge.slots

    assert asyncio.run(run()) == 2


def test_without_any_place_left_the_judge_is_unavailable_and_every_reason_is_named():
    with pytest.raises(EvaluatorUnavailable, match=r"no device is left: GPU a: .*; GPU b: "):
        judge_all(*(f"where {n}" for n in range(12)), a="breaks", b="broken")


def test_a_place_that_does_not_come_up_at_the_start_is_an_error():
    with pytest.raises(EvaluatorUnavailable, match="no device"):
        judge_all("fine", a="", b="fall")


def test_devices_of_two_kinds_are_refused_with_both_named():
    with pytest.raises(UsageError, match=r"GPU a is scripted, and GPU b is another: .*device\.ids"):
        judge_all("fine", a="", b="another")


def test_closing_ends_calls_that_wait_for_room():
    async def run():
        async with pool(a="", b="") as judge:
            await judge.up()
            calls = [asyncio.create_task(judge.evaluate(request("hang"))) for _ in range(7)]
            await asyncio.sleep(0.1)
            await judge.close()
            for call in calls:
                with pytest.raises(EvaluatorUnavailable, match="the evaluator is closed"):
                    await call

    asyncio.run(run())


def test_a_call_that_is_given_up_while_it_waits_leaves_its_room_to_others():
    async def run():
        async with pool(a="") as judge:
            await judge.up()
            calls = [asyncio.create_task(judge.evaluate(request("late one"))) for _ in range(2)]
            waiting = [asyncio.create_task(judge.evaluate(request("fine"))) for _ in range(2)]
            await asyncio.sleep(0.05)
            for call in (calls[0], waiting[0]):
                call.cancel()
            assert (await waiting[1]).status is Status.CORRECT
            assert (await judge.evaluate(request("fine two"))).feedback == "two"

    asyncio.run(run())


@pytest.mark.slow  # two workers start; those of the other tests here are scripted
def test_two_real_judges_give_verdicts_side_by_side(tmp_path):
    async def run():
        judge = await LocalEvaluator.start(ids=(0, 1), slots=1, cache=tmp_path / "cache")
        try:
            asked = [
                EvaluationRequest(
                    task=RELU_TASK,
                    instance=str(number),
                    source=forward("return right(x)", before=f"NUMBER = {number}"),
                    fidelity=Fidelity.CHECK,
                )
                for number in range(3)
            ]
            return judge.slots, await asyncio.gather(*map(judge.evaluate, asked))
        finally:
            await judge.close()

    slots, verdicts = asyncio.run(run())
    assert slots == 2
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
    assert {verdict.custom for verdict in verdicts} == {False}
    assert len({verdict.device_class for verdict in verdicts}) == 1


def test_workers_share_the_cores_out():
    program = (
        "import os\nfrom evolve.worker.devices.cpu_affinity import keep_to_share\n"
        "keep_to_share({part}, 2)\nprint(*os.sched_getaffinity(0))"
    )
    shares = [
        subprocess.run(
            [sys.executable, "-c", program.format(part=part)],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.split()
        for part in (0, 1)
    ]  # fmt: skip
    ours = {str(core) for core in os.sched_getaffinity(0)}
    assert {*shares[0], *shares[1]} == ours
    assert len(ours) == 1 or not {*shares[0]} & {*shares[1]}
