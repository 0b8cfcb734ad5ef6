"""The service over HTTP: a real server process over stub workers, which are real processes too.

Invariants:
- every job is answered exactly once, whatever ends its worker or the server;
- what is our own fault is never a verdict, and has no reward;
- an answer names the judge and the rewards, and a client that pinned others gets none;
- equal candidates are judged once, unless a client asks for more;
- no request makes the server open a path, or take more than it can bear.
"""

import functools
import resource
import time

import httpx
import pytest

from evolve.core.model import ReplyStatus
from evolve.serve.jobs import Jobs, NewJob
from evolve.serve.submissions import AcceptedSubmission
from evolve.tasks import find_task
from tests.serve.serving import candidate, serving, submission

REWARDS = ["kevin@1", "kernel_smith@1"]


EMPTY_TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("serve")
    weak = folder / "weak.py"
    weak.write_text(f"WEAK = True\n{EMPTY_TASK}")
    (folder / "broken.py").write_text(f"BROKEN = True\n{EMPTY_TASK}")
    tasks = (str(weak), str(folder / "broken.py"))
    with serving(folder, tasks=tasks, attempts=2, retry_s=0.05, queue_s=60) as running:
        yield running


def test_a_candidate_gets_verdict_times_feedback_and_rewards(server):
    answer = server.submit("speedup 2.0", rewards=REWARDS)
    verdict = answer["verdict"]
    assert (answer["state"], answer["fault"]) == ("done", None)
    assert (verdict["status"], verdict["strict"]) == ("correct", True)
    assert verdict["speedup"] == pytest.approx([2.0, 1.98, 2.02])
    assert verdict["times_ms"]["only"]["candidate"][0] == pytest.approx(0.5)
    assert answer["rewards"] == {"kevin@1": pytest.approx(2.3), "kernel_smith@1": None}
    assert (answer["evaluator_version"], answer["device_class"]) == ("stub-1", "stub")


def test_a_gain_over_the_parent_is_the_quotient_of_their_speedups(server):
    parent = server.submit("speedup 2.0", "of the parent")
    child = server.submit("speedup 3.0", parent=parent["id"], rewards=["kernel_smith@1"])
    assert child["rewards"]["kernel_smith@1"] == pytest.approx(1.5)


def test_a_parent_that_comes_as_text_is_timed_beside_its_child(server):
    parent = candidate("speedup 2.0")
    child = server.submit("speedup 3.0", parent_source=parent, rewards=["kernel_smith@1"])
    assert child["rewards"]["kernel_smith@1"] == pytest.approx(1.5)
    assert child["verdict"]["times_ms"]["only"]["parent"][0] == pytest.approx(0.5)
    faster = candidate("speedup 4.0")
    again = server.submit("speedup 3.0", parent_source=faster, rewards=["kernel_smith@1"])
    assert again["rewards"]["kernel_smith@1"] == pytest.approx(0.75)
    both = submission(parent="one", parent_source=parent)
    assert "either parent or parent_source" in server.ask.post("/v1/jobs", json=both).text


def test_a_reward_that_reads_another_baseline_says_so_at_the_door(server):
    response = server.ask.post("/v1/jobs", json=submission(rewards=["cuda_agent@1"]))
    assert response.status_code == 422
    assert "send baseline=compile" in response.json()["detail"]
    found = server.submit("speedup 2.0", rewards=["cuda_agent@1"], baseline="compile")
    assert found["rewards"] == {"cuda_agent@1": 3.0}


def test_a_wrong_candidate_is_told_what_the_search_tells_a_model(server):
    verdict = server.submit("wrong_value")["verdict"]
    assert (verdict["status"], verdict["strict"], verdict["speedup"]) == (
        "wrong_value",
        False,
        None,
    )
    assert verdict["prompt"].startswith("Verdict: wrong_value.")
    assert "stub: wrong_value" in verdict["prompt"]
    assert verdict["prompt"] in verdict["next_turn"]
    assert "smallest change" in verdict["next_turn"]


