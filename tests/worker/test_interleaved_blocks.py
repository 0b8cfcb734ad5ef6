"""The clock: taken outside, over inputs never seen before, ended by bytes that the judge took.

Invariants:
- work that is late, skipped, remembered or done by somebody else makes a candidate wrong, not fast;
- a program timed against itself is not found faster or slower;
- every ratio has an interval and its raw samples.

Windows and rounds are in `test_rounds`.
"""

import math
import re
from dataclasses import replace

import pytest

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import CLEARLY_SLOWER
from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.judge.judge import Judge
from evolve.worker.session.plan import plan_for
from evolve.worker.timing.interleaved_blocks import PairTimes
from evolve.worker.timing.results import merged
from tests.worker.serving import HONEST_CPP, RELU_TASK, TIMED, WIDE, Worker, forward

pytestmark = pytest.mark.quiet
# Its calls take too long to be given one by one.
LONG_TASK = replace(
    RELU_TASK, name="long relu", source=RELU_TASK.source.replace("64, 256", "1024, 1024")
)


def test_an_honest_kernel_is_correct_custom_and_timed_with_an_interval(worker):
    verdict = worker.evaluate(HONEST_CPP, fidelity="search")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.stage is Stage.TIMING
    assert verdict.custom
    assert verdict.suite
    ratio = verdict.ratios["eager"]
    assert 0 < ratio.low <= ratio.value <= ratio.high
    (case,) = verdict.cases
    assert set(case.times_ms) == {"candidate", "eager"}
    assert verdict.device_time_s > 0
    sides = verdict.samples["default"]["ms"]
    pairs = len(sides["candidate"])
    assert pairs == len(sides["eager"])
    device = CpuDevice()
    device.half_width = WIDE
    assert pairs in plan_for(Fidelity.SEARCH, device).pairs
    # The width of what is clearly slower is of no interest.
    assert pairs > 1 or ratio.half_width <= WIDE or ratio.high < CLEARLY_SLOWER
    assert {"compile", "smoke", "correctness", "labels", "timing"} <= set(verdict.durations_s)
    assert 0 <= verdict.descriptors["error"] <= 1
    assert 0 <= verdict.descriptors.get("memory_bytes", 0) < 16 << 20  # code, mostly
    assert verdict.environment["compiler"]


def test_plain_torch_is_correct_but_not_custom(worker):
    verdict = worker.evaluate(forward("return right(x)"), fidelity="check")
    assert verdict.status is Status.CORRECT
    assert verdict.custom is False
    assert not verdict.strict


def test_a_decoy_kernel_beside_torch_is_not_custom(worker):
    decoy = HONEST_CPP.replace("return y", "return torch.relu(x) * 2 + x")
    verdict = worker.evaluate(decoy)
    assert verdict.status is Status.CORRECT
    assert verdict.custom is False
    assert "decoy_kernel" in [label.name for label in verdict.labels]


CHEATS = {
    "work in a thread after returning": """
y = torch.zeros_like(x)
def late():
    time.sleep(0.02)
    y.copy_(right(x))
threading.Thread(target=late).start()
return y
""",
    "work in a thread while timed only": """
self.n = getattr(self, 'n', 0) + 1
if self.n < 40:
    return right(x)
y = torch.zeros_like(x)
def late():
    time.sleep(0.005)
    y.copy_(right(x))
threading.Thread(target=late).start()
return y
""",
    "the outcome of an earlier call": """
self.n = getattr(self, 'n', 0) + 1
if self.n > 40 and self.n % 2:
    return self.y.clone()
self.y = right(x)
return self.y.clone()
""",
    "memory that the reference has freed": "return torch.empty_like(x)",
}


@pytest.mark.parametrize("name", CHEATS)
def test_work_that_is_late_or_skipped_is_wrong_not_fast(worker, name):
    verdict = worker.evaluate(forward(CHEATS[name]))
    assert verdict.status in (
        Status.WRONG_VALUE, Status.NONDETERMINISTIC, Status.TIMING_UNBOUNDED, Status.ALIASED
    ), verdict.feedback  # fmt: skip
    assert not verdict.ratios


def test_how_an_output_of_the_timed_run_was_wrong_is_not_told(worker):
    """Who may choose how could have it say which calls are judged."""
    body = TIMED + 'return (3.0 if "_run" in names else 1.0) * right(x)'
    verdict = worker.evaluate(forward(body))
    assert verdict.status is Status.WRONG_VALUE
    assert "output of the timed run was wrong" in verdict.feedback
    assert not re.search(r"\d|pattern", verdict.feedback.partition("wrong")[2]), verdict.feedback


