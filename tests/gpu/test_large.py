"""Tasks of several GB, as KernelBench has them: one input of 6.4 GB, and an output as large.

Invariants:
- they are judged like small ones: right is correct and timed, wrong is wrong and said to be so;
- torch.compile is timed beside them, and their outputs judged;
- several at once wait for room, and none fails for want of it, nor does an audit beside them;
- an eager reference with many temporaries is timed, however little room its outputs leave;
- what a model takes that is made on the GPU is known before it is called;
- what is expected does not depend on where it is worked out.
"""

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from evolve.core.evaluation import Evaluation, Status
from evolve.worker.base import shortage
from evolve.worker.correctness import convolution
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.fp64_truth import evaluate_truth
from evolve.worker.correctness.output_sizes import extent_of
from evolve.worker.ipc.tensor_buffer import Outline, Packed
from tests.gpu.programs import RIGHT, TASK, torch_program, triton_program

LARGE = replace(TASK, name="relu2-large", source=TASK.source.replace("4096, 4096", "4096, 393216"))
GROWING = replace(
    LARGE,
    name="outer",
    source=LARGE.source.replace("torch.relu(x) * 2 + x", "x * x.T").replace(
        "4096, 393216", "32768, 1"
    ),
)

# 1.6 GiB, and four times that while eager computes it.
GELU = "0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))"
MEDIUM = replace(
    TASK,
    name="gelu-medium",
    source=TASK.source.replace("torch.relu(x) * 2 + x", GELU).replace("4096, 4096", "4096, 104858"),
)
SAME = f"""
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {GELU}
"""

OUTER = """
import torch
import triton
import triton.language as tl

@triton.jit
def outer(x, y, n, B: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + row * n + at, tl.load(x + row) * tl.load(x + at, mask=at < n), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        y = torch.empty(n, n, device=x.device)
        outer[(triton.cdiv(n, 1024), n)](x, y, n, B=1024)
        return y
"""


def ask(worker, task, sources, fidelity, **more):
    sent = [
        worker.send("evaluate", task=task.to_json(), source=source, fidelity=fidelity, **more)
        for source in sources
    ]
    answers = [future.result(300) for future in sent]
    assert all("result" in answer for answer in answers), answers
    return [Evaluation.from_json(answer["result"]) for answer in answers]


@pytest.mark.slow
def test_right_and_wrong_ones_of_gigabytes_are_told_apart_at_once(worker):
    wrong = triton_program("tl.where(at == n - 1, 0.0, tl.maximum(value, 0.0) * 2 + value)")
    sources = [RIGHT, wrong, RIGHT + "\n# again\n"]
    first, second, third = ask(worker, LARGE, sources, "search")
    print(first.feedback, first.durations_s, second.feedback, second.durations_s, sep="\n")
    assert first.status is third.status is Status.CORRECT, (first.feedback, third.feedback)
    assert first.custom
    assert first.ratios["eager"].value > 1.2
    assert second.status is Status.WRONG_VALUE, second.feedback


@pytest.mark.slow
def test_three_sides_of_gigabytes_have_room_beside_each_other(worker):
    eager = torch_program("return torch.relu(x) * 2 + x")
    for source in (RIGHT + "\n# of three\n", eager):
        (verdict,) = ask(worker, LARGE, [source], "screen", opponents={"compile": ""})
        print(verdict.feedback, verdict.durations_s, verdict.device_time_s, verdict.ratios)
        assert verdict.status is Status.CORRECT, verdict.feedback
        assert set(verdict.ratios) == {"eager", "compile"}, verdict.labels
        assert verdict.device_time_s < 15  # 42 when outputs waited in pages of the usual kind
    assert 0.97 < verdict.ratios["eager"].value < 1.03  # although its outputs alone are taken


@pytest.mark.slow
def test_an_output_of_gigabytes_from_a_small_input_is_judged(worker):
    (verdict,) = ask(worker, GROWING, [OUTER], "search")
    print(verdict.feedback, verdict.durations_s)
    assert verdict.status is Status.CORRECT, verdict.feedback


@pytest.mark.slow
def test_a_reference_with_many_temporaries_is_timed(worker):
    (verdict,) = ask(worker, MEDIUM, [SAME], "search")
    print(verdict.feedback, verdict.durations_s, verdict.ratios)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert 0.95 < verdict.ratios["eager"].value < 1.05


@pytest.mark.slow
def test_an_audit_and_evaluations_of_other_tasks_find_room_beside_each_other(worker):
    audit = worker.send("audit", task=LARGE.to_json())
    verdicts = ask(
        worker, TASK, [RIGHT + f"\n# beside an audit: {n}\n" for n in range(3)], "search"
    )
    (large,) = ask(worker, LARGE, [RIGHT + "\n# after an audit\n"], "search")
    print(audit.result(300), [v.durations_s for v in verdicts], large.durations_s)
    assert {verdict.status for verdict in (*verdicts, large)} == {Status.CORRECT}
    assert audit.result(300)["result"] == []


def test_what_a_model_on_the_gpu_takes_is_known_before_it_is_called():
    made = "self.layer = torch.nn.Linear(4096, 1024)"
    source = TASK.source.replace("torch.relu(x) * 2 + x", "self.layer(x)").replace(
        "    def forward",
        f"    def __init__(self):\n        super().__init__()\n        {made}\n\n    def forward",
        1,
    )
    (case,) = load_task(replace(TASK, source=source), torch.device("cuda", 0)).cases
    packed = Packed([case.inputs(0)])
    assert extent_of(case, Outline(packed.trees[0], packed.size)).outputs == 4096 * 1024 * 4


def test_where_memory_is_short_the_truth_is_of_the_cpu_unless_numbers_are_drawn():
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) * 2 + x

    class Dropped(Scaled):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.5)

    x = torch.randn(1 << 26, device="cuda")
    wanted = torch.relu(x.double()) * 2 + x.double()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + x.nbytes) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            evaluate_truth(Scaled(), [x], [x])
        with shortage.alone(), pytest.raises(torch.OutOfMemoryError):
            evaluate_truth(Dropped(), [x], [x])
        torch.cuda.set_per_process_memory_fraction(
            (torch.cuda.memory_reserved() + 3 * x.nbytes) / total
        )
        with shortage.alone():
            truth = evaluate_truth(Scaled(), [x], [x])
        assert truth.outputs[0].equal(wanted)
        assert not truth.note
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_convolution_in_fp64_is_expected_of_a_gpu_as_of_a_cpu(monkeypatch):
    torch.manual_seed(0)
    made_by_products = Mock(wraps=convolution.convolution)
    monkeypatch.setattr(convolution, "convolution", made_by_products)
    for layer, shape in (
        (torch.nn.Conv2d(12, 18, 3, stride=2, padding=1, groups=3), (4, 12, 33, 31)),
        (torch.nn.ConvTranspose3d(8, 6, 3, stride=2, output_padding=1), (2, 8, 9, 10, 11)),
        (torch.nn.Conv1d(3, 4, 2), (0, 3, 5)),
    ):
        x = torch.randn(shape)
        (wanted,) = evaluate_truth(layer, [x], [layer(x).detach()]).outputs
        layer, x = layer.cuda(), x.cuda()
        (made,) = evaluate_truth(layer, [x], [layer(x).detach()]).outputs
        torch.testing.assert_close(made.cpu(), wanted, rtol=1e-12, atol=1e-12)
    assert made_by_products.call_count == 2  # and torch's own for the empty one