def test_a_models_reply_is_read_as_the_search_reads_it(server):
    reply = f"Here it is.\n```python\n{candidate('speedup 2.5')}```\n"
    answer = server.ask.post(
        "/v1/jobs?wait_s=30", json={"task": "rmsnorm", "completion": reply}
    ).json()
    assert answer["verdict"]["speedup"][0] == pytest.approx(2.5)


def test_a_reply_without_a_program_is_a_failure_of_its_own_and_costs_the_judge_nothing(server):
    before = len(server.judged())
    answer = server.ask.post(
        "/v1/jobs", json={"task": "rmsnorm", "completion": "I cannot.", "rewards": ["kevin@1"]}
    ).json()
    assert (answer["state"], answer["verdict"]["status"]) == ("done", "invalid_interface")
    assert answer["rewards"] == {"kevin@1": 0.0}
    assert len(server.judged()) == before


def test_a_reply_that_is_too_long_to_be_read_is_a_failure_and_no_mistake_of_the_client(server):
    reply = "so be it " * 60_000
    answer = server.ask.post(
        "/v1/jobs", json={"task": "rmsnorm", "completion": reply, "rewards": ["kevin@1"]}
    ).json()
    assert answer["rewards"] == {"kevin@1": 0.0}
    assert "540000 characters is not read" in answer["verdict"]["feedback"]


def test_the_program_of_a_reply_that_was_not_read_is_judged_when_it_is_sent_by_itself(server):
    program = candidate("speedup 2.5", marker="alone").replace("pass", "wide = max(1, 2)")
    reply = f"```python\n{program}```\nand\n```python\nmax = 3\n```\n"
    ask = functools.partial(server.ask.post, "/v1/jobs?wait_s=30")
    unread = ask(json={"task": "rmsnorm", "completion": reply}).json()
    alone = ask(json={"task": "rmsnorm", "source": program}).json()
    assert unread["verdict"]["status"] == "invalid_interface"
    assert alone["verdict"]["status"] == "correct"


def test_a_users_own_reward_can_be_asked_for_by_the_name_that_the_server_gives_it(server):
    offered = server.ask.get("/v1/service").json()["rewards"]
    (own,) = [name for name in offered if name.startswith("own.py:worth@")]
    assert server.submit("speedup 2.0", rewards=[own])["rewards"] == {own: 7.0}
    rewards = [own, "kevin@1"]
    failing = server.submit("wrong_value", rewards=rewards)  # where that function divides by zero
    assert (failing["state"], failing["rewards"]) == ("done", {own: None, "kevin@1": 0.0})


def test_a_verdict_that_cannot_be_kept_is_our_own_fault(server):
    answer = server.submit("nan", rewards=["kevin@1"])
    assert (answer["fault"], answer["rewards"]) == ("infra", {})
    assert server.ask.get("/health").status_code == 200


def test_a_judge_that_fails_again_and_again_is_no_verdict_and_no_reward(server):
    answer = server.submit("fail", rewards=["kevin@1"])
    assert (answer["state"], answer["fault"]) == ("failed", "infra")
    assert (answer["verdict"], answer["rewards"]) == (None, {})
    assert answer["attempts"] == 2
    assert "the stub fails" in answer["message"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("word", "attempts"), [("infra", 2), ("device_oom", 1)])
def test_what_the_judge_has_no_memory_for_even_alone_is_not_asked_for_again(server, word, attempts):
    answer = server.submit(word)
    assert (answer["state"], answer["fault"]) == ("failed", "infra")
    assert (answer["attempts"], answer["message"]) == (attempts, "8 GiB")


def test_a_task_that_cannot_be_judged_is_said_to_be(server):
    answer = server.submit(task="broken")
    assert (answer["fault"], answer["message"]) == ("task", "the task has no Model")


def test_a_task_is_audited_once_sound_or_not(server):
    for n in range(3):
        server.submit(f"again {n}", task="broken")
        server.submit(f"again {n}", task="weak")
    audited = (server.folder / "audited").read_text().split()
    assert (audited.count("broken"), audited.count("weak")) == (1, 1)


def test_being_correct_is_worth_nothing_known_where_a_task_is_weak(server):
    answer = server.submit("speedup 2.0", task="weak", rewards=["kevin@1"])
    assert answer["task"]["weak"] == [{"candidate": "zeros", "case": "only"}]
    assert answer["verdict"]["strict"] is False
    assert answer["rewards"] == {"kevin@1": None}