def fastest_ms(verdict: Evaluation) -> float:
    """Of a call of the candidate: nothing shortens a sleep, and a busy machine moves ratios."""
    return min(min(times) for times in verdict.samples["default"]["ms"]["candidate"])


def test_remembering_outcomes_by_content_gains_nothing(worker):
    before = "memory = {}"
    body = """
key = x.numpy().tobytes()
if key not in memory:
    time.sleep(0.001)
    memory[key] = right(x)
return memory[key].clone()
"""
    verdict = worker.evaluate(forward(body, before))
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert fastest_ms(verdict) >= 1


def test_while_inputs_are_staged_there_is_nothing_to_compute_on(worker):
    before = """
from evolve.worker.runner import runner
outcomes = {}
stage = runner.Runner._stage
def ahead(self, channel, size, trees, fd):
    memory = self._access.stage(fd, size, self._writes)
    self._staged = [runner.tensor_buffer.unpack(tree, memory) for tree in trees]
    for (x,) in self._staged:
        outcomes[x.data_ptr()] = right(x)
    runner.messages.send_ack(channel)
runner.Runner._stage = ahead
"""
    body = "y = outcomes.get(x.data_ptr())\nreturn right(x) if y is None else y"
    verdict = worker.evaluate(forward(body, before))
    assert verdict.status is Status.WRONG_VALUE, verdict.ratios
    assert "timed run" in verdict.feedback


@pytest.mark.parametrize(("alone_s", "eager_alone_s", "is_merged"), [
    (0.009, 0.0012, True), (0.003, 0.0012, False), (0.009, 0.008, False),
])  # fmt: skip
def test_calls_that_are_done_together_are_labelled(alone_s, eager_alone_s, is_merged):
    """A call by itself takes many times as long as in a block, and the reference's does not."""
    blocks = {"main": {CANDIDATE: 6 * [0.001], EAGER: 6 * [0.001]}}
    singles = {"main": {CANDIDATE: alone_s, EAGER: eager_alone_s}}
    label = merged([PairTimes(blocks=blocks, singles=singles)], "main")
    assert (label is not None and label.name == "calls_merged") == is_merged


@pytest.mark.slow  # r05_patched_clocks of the red team is quick
def test_a_clock_patched_inside_the_process_changes_nothing(worker):
    before = "time.perf_counter = lambda: 0.0"
    verdict = worker.evaluate(forward("time.sleep(0.001); return right(x)", before))
    assert fastest_ms(verdict) >= 1
    assert "timing_mismatch" in [label.name for label in verdict.labels]


@pytest.mark.slow
def test_threads_that_spin_while_the_baseline_is_timed_are_found(worker):
    before = """
def spin():
    while True:
        pass
"""
    body = """
if not hasattr(self, 'thread'):
    self.thread = threading.Thread(target=spin, daemon=True)
    self.thread.start()
return right(x)
"""
    verdict = worker.evaluate(forward(body, before))
    assert verdict.status is Status.TIMING_UNBOUNDED
    assert not verdict.ratios


def test_helpers_that_outlive_forward_are_found(worker):
    body = """
if not hasattr(self, 'helper'):
    self.helper = os.fork()
    if self.helper == 0:
        os.setsid()
        time.sleep(600)
return right(x)
"""
    verdict = worker.evaluate(forward(body))
    assert verdict.status is Status.TIMING_UNBOUNDED, verdict.feedback


@pytest.mark.slow
def test_a_candidate_that_is_very_slow_is_timed_briefly(worker):
    verdict = worker.evaluate(forward("time.sleep(0.05); return right(x)"))
    assert verdict.status is Status.CORRECT
    assert verdict.ratios["eager"].value < 0.01
    assert verdict.ratios["eager"].high < 0.1  # what the reference takes is next to a window's cost
    assert verdict.samples["default"]["calls_per_block"] <= 10


@pytest.mark.slow
def test_a_candidate_that_is_hopelessly_slow_is_not_timed(worker):
    # Every call of the checks would cost the test seconds: only the last ones are that slow.
    body = "self.n = getattr(self, 'n', 0) + 1\nif self.n > 12: time.sleep(3.2)\nreturn right(x)"
    verdict = worker.evaluate(forward(body))
    assert verdict.status is Status.TIMEOUT
    assert verdict.stage is Stage.CORRECTNESS


