"""`LocalEvaluator` against a scripted worker: a real process that misbehaves on demand.

Invariants:
- every call ends, with an answer or an exception, whatever the worker does;
- what happens under a candidate is an evaluation; an exception is for a worker that does not start;
- one candidate's doings cost its neighbours nothing;
- after `close`, and after every death, no process and no file of the worker's is left.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Fidelity, Stage, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation import Deadlines, LocalEvaluator
from evolve.evaluation.local import package_path, worker_environment
from evolve.worker.base.scratch import PREFIX
from evolve.worker.service.dispatch.process import MAX_LINE
from tests.worker.serving import alive, family_of

SCRIPT = Path(__file__).with_name("scripted_worker.py")
TASK = Task(name="task", source="", seeds=("a seed",))
SHORT = Deadlines(hello_s=20, audit_s=0.4, call_s=0.4, close_s=0.2)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def request(source: str) -> EvaluationRequest:
    return EvaluationRequest(task=TASK, instance=source, source=source, fidelity=Fidelity.SCREEN)


@contextlib.asynccontextmanager
async def evaluator(mode: str = "", deadlines: Deadlines | None = None):
    """An evaluator whose calls all must end."""
    before = family_of(os.getpid())
    command = [sys.executable, "-SE", str(SCRIPT), mode]
    judge = LocalEvaluator(
        {"worker": command}, dict(os.environ), deadlines=deadlines or Deadlines(close_s=5)
    )
    try:
        async with asyncio.timeout(30):
            yield judge
    finally:
        await judge.close()
        ours = family_of(os.getpid()) - before
        assert await gone(ours | pids("starts")), "a worker was left behind"


def judge_all(*sources: str, mode: str = "", deadlines: Deadlines | None = None):
    """The evaluations of sources that are all under way at once."""

    async def run():
        async with evaluator(mode, deadlines) as judge:
            return await asyncio.gather(*(judge.evaluate(request(source)) for source in sources))

    return asyncio.run(run())


def pids(name: str) -> set[int]:
    path = Path(name)
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


async def gone(processes: set[int]) -> bool:
    return await until(lambda: not alive(processes))


async def until(condition) -> bool:
    for _ in range(100):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


def test_calls_that_overlap_get_each_its_own_answer():
    verdicts = judge_all("fine one", "late two", "fine three")
    assert [verdict.feedback for verdict in verdicts] == ["one", "two", "three"]
    assert len(pids("starts")) == 1


def test_the_seeds_of_a_task_are_not_sent():
    assert judge_all("seeds")[0].feedback == "[]"


def test_lines_that_are_no_replies_are_passed_over():
    verdicts = judge_all("garbage one", "fine two")
    assert [verdict.feedback for verdict in verdicts] == ["one", "two"]
    assert len(pids("starts")) == 1


def test_a_second_reply_to_the_same_call_is_passed_over():
    verdicts = judge_all("twice one", "fine two")
    assert [verdict.feedback for verdict in verdicts] == ["one", "two"]


def test_a_worker_that_writes_much_to_standard_error_is_not_blocked():
    assert judge_all("chatter one")[0].feedback == "one"


def test_what_the_judge_itself_says_is_passed_on_and_what_libraries_say_is_not(capsys):
    assert judge_all("chatter one", "warn two", "late three")[1].feedback == "two"
    assert capsys.readouterr().err == "evolve: judged again, alone:  [2Jfor want of memory\n"


def test_a_line_that_is_too_long_costs_the_worker_its_life_and_the_candidate_its_verdict():
    (verdict,) = judge_all(f"huge {MAX_LINE + (1 << 20)}")
    assert verdict.status is Status.INFRA
    assert "a reply exceeds 16 MiB" in verdict.feedback


def test_a_worker_that_died_once_is_restarted_and_asked_again():
    verdicts = judge_all("die_once one", "fine two")
    assert [verdict.feedback for verdict in verdicts] == ["one", "two"]
    assert len(pids("starts")) == 2


def test_a_candidate_that_kills_every_worker_is_an_evaluation_with_the_last_words():
    (verdict,) = judge_all("die")
    assert (verdict.status, verdict.stage) == (Status.INFRA, Stage.NONE)
    assert (verdict.device_class, verdict.evaluator_version) == ("scripted", "scripted-1")
    assert (verdict.task_revision, verdict.fidelity) == (TASK.revision, Fidelity.SCREEN)
    assert "exit code 3" in verdict.feedback
    assert "so long" in verdict.feedback
    assert len(pids("starts")) == 2


def test_neighbours_of_a_candidate_that_kills_workers_get_their_verdicts():
    async def run():
        async with evaluator() as judge:
            neighbours = [
                asyncio.create_task(judge.evaluate(request(f"late {word}")))
                for word in ("one", "two")
            ]
            for _ in range(3):  # as a search does
                assert (await judge.evaluate(request("die"))).status is Status.INFRA
            assert [(await neighbour).feedback for neighbour in neighbours] == ["one", "two"]

    asyncio.run(run())


def test_a_candidate_that_hangs_the_worker_is_an_evaluation():
    (verdict,) = judge_all("hang", deadlines=SHORT)
    assert verdict.status is Status.INFRA
    assert "did not answer 'evaluate' within 0.4 s" in verdict.feedback
    assert len(pids("starts")) == 1


def test_neighbours_of_a_candidate_that_hangs_the_worker_get_their_verdicts():
    async def run():
        async with evaluator(deadlines=SHORT) as judge:
            hanging = asyncio.create_task(judge.evaluate(request("hang")))
            await until(Path("hanging").exists)
            await asyncio.sleep(0.1)
            assert (await judge.evaluate(request("hang_once two"))).feedback == "two"
            assert (await hanging).status is Status.INFRA

    asyncio.run(run())


def test_a_worker_that_reports_a_failure_of_its_own_is_replaced_and_asked_again():
    verdicts = judge_all("fail_once one", "fine two")
    assert [verdict.feedback for verdict in verdicts] == ["one", "two"]
    assert len(pids("starts")) == 2


def test_a_failure_inside_every_worker_is_an_evaluation():
    (verdict,) = judge_all("fail")
    assert verdict.status is Status.INFRA
    assert "KeyError: 7" in verdict.feedback
    assert len(pids("starts")) == 2


def test_a_task_that_cannot_be_judged_is_the_users_to_mend():
    with pytest.raises(UsageError, match="the task has no Model"):
        judge_all("usage")


def test_what_a_dead_worker_left_in_its_session_is_killed():
    async def run():
        async with evaluator() as judge:
            assert (await judge.evaluate(request("litter one"))).feedback == "one"
            assert pids("child")
            assert await gone(pids("child"))

    asyncio.run(run())


def test_a_death_is_noticed_while_an_orphan_holds_the_pipes():
    (verdict,) = judge_all("orphan one")
    (orphan,) = pids("child")
    os.kill(orphan, signal.SIGKILL)  # it had left the session: the sandbox's business, not ours
    assert verdict.feedback == "one"


def test_a_worker_that_refuses_says_what_the_user_has_to_mend():
    with pytest.raises(UsageError, match=r"sandbox\.require"):
        judge_all("fine", mode="refuse")


def test_a_worker_that_does_not_come_up_is_unavailable_with_its_last_words():
    with pytest.raises(EvaluatorUnavailable, match="no device"):
        judge_all("fine", mode="fall")


def test_a_worker_that_does_not_come_up_again_is_unavailable():
    with pytest.raises(EvaluatorUnavailable, match="no device"):
        judge_all("die", mode="fall_later")


def test_a_worker_that_never_says_hello_is_unavailable():
    deadlines = Deadlines(hello_s=0.4, close_s=0.2)
    with pytest.raises(EvaluatorUnavailable, match=r"did not answer 'hello' within 0\.4 s"):
        judge_all("fine", mode="mute", deadlines=deadlines)


def test_a_command_that_does_not_exist_is_named():
    judge = LocalEvaluator({"worker": ["./no-python"]}, {})
    with pytest.raises(
        EvaluatorUnavailable, match=r"device\.python=\./no-python cannot be started"
    ):
        asyncio.run(judge.evaluate(request("fine")))


def test_a_question_that_kills_the_worker_twice_is_unavailable():
    async def run():
        async with evaluator() as judge:
            with pytest.raises(EvaluatorUnavailable, match="no doctor"):
                await judge.doctor()

    asyncio.run(run())


def test_the_late_reply_to_a_cancelled_call_is_nobodys():
    async def run():
        async with evaluator() as judge:
            call = asyncio.create_task(judge.evaluate(request("late one")))
            await until(lambda: judge.hello)
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await judge.evaluate(request("fine two"))).feedback == "two"
            assert len(pids("starts")) == 1

    asyncio.run(run())


def test_a_start_that_is_cancelled_leaves_no_worker_and_can_be_repeated():
    async def run():
        async with evaluator() as judge:
            call = asyncio.create_task(judge.evaluate(request("fine")))
            await asyncio.sleep(0.005)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await judge.evaluate(request("fine two"))).feedback == "two"

    asyncio.run(run())


def test_closing_ends_calls_under_way():
    async def run():
        async with evaluator(deadlines=Deadlines(close_s=5)) as judge:
            calls = [asyncio.create_task(judge.evaluate(request("hang"))) for _ in range(2)]
            await until(Path("hanging").exists)
            await judge.close()
            for call in calls:
                with pytest.raises(EvaluatorUnavailable, match="the evaluator is closed"):
                    await call

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["spawning", "greeting"])
def test_closing_ends_a_start_under_way(moment):
    async def run():
        async with evaluator("mute") as judge:
            call = asyncio.create_task(judge.evaluate(request("fine")))
            await asyncio.sleep(0)
            if moment == "greeting":
                await until(lambda: pids("starts"))
            await judge.close()
            with pytest.raises(EvaluatorUnavailable, match="the evaluator is closed"):
                await call

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["leaves_a_child", "stays"])
@pytest.mark.parametrize("times", [1, 2])
def test_closing_ends_a_worker_with_its_children_whatever_it_does_then(mode, times):
    async def run():
        async with evaluator(mode, SHORT) as judge:
            await judge.evaluate(request("fine"))
            start = time.monotonic()
            await asyncio.gather(*(judge.close() for _ in range(times)))
            assert time.monotonic() - start < 3
            assert pids("child")
            assert await gone(pids("starts") | pids("child"))

    asyncio.run(run())


def test_a_closed_evaluator_starts_nothing():
    async def run():
        command = [sys.executable, "-SE", str(SCRIPT), ""]
        judge = LocalEvaluator({"worker": command}, dict(os.environ))
        await judge.close()
        with pytest.raises(EvaluatorUnavailable, match="the evaluator is closed"):
            await judge.evaluate(request("fine"))
        assert not pids("starts")

    asyncio.run(run())


def test_the_folder_for_another_interpreter_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = tmp_path / "seen"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nls $PYTHONPATH > {seen}\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(EvaluatorUnavailable, match="exit code 1"):
        asyncio.run(LocalEvaluator.start(python=str(python)))
    assert seen.read_text() == "evolve\n"
    assert not list(tmp_path.glob(f"{PREFIX}*"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits", "ended the process that loads it"),
        ("sleeps", "more than 0.4 s"),
    ],
)
def test_a_task_that_ends_or_holds_up_the_worker_is_the_users_to_mend(name: str, words: str):
    async def run():
        async with evaluator(deadlines=SHORT) as judge:
            await judge.audit(Task(name=name, source=""))

    with pytest.raises(UsageError, match=f"task {name}[:,] .*{words}"):
        asyncio.run(run())


def test_packages_that_pythonpath_names_reach_candidates_and_the_folder_we_are_in_does_not(
    monkeypatch, tmp_path
):
    installed, here = tmp_path / "installed", tmp_path / "here"
    for folder in (installed, here / "deeper"):
        folder.mkdir(parents=True)
    for folder in (installed, here):
        (folder / "its_module.py").write_text(f"where = {folder.name!r}")
        (folder / "some-1.0.dist-info").mkdir()
    monkeypatch.chdir(here / "deeper")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(here), str(installed)]))
    for folder in (installed, here):
        monkeypatch.syspath_prepend(folder)
    assert package_path().split(os.pathsep)[1:] == [str(installed)]


def test_a_worker_gets_what_it_needs_of_the_environment_and_no_key(monkeypatch):
    for name in ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY", "OPENAI_API_KEY", "TORCH_HUB_TOKEN"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    found = worker_environment("/here")
    assert "planted" not in found.values()
    assert (found["PYTHONPATH"], found["NVIDIA_VISIBLE_DEVICES"]) == ("/here", "all")


def test_what_is_abandoned_is_ended_and_the_next_call_starts_a_new_worker():
    async def run():
        async with evaluator() as judge:
            hanging = asyncio.create_task(judge.evaluate(request("hang")))
            assert await until(lambda: pids("starts"))
            await asyncio.sleep(0.2)
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)
            judge.abandon()
            assert await gone(pids("starts"))
            verdict = await judge.evaluate(request("fine one"))
            assert verdict.feedback == "one"
            assert len(pids("starts")) == 2

    asyncio.run(run())


def test_abandoning_before_the_first_call_is_nothing():
    async def run():
        async with evaluator() as judge:
            judge.abandon()
            assert (await judge.evaluate(request("fine one"))).feedback == "one"

    asyncio.run(run())


def test_the_end_of_a_wait_is_no_answer():
    async def run() -> None:
        async with evaluator() as judge:
            task = Task(name="sound", source="")
            assert await judge.audit(task) == []
            assert await judge.conditions(task) == []

    asyncio.run(run())


def test_what_an_evaluation_is_at_is_known_until_it_ends():
    async def watched() -> None:
        async with evaluator() as judge:
            call = asyncio.create_task(judge.evaluate(request("phases")))
            assert await until(lambda: judge.phase_of("phases") == "timing, 3 of 7 pairs")
            assert judge.phase_of("another") == ""
            Path("go").touch()
            assert (await call).status is Status.CORRECT
            assert judge.phase_of("phases") == ""

    asyncio.run(watched())