def test_equal_candidates_are_judged_once_unless_asked_for_afresh(server):
    first = server.submit("speedup 1.7", marker="twins")
    again = server.submit("speedup 1.7", marker="twins")
    assert (first["cached"], again["cached"]) == (False, True)
    assert again["verdict"] == first["verdict"]
    assert server.judged().count("twins") == 1
    assert server.submit("speedup 1.7", marker="twins", fresh=True)["cached"] is False
    assert server.judged().count("twins") == 2


def test_the_same_submission_under_its_id_is_not_repeated(server):
    once = server.submit(marker="idempotent", id="mine", fresh=True)
    assert server.submit(marker="idempotent", id="mine", fresh=True) == once
    assert server.judged().count("idempotent") == 1


def test_an_id_stands_for_one_submission_only(server):
    server.submit("speedup 1.1", id="taken")
    response = server.ask.post("/v1/jobs", json=submission("speedup 1.2", id="taken"))
    assert response.status_code == 409
    assert "take a new one" in response.json()["detail"]


@pytest.mark.parametrize(
    "pinned",
    [
        {"pins": {"evaluator": "stub-2"}},
        {"pins": {"device_class": "cuda"}},
        {"rewards": ["kevin@9"]},
    ],
)
def test_a_client_that_pinned_another_judge_or_reward_is_refused(server, pinned):
    response = server.ask.post("/v1/jobs", json=submission(**pinned))
    assert response.status_code == 409, response.text


def test_a_batch_is_taken_all_or_none(server):
    good, bad = submission(id="good"), submission(id="bad", pins={"evaluator": "stub-2"})
    assert server.ask.post("/v1/batches", json={"jobs": [good, bad]}).status_code == 409
    assert server.ask.get("/v1/jobs/good").status_code == 404


def test_waiting_ends_with_the_first_job_that_is_over(server):
    slow, fast = submission("slow 20", id="slow"), submission("slow 0.1", "fast", id="fast")
    server.ask.post("/v1/batches", json={"jobs": [slow, fast]})
    wanted = {"ids": ["slow", "fast"], "wait_s": 15}
    answers = server.ask.post("/v1/wait", json=wanted).json()["jobs"]
    assert [answer["id"] for answer in answers] == ["fast"]


def test_nobody_waits_for_a_job_that_is_not_there(server):
    began = time.monotonic()
    wanted = {"ids": ["nobody"], "wait_s": 30}
    assert server.ask.post("/v1/wait", json=wanted).status_code == 404
    assert server.ask.get("/v1/jobs/nobody?wait_s=30").status_code == 404
    assert time.monotonic() - began < 10


def test_a_job_that_is_not_over_is_answered_with_202(server):
    response = server.ask.post("/v1/jobs", json=submission("slow 0.3", "pending"))
    assert response.status_code == 202
    job = response.json()["id"]
    assert server.ask.get(f"/v1/jobs/{job}?wait_s=20").json()["state"] == "done"


def test_the_whole_verdict_can_be_fetched_to_be_scored_elsewhere(server):
    from evolve.core.evaluation import Evaluation

    job = server.submit("speedup 2.0", "whole")["id"]
    found = Evaluation.from_json(server.ask.get(f"/v1/jobs/{job}/evaluation").json())
    assert found.ratios["eager"].value == pytest.approx(2.0)


@pytest.mark.parametrize("task", ["../../etc/passwd", "/etc/passwd", "./weak.py", "weak.py"])
def test_no_path_of_a_request_is_opened(server, task):
    response = server.ask.post("/v1/jobs", json=submission(task=task))
    assert response.status_code == 422
    assert "has no task of that name" in response.json()["detail"]


def test_a_reference_that_the_server_does_not_hold_is_refused(server):
    body = {"reference": "class Model: ...\n", "source": candidate()}
    response = server.ask.post("/v1/jobs", json=body)
    assert response.status_code == 422
    assert "references=any" in response.json()["detail"]