@pytest.mark.slow
def test_an_opponent_is_timed_in_the_same_run(worker):
    slow = forward("time.sleep(0.003); return right(x)")
    verdict = worker.evaluate(HONEST_CPP, opponents={"file:slow.py": slow})
    assert verdict.ratios["file:slow.py"].low > 2
    assert "eager" in verdict.ratios


def test_an_opponent_that_fails_is_named_and_does_not_fail_the_candidate(worker):
    verdict = worker.evaluate(HONEST_CPP, opponents={"elite": forward("return x * 3")})
    assert verdict.status is Status.CORRECT
    assert set(verdict.ratios) == {"eager"}
    (label,) = [label for label in verdict.labels if label.name == "opponent_failed"]
    assert "elite" in label.evidence
    assert "default" in label.evidence


@pytest.mark.slow  # no verdict hangs on it
def test_a_program_timed_against_itself_shows_no_gain(worker):
    noise = worker.ask("noise", task=RELU_TASK.to_json())
    value, low, high = noise["ratio"]
    assert low <= value <= high
    assert abs(math.log(value)) < 0.3
    assert 0 < noise["device_seconds_per_evaluation"] < noise["seconds_per_evaluation"]
    assert noise["reference_ms"][0] > 0


def test_a_triton_program_is_checked_without_a_gpu_and_claims_no_speed(worker):
    pytest.importorskip("triton")
    source = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * 2 + value, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
    verdict = worker.evaluate(source)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.stage is Stage.CORRECTNESS
    assert not verdict.ratios
    assert "interpreted" in verdict.feedback


@pytest.mark.slow  # effects are timed and judged in test_practice too
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "body, candidate, status",
    [
        ("x.mul_(2)", "x.mul_(2)", Status.CORRECT),
        ("x.mul_(2)", "x * 2", Status.WRONG_VALUE),  # the input is as it was
        ("x", "x", Status.CORRECT),
        ("x", "x.clone()", Status.CORRECT),
        ("x", "x.mul_(2)", Status.MUTATED_INPUT),
    ],
)
def test_a_reference_that_returns_its_input_is_judged_with_its_effect(
    worker, body, candidate, status
):
    source = RELU_TASK.source.replace("torch.relu(x) * 2 + x", body)
    assert source != RELU_TASK.source
    task = replace(RELU_TASK, name="gives-its-input", source=source).to_json()
    program = forward(f"return {candidate}")
    reply = worker.send("evaluate", task=task, source=program, fidelity="screen").result(100)
    verdict = Evaluation.from_json(reply["result"])
    assert verdict.status is status, verdict.feedback
    assert "eager" in verdict.ratios or status is not Status.CORRECT


@pytest.mark.slow
def test_who_judges_with_wider_intervals_is_another_judge(worker, tmp_path):
    content = Worker(tmp_path / "content", "--half-width", "0.5")
    try:
        usual, _, width = worker.ask("hello")["evaluator_version"].rpartition("-w")
        assert float(width) == WIDE
        assert content.ask("hello")["evaluator_version"] == f"{usual}-w0.5"
    finally:
        content.close()


@pytest.mark.slow
def test_of_a_program_that_is_clearly_slower_one_pair_is_enough(worker):
    slow = forward("time.sleep(0.002)\nreturn right(x)", "import time")
    verdict = worker.evaluate(slow, fidelity="search")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios["eager"].high < CLEARLY_SLOWER
    assert len(verdict.samples["default"]["ms"]["eager"]) == 1


class NeverContent(CpuDevice):
    """Times whatever it is asked for with as many pairs as the fidelity has."""

    half_width = 0.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_verification_has_many_pairs_for_sides_that_are_close_only(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    judge = Judge(NeverContent(), tmp_path / "cache")
    slow = RELU_TASK.source.replace("return ", "time.sleep(0.002)\n        return ", 1)
    far = replace(RELU_TASK, source=f"import time\n{slow}")
    try:
        found = [
            judge.evaluate(task, forward("return right(x)"), Fidelity.VERIFY, {})
            for task in (RELU_TASK, far)
        ]
        slow_one = forward("time.sleep(0.002)\nreturn right(x)", "import time")
        behind = judge.evaluate(RELU_TASK, slow_one, Fidelity.VERIFY, {})
    finally:
        judge.close()
    pairs = [len(each.samples["default"]["ms"]["eager"]) for each in (*found, behind)]
    assert pairs == [32, 14, 8]
