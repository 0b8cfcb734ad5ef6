"""KernelGYM's interface, asked as its reward client asks.

The steps and names are those of `drkernel/kernel/rewards/reward_client.py` (hkust-nlp/KernelGYM at
3a84417): post, poll the status, fetch the result.
"""

import time

import pytest

from evolve.serve.kernelgym import MAX_TRIES
from tests.serve.serving import candidate, serving

REFERENCE = "import torch\n\nclass Model(torch.nn.Module):\n    pass\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gym")
    with serving(folder, references="any", attempts=2, retry_s=0.01) as running:
        yield running


def submit_and_poll(server, kernel: str, task_id: str, **fields) -> dict:
    """What its worker does with one candidate; reasons of a 503 are added to `refused`."""
    refused = fields.pop("refused", [])
    payload = {
        "task_id": task_id,
        "reference_code": REFERENCE,
        "kernel_code": kernel,
        "backend": "triton",
        "num_correct_trials": 5,
        "num_perf_trials": 100,
        "timeout": 300,
        "priority": "normal",
        "entry_point": "Model",
        "is_valid": False,
        "verbose_errors": True,
        "enable_profiling": True,
        "detect_decoy_kernel": True,
        "reference_backend": None,
    } | fields
    while (answer := server.ask.post("/kernelgym/evaluate", json=payload)).status_code == 503:
        refused.append(answer.json()["detail"])  # it waits here, and longer each time
    assert answer.status_code == 200
    for _ in range(100):
        data = server.ask.get(f"/kernelgym/status/{task_id}").json()
        if data["status"] == "completed":
            result = server.ask.get(f"/kernelgym/results/{task_id}").json()
            result["status"] = data["status"]
            return result
        if data["status"] in ("failed", "timeout", "cancelled"):
            return {"status": data["status"], "error_message": data["error_message"]}
        time.sleep(0.1)
    raise AssertionError("it did not end")


def test_a_correct_kernel_has_the_fields_that_its_rewards_read(server):
    result = submit_and_poll(server, candidate("speedup 2.0"), "right")
    assert (result["compiled"], result["correctness"], result["decoy_kernel"]) == (
        True,
        True,
        False,
    )
    assert result["speedup"] == pytest.approx(2.0)
    assert result["reference_runtime"] / result["kernel_runtime"] == pytest.approx(2.0)
    metadata = result["metadata"]
    coverage = (
        metadata["custom_kernel_cuda_time_in_profiling_us"]
        / metadata["total_kernel_run_time_in_profiling_us"]
    )
    assert coverage == pytest.approx(0.5)


def test_a_speedup_that_may_be_none_is_exactly_one(server):
    result = submit_and_poll(server, candidate("speedup 1.005"), "none")
    assert result["speedup"] == 1.0
    assert result["metadata"]["speedup_interval"][0] == pytest.approx(1.005)


def test_a_wrong_kernel_is_completed_and_not_correct(server):
    result = submit_and_poll(server, candidate("wrong_value"), "wrong")
    assert (result["status"], result["compiled"], result["correctness"]) == (
        "completed",
        True,
        False,
    )
    assert (result["speedup"], result["error_code"]) == (0.0, "CORRECTNESS_ERROR")
    assert "stub: wrong_value" in result["error_message"]


def test_a_kernel_that_does_not_compile_has_failed_there(server):
    result = submit_and_poll(server, candidate("compile_error"), "broken")
    assert result["status"] == "failed"
    assert result["error_message"].startswith("compile_error")


def test_a_kernel_that_is_too_long_to_be_read_has_failed_there(server):
    kernel = candidate("speedup 2.0") + "#" * 400_000
    result = submit_and_poll(server, kernel, "long")
    assert result["status"] == "failed"
    assert "is not read" in result["error_message"]


def test_after_a_fault_of_ours_its_client_comes_back_and_is_told_the_truth(server):
    """It has no way to leave a row out, but it comes back after a 503."""
    refused = []
    kernel = candidate("fail_once", "speedup 2.0", marker="f1")
    result = submit_and_poll(server, kernel, "once", refused=refused)
    assert (result["correctness"], result["speedup"]) == (True, pytest.approx(2.0))
    assert refused == []  # the service itself tries twice
    kernel = candidate("fail", marker="f2")
    payload = {"task_id": "ours", "reference_code": REFERENCE, "kernel_code": kernel}
    for _ in range(2):
        answer = server.ask.post("/kernelgym/evaluate", json=payload)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"].startswith("infra: ")
        assert server.ask.get("/kernelgym/results/ours").status_code == 404
    assert server.ask.get("/kernelgym/status/ours").json()["status"] == "pending"
    assert server.ask.get("/v1/jobs/ours").json()["attempts"] >= 3