def test_a_reference_that_the_server_holds_is_known_whatever_its_layout(server):
    text = f"# mine\nWEAK   = True\n\n\n{EMPTY_TASK}"
    answer = server.ask.post(
        "/v1/jobs?wait_s=30", json={"reference": text, "source": candidate("by text")}
    ).json()
    assert answer["task"]["name"] == "weak"


def test_a_field_that_nothing_reads_is_refused(server):
    response = server.ask.post("/v1/jobs", json=submission(rewrds=["kevin@1"]))
    assert response.status_code == 422


def test_health_and_metrics_say_what_is_going_on(server):
    assert server.ask.get("/health").json()["status"] == "healthy"
    lines = server.ask.get("/metrics").text.splitlines()
    assert any(line.startswith('evolve_serve_verdicts_total{status="correct"}') for line in lines)
    about = server.ask.get("/v1/service").json()
    assert (about["evaluator_version"], about["slots"]) == ("stub-1", 4)


@pytest.fixture(scope="module")
def short_queue(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("short"), slots=1, queue=2) as running:
        yield running


def test_a_batch_that_never_fits_is_told_so(short_queue):
    jobs = [submission(f"number {n}") for n in range(3)]
    response = short_queue.ask.post("/v1/batches", json={"jobs": jobs})
    assert response.status_code == 422
    assert "never fit" in response.json()["detail"]


def test_a_queue_that_is_full_says_when_to_come_back(short_queue):
    codes = []
    for n in range(6):
        response = short_queue.ask.post("/v1/jobs", json=submission("slow 5", f"number {n}"))
        codes.append(response.status_code)
    assert codes[-1] == 429
    assert 202 in codes
    assert 1 <= int(response.headers["Retry-After"]) <= 60


@pytest.mark.slow
def test_a_job_that_waits_too_long_expires_without_a_verdict(tmp_path):
    with serving(tmp_path, slots=1) as server:
        server.ask.post("/v1/jobs", json=submission("slow 30"))
        answer = server.submit("second", queue_s=1, rewards=["kevin@1"])
        assert (answer["state"], answer["fault"], answer["rewards"]) == ("failed", "expired", {})


@pytest.mark.slow
def test_waiting_for_the_judge_counts_against_nobody(tmp_path):
    """The time in the queue is over the deadline of no stage; the verdict is as it would be."""
    with serving(tmp_path, slots=1) as server:
        server.ask.post("/v1/jobs", json=submission("slow 1.5"))
        answer = server.submit("speedup 2.0")
        assert answer["verdict"]["status"] == "correct"
        assert answer["queued_s"] > 1
        assert answer["judged_s"] < 1


@pytest.mark.slow
def test_a_queued_job_that_pinned_a_judge_is_not_judged_by_its_successor(tmp_path):
    with serving(tmp_path, slots=1) as server:
        server.ask.post("/v1/jobs", json=submission("slow 30"))
        server.ask.post("/v1/jobs", json=submission(id="pinned", pins={"evaluator": "stub-1"}))
        server.kill()
    with serving(tmp_path, version="stub-2") as server:
        answer = server.ask.get("/v1/jobs/pinned?wait_s=20").json()
        assert (answer["state"], answer["fault"]) == ("failed", "pin")


@pytest.mark.slow
def test_one_file_of_jobs_has_one_server(tmp_path):
    with (
        serving(tmp_path),
        pytest.raises(AssertionError, match="did not come up"),
        serving(tmp_path),
    ):
        pass


def test_a_server_that_is_killed_loses_nothing(tmp_path):
    with serving(tmp_path, slots=2) as server:
        for n in range(8):
            body = submission("slow 0.2", id=f"job{n}", marker=f"job{n}")
            server.ask.post("/v1/jobs", json=body)
        done = server.ask.get("/v1/jobs/job0?wait_s=20").json()
        server.kill()
    with serving(tmp_path, slots=2) as server:
        answers = [server.ask.get(f"/v1/jobs/job{n}?wait_s=20").json() for n in range(8)]
        assert [answer["state"] for answer in answers] == ["done"] * 8
        assert answers[0] == done
        assert server.judged().count("job0") == 1


