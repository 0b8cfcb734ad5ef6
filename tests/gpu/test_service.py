"""The judge on a GPU.

Invariants:
- a right kernel is correct, custom, and timed with an interval; plain torch is not custom;
- late, skipped, remembered or misplaced work makes a candidate wrong, not fast;
- whatever a candidate does to its own process or context, the next candidate gets its verdict.
"""

import pytest

from evolve.core.evaluation import Stage, Status
from tests.gpu.programs import RIGHT, SMALL, TASK, torch_program, triton_program


def test_a_right_kernel_is_correct_custom_and_timed_with_an_interval(worker):
    verdict = worker.evaluate(RIGHT, TASK, fidelity="search")
    print(verdict.ratios, verdict.cases, verdict.durations_s, verdict.environment, verdict.labels)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.stage is Stage.TIMING
    assert verdict.custom
    ratio = verdict.ratios["eager"]
    assert ratio.low > 1.2  # two passes over memory instead of six
    assert ratio.half_width < 0.02
    assert not [label for label in verdict.labels if label.name == "foreign_process"]


def test_a_launch_bound_kernel_is_timed(worker):
    verdict = worker.evaluate(RIGHT, SMALL, fidelity="search")
    print(verdict.ratios, verdict.cases, verdict.durations_s)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios


def test_plain_torch_is_correct_but_not_custom_and_ties(worker):
    verdict = worker.evaluate(torch_program("return right(x)"), TASK, fidelity="search")
    print(verdict.ratios, verdict.durations_s)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom is False
    assert 0.97 < verdict.ratios["eager"].value < 1.03


WRONG = {
    "values": triton_program("tl.maximum(value, 0.0) * 2"),
    "the tail is left out": triton_program(grid="(triton.cdiv(x.numel(), BLOCK) - 1,)"),
    "nothing is written": torch_program("return torch.empty_like(x)"),
    "zeros": torch_program("return torch.zeros_like(x)"),
    "half precision": torch_program("return right(x.half()).float()"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_outcomes_are_wrong(worker, name):
    verdict = worker.evaluate(WRONG[name], TASK)
    print(name, verdict.status, verdict.feedback, verdict.durations_s)
    assert verdict.status is Status.WRONG_VALUE


LATE = {
    "a side stream nobody joins": (
        torch_program(
            "y = torch.zeros_like(x)\n"
            "with torch.cuda.stream(side):\n"
            "    torch.cuda._sleep(2_000_000)\n"
            "    y.copy_(right(x))\n"
            "return y",
            "side = torch.cuda.Stream()\ntorch.cuda.synchronize = lambda *a: None",
        )
    ),
    "a thread after returning": torch_program(
        "y = torch.zeros_like(x)\n"
        "def late():\n"
        "    time.sleep(0.02)\n"
        "    y.copy_(right(x))\n"
        "threading.Thread(target=late).start()\n"
        "return y"
    ),
    "an outcome of an earlier call": torch_program(
        "self.n = getattr(self, 'n', 0) + 1\n"
        "if self.n > 40 and self.n % 2:\n"
        "    return self.y.clone()\n"
        "self.y = right(x)\n"
        "return self.y.clone()"
    ),
    "an input passed on": torch_program("return x"),
}


@pytest.mark.parametrize("name", LATE)
def test_work_that_is_late_or_skipped_is_wrong_not_fast(worker, name):
    verdict = worker.evaluate(LATE[name], SMALL, fidelity="search")
    print(name, verdict.status, verdict.feedback, verdict.ratios)
    assert verdict.status in (
        Status.WRONG_VALUE, Status.NONDETERMINISTIC, Status.TIMING_UNBOUNDED, Status.ALIASED,
        Status.ILLEGAL_ACCESS,  # what reads its inputs later finds them gone
    )  # fmt: skip


def test_writing_to_the_inputs_is_found(worker):
    verdict = worker.evaluate(torch_program("y = right(x)\nx.zero_()\nreturn y"), TASK)
    assert verdict.status is Status.MUTATED_INPUT


VIOLENT = {
    "an illegal access": (RIGHT.replace("x + at", "x + at * 1000003"), Status.ILLEGAL_ACCESS),
    "a kernel without end": (
        torch_program("while True:\n    torch.cuda._sleep(1 << 40)\n    torch.cuda.synchronize()"),
        Status.TIMEOUT,
    ),
    "a segmentation fault": (
        torch_program("import ctypes\nctypes.string_at(0)"),
        Status.ILLEGAL_ACCESS,
    ),
    "an exit": (torch_program("os._exit(0)"), Status.KILLED),
    "too much device memory": (
        torch_program("a = torch.empty(1 << 42, device='cuda')\nreturn right(x)"),
        Status.OOM,
    ),
    "a device assert": (
        torch_program(
            "i = torch.full((1,), 9, device='cuda')\ntorch.ones(1, device='cuda')[i]\n"
            "torch.cuda.synchronize()\nreturn right(x)"
        ),
        Status.ASSERT,
    ),
    "an exception": (torch_program("raise ValueError('no')"), Status.RUNTIME_EXCEPTION),
    "a syntax error": ("class ModelNew(:", Status.COMPILE_ERROR),
    "a Triton error": (triton_program("tl.no_such_thing(value)"), None),
}


@pytest.mark.parametrize("name", VIOLENT)
def test_a_violent_candidate_harms_nobody_else(worker, name):
    source, status = VIOLENT[name]
    verdict = worker.evaluate(source, SMALL)
    print(name, verdict.status, verdict.feedback, verdict.durations_s)
    assert status is None or verdict.status is status
    assert verdict.status is not Status.CORRECT
    again = worker.evaluate(RIGHT, SMALL, fidelity="check")
    assert again.status is Status.CORRECT, again.feedback


def test_a_program_against_itself_shows_no_gain(worker):
    noise = worker.ask("noise", task=TASK.to_json())
    print(noise)
    assert abs(noise["ratio"][0] - 1) < 0.02
    assert noise["half_width"] < 0.02


def test_no_candidate_sees_how_many_queues_it_has(worker):
    told = "raise ValueError(os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS', 'not said'))"
    assert "ValueError: not said" in worker.evaluate(torch_program(told), SMALL).feedback