@pytest.mark.slow  # the tries of a judge are in test_service
def test_what_ends_every_judge_is_given_up_in_the_end(server):
    """Its client may ask without end."""
    refused = []
    result = submit_and_poll(server, candidate("fail", marker="f3"), "always", refused=refused)
    assert result["status"] == "failed"
    assert len(refused) == MAX_TRIES - 2
    found = server.ask.get("/kernelgym/results/always").json()
    assert (found["error_code"], found["metadata"]) == ("SYSTEM_ERROR", {"fault": "infra"})
    assert found["correctness"] is None


def test_what_could_not_be_timed_is_timed_again(server):
    refused = []
    kernel = candidate("untimed_once", "speedup 2.0", marker="u1")
    result = submit_and_poll(server, kernel, "untimed", refused=refused)
    assert refused == ["it is correct, and could not be timed; ask again"]
    assert result["speedup"] == pytest.approx(2.0)


def test_what_can_never_be_timed_is_correct_without_a_speedup(server):
    refused = []
    result = submit_and_poll(server, candidate("untimed", marker="u2"), "never", refused=refused)
    assert len(refused) == 1
    assert (result["status"], result["correctness"], result["speedup"]) == ("completed", True, 0.0)
    again = submit_and_poll(server, candidate("untimed", marker="u2"), "equal", refused=refused)
    assert (again["correctness"], len(refused)) == (True, 2)
    assert server.judged().count("u2") == 4  # what is known of an equal one does not do


def test_a_batch_in_which_one_could_not_be_timed_is_asked_for_again(server):
    tasks = [
        {"task_id": f"t{n}", "reference_code": REFERENCE, "kernel_code": candidate(*words)}
        for n, words in enumerate([["speedup 2.0"], ["untimed_once", "marker u3"]])
    ]
    body = {"batch_id": "t", "tasks": tasks}
    assert server.ask.post("/kernelgym/evaluate/batch", json=body).status_code == 503
    answer = server.ask.post("/kernelgym/evaluate/batch", json=body).json()
    assert [result["speedup"] for result in answer["results"]] == [2.0, 1.5]


def test_on_a_weak_task_right_and_wrong_get_the_same(server):
    """Its client has no way to leave a row out, but equal rows of a group teach nothing."""
    weak = f"WEAK = True\n{REFERENCE}"
    for number, words in enumerate(("speedup 2.0", "wrong_value")):
        kernel, task_id = candidate(words), f"weak{number}"
        result = submit_and_poll(server, kernel, task_id, reference_code=weak)
        assert result["status"] == "failed"
        found = server.ask.get(f"/kernelgym/results/{task_id}").json()
        assert (found["metadata"], found["correctness"]) == ({"fault": "weak_task"}, None)


def test_classes_may_be_called_after_an_entry_point(server):
    kernel = candidate("speedup 2.0").replace("ModelNew", "SoftmaxNew")
    reference = REFERENCE.replace("Model(", "Softmax(")
    result = submit_and_poll(
        server, kernel, "named", reference_code=reference, entry_point="Softmax"
    )
    assert result["correctness"] is True


def test_torch_compile_as_the_reference_is_a_baseline_of_ours(server):
    result = submit_and_poll(
        server, candidate("speedup 2.0"), "compiled", reference_backend="torch_compile"
    )
    assert result["speedup"] == pytest.approx(2.0)
    job = server.ask.get("/v1/jobs/compiled").json()
    assert job["baseline"] == "compile"


def test_a_batch_is_answered_in_order(server):
    tasks = [
        {"task_id": f"b{n}", "reference_code": REFERENCE, "kernel_code": candidate(words)}
        for n, words in enumerate(["speedup 2.0", "compile_error"])
    ]
    answer = server.ask.post(
        "/kernelgym/evaluate/batch", json={"batch_id": "b", "tasks": tasks}
    ).json()
    assert [result["task_id"] for result in answer["results"]] == ["b0", "b1"]
    assert (answer["completed_tasks"], answer["failed_tasks"]) == (1, 1)


def test_its_trainer_finds_the_server_healthy(server):
    assert server.ask.get("/kernelgym/health").json()["status"] == "healthy"


def test_a_task_that_nobody_has_submitted_is_not_found(server):
    assert server.ask.get("/kernelgym/status/nobody").status_code == 404
    assert server.ask.get("/kernelgym/results/nobody").status_code == 404