@pytest.mark.slow
def test_a_candidate_that_ends_every_server_is_given_up(tmp_path):
    for _ in range(2):
        with serving(tmp_path, attempts=2) as server:
            server.ask.post("/v1/jobs", json=submission("slow 30", id="killer"))
            for _ in range(100):
                if server.ask.get("/health").json()["running"]:
                    break
            server.kill()
    with serving(tmp_path, attempts=2) as server:
        answer = server.ask.get("/v1/jobs/killer?wait_s=5").json()
        assert (answer["state"], answer["fault"]) == ("failed", "infra")


@pytest.mark.slow
def test_a_clean_stop_is_no_attempt(tmp_path):
    with serving(tmp_path, attempts=1) as server:
        server.ask.post("/v1/jobs", json=submission("slow 30", id="patient"))
        _wait_until(lambda: server.ask.get("/health").json()["running"])
        server.stop()
    with serving(tmp_path, attempts=1) as server:
        _wait_until(lambda: server.ask.get("/health").json()["running"])
        answer = server.ask.get("/v1/jobs/patient").json()
        assert (answer["state"], answer["attempts"]) == ("running", 1)


def _wait_until(holds) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


@pytest.mark.slow  # known answers are in the tests above
def test_what_became_known_while_a_job_waited_is_its_answer(tmp_path):
    with serving(tmp_path, slots=1) as server:
        twins = [submission("slow 0.5", id=f"twin{n}", marker="twin") for n in range(3)]
        server.ask.post("/v1/batches", json={"jobs": twins})
        answers = [server.ask.get(f"/v1/jobs/twin{n}?wait_s=20").json() for n in range(3)]
        assert [answer["cached"] for answer in answers] == [False, True, True]
        assert server.judged() == ["twin"]


@pytest.mark.slow
def test_a_disk_that_fails_is_waited_for(tmp_path):
    """The verdict is not lost, nobody else is turned away for good, and health tells no secrets."""
    with serving(tmp_path, slots=2) as server:
        server.ask.post("/v1/jobs", json=submission("slow 0.5", id="waiting", marker="waiting"))
        _wait_until(lambda: server.ask.get("/health").json()["running"])
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        _wait_until(lambda: server.ask.get("/health").status_code == 503)
        assert str(tmp_path) not in server.ask.get("/health").text
        assert server.ask.post("/v1/jobs", json=submission("refused")).status_code == 503
        assert server.process.poll() is None
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
        assert server.ask.get("/v1/jobs/waiting?wait_s=20").json()["state"] == "done"
        assert server.judged() == ["waiting"]
        assert server.submit("afterwards")["state"] == "done"


def test_a_reply_without_a_program_is_never_judged_also_where_a_server_was_killed_before(tmp_path):
    """Between taking the submission and answering it at once."""
    task = find_task("rmsnorm", size="tiny")
    order = AcceptedSubmission(
        id="unread", task=task, source="", reading=ReplyStatus.NO_CODE, note="no code"
    )
    jobs = Jobs(tmp_path / "serve.db")
    new = NewJob(
        id="unread",
        digest=order.digest,
        key="any",
        revision=task.revision,
        request=order.kept(),
        queue_s=60,
    )
    jobs.add([new], {task.revision: task.to_json()})
    jobs.close()
    with serving(tmp_path) as server:
        answer = server.ask.get("/v1/jobs/unread?wait_s=20").json()
        assert (answer["state"], answer["verdict"]["status"]) == ("done", "invalid_interface")
        assert server.judged() == []


def test_a_body_that_is_too_long_is_not_read_to_its_end(server):
    response = server.ask.post("/v1/jobs", content=b"x" * ((16 << 20) + 1))
    assert response.status_code == 413

    def chunks():
        for _ in range(20):
            yield b"x" * (1 << 20)

    try:
        response = server.ask.post("/v1/jobs", content=chunks())
        assert response.status_code == 413
    except httpx.WriteError:
        pass  # the server has hung up
    assert server.ask.get("/health").status_code == 200


def test_an_answer_is_not_held_back_for_the_clients_acknowledgement(server):
    """Without TCP_NODELAY every one of them takes the 40 ms of a delayed acknowledgement."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        server.ask.get("/v1/service")
        took.append(time.perf_counter() - began)
    assert min(took) < 0.03
