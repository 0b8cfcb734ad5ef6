"""`python -m evolve.worker batch` as a real process with a real judge.

Invariants:
- a request has one final answer, whatever ended the process before; what has one is not judged
  again;
- a candidate that ends the judge ends nobody else's evaluation;
- the process has ended by its deadline, with the last line written.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve.core.errors import EvaluatorUnavailable
from evolve.core.evaluation import DEVICE_OOM, Evaluation, Fidelity, Label, Stage, Status
from evolve.worker.service import batch_loop
from evolve.worker.service.batch_costs import Costs
from evolve.worker.service.batch_files import Answers, BatchRequest, read_answers, request_lines
from evolve.worker.service.dispatch.place import Place
from evolve.worker.service.shards import Shards
from tests.worker.serving import HONEST_CPP, RELU_TASK, ROOT, alive, family_of, forward
from tests.worker.test_batch_files import begun, evaluate

RIGHT = forward("return right(x)")
WRONG = forward("return right(x) + 1")
SLEEPER = forward("time.sleep(600)")


class Folder:
    """A file of requests and a folder of answers, with the process between them."""

    def __init__(self, path: Path) -> None:
        self.path, self.out = path, path / "out"
        path.chmod(0o755)

    def ask(self, requests: list[BatchRequest]) -> None:
        (self.path / "in.jsonl").write_text("".join(request_lines(requests)))

    def start(self, *options: str) -> subprocess.Popen:
        words = [sys.executable, "-m", "evolve.worker", "batch", "in.jsonl", "out"]
        return subprocess.Popen(
            [*words, "--cache", str(self.path / "cache"), "--call-timeout", "100", *options],
            cwd=self.path,
            env={**os.environ, "TMPDIR": str(self.path), "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str]:
        process = self.start(*options)
        _, said = process.communicate(timeout=100)
        return process.returncode, said

    def lines(self) -> list[dict]:
        shards = sorted(self.out.glob("*.jsonl"))
        text = "".join(path.read_text() for path in shards)
        return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]

    def final(self, request: BatchRequest) -> Evaluation | None:
        answer = read_answers(self.out).of(request).final
        return None if answer is None else Evaluation.from_json(answer.result)

    def wait_for(self, count: int) -> None:
        """Until so many final answers are on the disk."""
        for _ in range(600):
            if sum("final" in line for line in self.lines()) >= count:
                return
            time.sleep(0.1)
        raise AssertionError(self.lines())


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.mark.slow
@pytest.mark.quiet
def test_requests_of_every_kind_are_answered(folder):
    requests = [
        evaluate("a:0", HONEST_CPP),
        evaluate("a:1", WRONG),
        BatchRequest(id="audit", method="audit", params={"task": RELU_TASK.to_json()}),
    ]
    folder.ask(requests)
    code, said = folder.run()
    assert code == 0, said
    assert "3/3" in said
    correct = folder.final(requests[0])
    assert correct.status is Status.CORRECT
    assert correct.custom
    assert correct.ratios["eager"].low > 0
    assert folder.final(requests[1]).status is Status.WRONG_VALUE
    assert read_answers(folder.out).of(requests[2]).final.result == []
    totals = folder.lines()[-1]["totals"]
    assert (totals["requests"], totals["left"]) == (3, 0)
    assert totals["by_status"] == {"correct": 1, "wrong_value": 1, "answered": 1}


@pytest.mark.slow
def test_two_judges_share_one_queue(folder):
    requests = [evaluate(f"a:{i}", f"{WRONG}\n# {i}\n") for i in range(6)]
    folder.ask(requests)
    code, said = folder.run("--indices", "0,1", "--slots", "1")
    assert code == 0, said
    assert said.count("judge: ") == 2
    answered = [line["id"] for line in folder.lines() if "final" in line]
    assert sorted(answered) == [request.id for request in requests]


@pytest.mark.slow
def test_after_kill_9_only_what_was_under_way_is_judged_again(folder):
    requests = [evaluate(f"a:{i}", f"{WRONG}\n# {i}\n") for i in range(12)]
    folder.ask(requests)
    process = folder.start("--slots", "2")
    folder.wait_for(3)
    process.kill()
    process.communicate()
    before = [line["id"] for line in folder.lines() if "final" in line]
    code, said = folder.run("--slots", "2")
    assert code == 0, said
    answered = [line["id"] for line in folder.lines() if "final" in line]
    assert sorted(answered) == sorted(request.id for request in requests)
    assert answered[: len(before)] == before
    code, _ = folder.run()
    assert code == 0
    assert [line["id"] for line in folder.lines() if "final" in line] == answered


@pytest.mark.slow
def test_a_batch_ends_before_its_deadline_and_goes_on_with_the_next_start(folder):
    requests = [evaluate("a:0", WRONG), evaluate("a:1", SLEEPER)]
    folder.ask(requests)
    started = time.monotonic()
    code, said = folder.run("--deadline", "20")
    assert time.monotonic() - started < 20
    assert code == 75, said
    assert folder.final(requests[0]).status is Status.WRONG_VALUE
    assert folder.final(requests[1]) is None
    assert folder.lines()[-1]["totals"]["ended_by"] == "the deadline"
    assert read_answers(folder.out).of(requests[1]).failures == 0  # nobody's fault


@pytest.mark.slow
def test_sigterm_ends_it_in_order_and_leaves_no_process(folder):
    folder.ask([evaluate("a:0", WRONG), evaluate("a:1", SLEEPER)])
    process = folder.start()
    folder.wait_for(1)
    deadline = time.monotonic() + 15
    while len(family := family_of(process.pid) - {process.pid}) <= 2:  # a:1 has its process
        assert time.monotonic() < deadline, family
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 75, said
    assert folder.lines()[-1]["totals"]["ended_by"] == "SIGTERM"
    assert not alive(family)


def test_sigterm_while_the_judge_starts_ends_it_in_order_too(folder):
    folder.ask([evaluate("a:0", WRONG)])
    process = folder.start()
    while not folder.out.is_dir():
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 75, said
    assert folder.lines()[-1]["totals"]["left"] == 1


class FailingJudge:
    """Has a fault of its own under whatever it is asked, with labels that say why."""

    alive, phases = True, {}

    def __init__(self, labels, asked):
        self._labels, self._asked = labels, asked

    async def ask(self, method, params, deadline_s, about=""):
        known = {"device_class": "cpu", "evaluator_version": "1"}
        if method == "hello":
            return {**known, "slots": 1}
        self._asked.append(about)
        infra = Evaluation(
            status=Status.INFRA, stage=Stage.NONE, fidelity=Fidelity.SEARCH, task_revision="",
            labels=self._labels, **known,
        )  # fmt: skip
        return infra.to_json()

    def kill(self, why):
        pass

    async def close(self, close_s):
        pass


NO_MEMORY = (Label(DEVICE_OOM, "8 GiB"),)


@pytest.fixture
def start(folder, monkeypatch):
    """Starts a batch under such a judge: how many requests are left, and how often it was asked."""

    def start(labels, requests, has_worked=True):
        asked = []

        async def start_judge():
            return FailingJudge(labels, asked)

        monkeypatch.setattr(batch_loop.Batch, "_has_worked", lambda self: has_worked)
        answers = read_answers(folder.out) if folder.out.exists() else Answers()
        with contextlib.closing(Shards(folder.out)) as shards:
            try:
                places = [Place("judge", start_judge, batch_loop.DEADLINES)]
                return batch_loop.Batch(requests, answers, shards, places).run(), len(asked)
            except EvaluatorUnavailable:
                return "unavailable", len(asked)

    return start


def test_what_the_judge_fails_under_is_asked_for_again_and_then_given_up(folder, start):
    request = evaluate("a:0", RIGHT)
    assert start((), [request]) == (0, 3)
    assert folder.final(request).status is Status.INFRA


def test_what_there_is_no_memory_for_even_alone_is_left_to_the_next_start_some_times(folder, start):
    request = evaluate("a:0", RIGHT)
    for _ in range(2):
        assert start(NO_MEMORY, [request]) == (1, 1)
        assert folder.final(request) is None
    assert start(NO_MEMORY, [request]) == (0, 1)
    assert folder.final(request).status is Status.INFRA


def test_a_device_without_memory_does_not_use_up_a_batch(folder, start):
    requests = [evaluate(f"a:{i}", RIGHT) for i in range(8)]
    for _ in range(5):
        code, asked = start(NO_MEMORY, requests, has_worked=False)
        assert code == "unavailable"
        assert asked <= 5
    assert len({line["id"] for line in folder.lines() if "final" in line}) == len(requests)
    assert not any(map(folder.final, requests))


@pytest.mark.slow
def test_a_candidate_that_ends_the_judge_is_given_up_after_all_others_are_judged(folder):
    requests = [evaluate("a:0", WRONG), evaluate("a:1", SLEEPER), evaluate("a:2", RIGHT)]
    folder.ask(requests)
    process = folder.start("--slots", "1")
    for times in (1, 2, 3):
        kill_the_judge_under(process, folder, "a:1", times)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert [folder.final(request).status for request in requests] == [
        Status.WRONG_VALUE, Status.INFRA, Status.CORRECT]  # fmt: skip
    assert "worker ended by signal 9" in folder.final(requests[1]).feedback
    begun = [line["begun"] for line in folder.lines() if "begun" in line]
    assert begun == ["a:0", "a:1", "a:2", "a:1", "a:1"]


@pytest.mark.slow
def test_a_judge_that_fails_whatever_it_is_given_costs_no_request_its_verdict(folder):
    requests = [evaluate(f"a:{i}", f"{RIGHT}\n# {i}\n") for i in range(2)]
    folder.ask(requests)
    process = folder.start()
    while process.poll() is None:
        shutil.rmtree(folder.path / "cache", ignore_errors=True)  # so that nothing can be built
        time.sleep(0.01)
    said = process.stderr.read()
    assert process.returncode == 1, said
    assert "the judge fails" in said
    assert [folder.final(request) for request in requests] == [None, None]
    assert folder.run()[0] == 0
    assert folder.final(requests[1]).status is Status.CORRECT


def kill_the_judge_under(process: subprocess.Popen, folder: Folder, name: str, times: int) -> None:
    """Kill it when the request has begun for the so manieth time."""
    for _ in range(600):
        if [line.get("begun") for line in folder.lines()].count(name) == times:
            break
        time.sleep(0.1)
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)


@pytest.mark.slow
def test_what_was_under_way_at_two_kills_is_tried_alone_and_last(folder, tmp_path):
    requests = [evaluate("a:0", WRONG), evaluate("a:1", RIGHT, fidelity="check")]
    folder.ask(requests)
    shards = Shards(folder.out)
    for _ in range(2):
        shards.write(begun(requests[0]))
    shards.close()
    assert folder.run()[0] == 0
    assert [line["begun"] for line in folder.lines() if "begun" in line][2:] == ["a:1", "a:0"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--deadline", "3"], 2, "too short"),
        (["--sandbox-require", "vm"], 1, "invalid choice"),
        (["--nonsense"], 1, "unrecognized arguments"),
    ],
)
def test_bad_options_are_said(folder, options, code, named):
    folder.ask([evaluate("a:0", WRONG)])
    found, said = folder.run(*options)
    assert found == code
    assert named in said


@pytest.mark.slow
def test_a_bad_task_is_refused_once(folder):
    task = {**RELU_TASK.to_json(), "source": "import nowhere"}
    request = evaluate("a:0", WRONG, task=task)
    folder.ask([request])
    assert folder.run()[0] == 0
    error = read_answers(folder.out).of(request).final.error
    assert error["kind"] == "usage"
    assert "nowhere" in error["message"]


def test_costs_are_expected_by_the_closest_kind_that_is_known():
    costs = Costs()
    assert costs.expected_s(evaluate("a:0")) == 0
    costs.add(evaluate("a:0", fidelity="search"), 10.0)
    assert costs.expected_s(evaluate("a:1")) > 10  # nothing else is known
    costs.add(evaluate("a:0"), 1.0)
    assert 1 < costs.expected_s(evaluate("a:1")) < 2
    other = {**RELU_TASK.to_json(), "size": "tiny"}
    assert 1 < costs.expected_s(evaluate("a:2", task=other)) < 2
