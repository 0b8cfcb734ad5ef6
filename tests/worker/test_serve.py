"""`python -m evolve.worker serve` from outside.

Invariants:
- every request has exactly one reply with its id, in any order, whatever else is printed;
- a request that cannot be served is an error of kind `usage` that says why;
- when the worker ends, by whatever end, nothing that it started is left.
"""

import json
import os
import signal
import time

import pytest

from evolve.core.evaluation import Status
from evolve.core.task import Task
from tests.worker.serving import RELU_TASK, Worker, alive, family_of, forward

SLEEPER = forward("time.sleep(600)")


@pytest.fixture
def own_worker(tmp_path):
    """A worker that the test may end."""
    serving = Worker(tmp_path / "worker")
    serving.ask("hello")
    yield serving
    serving.close()


def gone(pids: set[int]) -> bool:
    for _ in range(100):
        if not alive(pids):
            return True
        time.sleep(0.05)
    return False


def busy(serving: Worker) -> set[int]:
    """All processes of a worker in the middle of a candidate that hangs."""
    idle = len(family_of(serving.process.pid))
    serving.send("evaluate", task=RELU_TASK.to_json(), source=SLEEPER, fidelity="screen")
    for _ in range(200):
        family = family_of(serving.process.pid)
        if len(family) >= idle + 3:  # a guard, the first process of a namespace, a runner
            return family
        time.sleep(0.05)
    raise AssertionError("no candidate was started")


def test_hello_says_what_answers(worker):
    hello = worker.ask("hello")
    assert hello["device_class"].startswith("cpu: ")
    assert hello["slots"] >= 1
    assert hello["sandbox"] in ("none", "uid", "landlock", "namespaces")
    assert hello["evaluator_version"]


def test_doctor_gives_a_reason_for_every_mechanism_that_is_lacking(worker):
    facts = worker.ask("doctor")
    for mechanism in facts["sandbox"]["mechanisms"].values():
        assert mechanism["available"] or mechanism["why_not"]
    assert facts["uid"] == os.getuid()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "no JSON"),
        ("[]", "JSON object"),
        ('{"v": 2, "id": 900, "method": "hello"}', "version 2"),
        ('{"v": 1, "id": 901, "method": 7}', "method"),
    ],
)
def test_a_line_that_is_no_request_gets_an_error(worker, line, message):
    given = json.loads(line).get("id") if line.startswith("{") else None
    reply = worker.send_line(line, given).result(10)
    assert reply["error"]["kind"] == "usage"
    assert message in reply["error"]["message"]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("dance", {}, "unknown method 'dance'"),
        ("audit", {}, "task"),
        ("audit", {"task": {}}, "malformed"),
        ("evaluate", {"task": RELU_TASK.to_json(), "source": "", "fidelity": "exact"}, "fidelity"),
        ("audit", {"task": Task(name="bad", source="import nothing_like_that").to_json()}, "bad"),
        ("audit", {"task": Task(name="asks", source="input()").to_json()}, "EOFError"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(worker, method, params, message):
    reply = worker.send(method, **params).result(30)
    assert reply["error"]["kind"] == "usage"
    assert message in reply["error"]["message"]


def test_two_evaluations_at_once_get_each_its_own_answer(worker):
    right = worker.send(
        "evaluate", task=RELU_TASK.to_json(), source=forward("return right(x)"), fidelity="check"
    )
    wrong = worker.send(
        "evaluate", task=RELU_TASK.to_json(), source=forward("return x * 5"), fidelity="check"
    )
    assert wrong.result(60)["result"]["status"] == "wrong_value"
    assert right.result(60)["result"]["status"] == "correct"


def test_a_sound_task_has_no_weak_spots(worker):
    assert worker.ask("audit", task=RELU_TASK.to_json()) == []


def test_a_reference_may_use_helpers_of_this_package_in_its_own_process(worker):
    helpers = (
        "from evolve.testing.suite_tasks import calls, rules\nsuite_check = rules.completes()\n"
    )
    task = Task(name="helped", source=RELU_TASK.source + helpers)
    verdict = worker.evaluate(forward("return right(x)"), task=task, fidelity="check")
    assert verdict.status is Status.CORRECT
    assert verdict.suite is True


@pytest.mark.slow
def test_the_end_of_input_leaves_no_process_behind(own_worker):
    family = busy(own_worker)
    own_worker.process.stdin.close()
    assert gone(family)
    assert own_worker.process.wait(10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_behind(own_worker, kind):
    family = busy(own_worker)
    own_worker.process.send_signal(kind)
    assert gone(family)


@pytest.mark.slow
def test_shutdown_is_answered_and_ends_the_worker(own_worker):
    family = family_of(own_worker.process.pid)
    assert own_worker.ask("shutdown") == {}
    assert gone(family)


@pytest.mark.slow  # a timed run in a worker of its own; test_scratch has the folders
@pytest.mark.quiet
def test_a_worker_leaves_no_files_but_its_cache(own_worker, tmp_path):
    assert own_worker.evaluate(forward("return right(x)")).status is Status.CORRECT
    own_worker.close()
    left = {path.name for path in (tmp_path / "worker").iterdir()}
    assert left == {"cache", "evolve-cpu.gate", "evolve-cpu.lock"}


@pytest.mark.slow
def test_a_zygote_that_was_killed_is_replaced(own_worker):
    (zygote,) = own_worker.ask("doctor")["zygotes"]
    os.kill(zygote["pid"], signal.SIGKILL)
    time.sleep(0.1)
    assert (
        own_worker.evaluate(forward("return right(x)"), fidelity="check").status is Status.CORRECT
    )
