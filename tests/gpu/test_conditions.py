"""The judge's conditions on a GPU: effects, modes, gradients, rules of equality, kinds of tensors.

Each task is one of a kind, with a right and a wrong candidate; those of the CPU are in
`tests/worker/test_practice.py`, `test_returned_tensors.py` and `test_checks.py`. Invariants: the
right one is correct; the wrong one is not, and its feedback says why; a task that no candidate can
be judged by is refused in a sentence with the remedy.
"""

from dataclasses import dataclass

import pytest

from evolve.core.evaluation import Evaluation, Status
from evolve.core.task import Task
from tests.worker.judging import task_source
from tests.worker.test_practice import own_text

X = "[torch.randn(64, 256)]"
_ANSWER_S = 80.0


@dataclass(frozen=True)
class Kind:
    """A task with changes of its text that make a wrong candidate, and words of the feedback.

    `right` is a candidate; empty stands for the reference's own text.
    """

    task: str
    wrong: tuple[tuple[str, str], ...]
    words: str
    status: Status = Status.WRONG_VALUE
    right: str = ""


def triton(body: str, call: str, setup: str = "pass", arguments: str = "x") -> str:
    """A program with one elementwise kernel, `body`, of n values in blocks of 256."""
    return f"""
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def kernel({arguments}, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
{body}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {setup}

    def forward(self, {arguments}):
        n = {arguments.split(",")[0]}.numel()
        {call}
"""


GRID = "kernel[(triton.cdiv(n, 256),)]"
INPLACE = task_source("x.add_(1)", X)
RESIDUAL = task_source(
    "(F.rms_norm(residual.add_(x), (256,)), residual)",
    "[torch.randn(64, 256), torch.randn(64, 256)]",
    arguments="x, residual",
)
CODES = task_source(
    "torch.round(x.float() / 0.05).clamp(-128, 127).to(torch.int8)",
    "[torch.randn(64, 256, dtype=torch.bfloat16)]",
)
TRITON_INPLACE = triton(
    "    tl.store(y + at, tl.load(x + at, mask=mask) + 1, mask=mask)",
    f"{GRID}(x, x, n, BLOCK=256)\n        return x",
)
TRITON_CODES = triton(
    "    value = tl.load(x + at, mask=mask).to(tl.float32) * 20.0\n"
    "    code = tl.floor(tl.abs(value) + 0.5)\n"
    "    code = tl.minimum(tl.maximum(tl.where(value < 0, -code, code), -128.0), 127.0)\n"
    "    tl.store(y + at, code.to(tl.int8), mask=mask)",
    f"y = torch.empty_like(x, dtype=torch.int8)\n        {GRID}(x, y, n, BLOCK=256)\n"
    "        return y",
)
SCALED = task_source(
    "(x * self.scale, self.scale)", X, setup="self.scale = nn.Parameter(torch.ones(256))"
)
STEP = task_source(
    "(x @ self.w.sub_(0.1 * x.mean(0)), self.w)",
    X,
    setup="self.w = nn.Parameter(torch.randn(256))",
)

KINDS = {
    "an operation in place": Kind(
        INPLACE, (("x.add_(1)", "(x + 1)"),), "argument x", right=TRITON_INPLACE
    ),
    "a residual that is updated and returned": Kind(
        RESIDUAL, (("residual.add_(x)", "residual + x"),), "output 1"
    ),
    "running statistics in training mode": Kind(
        task_source("torch.relu(self.norm(x))", X, setup="self.norm = nn.BatchNorm1d(256)"),
        (("self.norm(x)", "F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"),),
        "state norm.running_mean",
    ),
    "an optimizer step": Kind(STEP, (("self.w.sub_(", "self.w.sub("),), "output 1"),
    "gradients in forward": Kind(
        task_source(
            "torch.autograd.grad((self.layer(x) ** 2).sum(), [self.layer.weight])[0]",
            X,
            setup="self.layer = nn.Linear(256, 16)",
        ),
        ((".sum(), [self", ".mean(), [self"),),
        "output 0",
    ),
    "ties of top-k": Kind(
        task_source(
            "F.softmax(x, -1).topk(8, dim=-1)[1].to(torch.int32)",
            "[torch.randn(64, 128).bfloat16()]",
        ),
        ((".topk(8, dim=-1)[1]", ".topk(9, dim=-1)[1][:, 1:]"),),
        "output 0",
    ),
    "integer codes": Kind(
        CODES, (("torch.round(", "torch.trunc("),), "output 0", right=TRITON_CODES
    ),
    "patterns of NaN": Kind(
        task_source(
            "torch.softmax(x.masked_fill(mask, float('-inf')), -1)",
            "[torch.randn(8, 16), torch.arange(8)[:, None] < 4]",
            arguments="x, mask",
        ),
        (("-1)", "-1).nan_to_num()"),),
        "the reference is NaN in 50.00%",
    ),
    "float8": Kind(
        task_source("(x * 2).to(torch.float8_e4m3fn)", X), (("x * 2)", "x * 2.5)"),), "output 0"
    ),
    "a sparse argument": Kind(
        task_source(
            "adjacency @ x",
            "[(torch.randn(64, 64) * (torch.rand(64, 64) < 0.2)).to_sparse_csr(), "
            "torch.randn(64, 32)]",
            arguments="adjacency, x",
        ),
        (("adjacency @ x", "(adjacency @ x).abs()"),),
        "output 0",
    ),
    "no dimensions": Kind(
        task_source("x.square().mean()", X), (("square()", "abs()"),), "output 0"
    ),
    "an empty output": Kind(
        task_source("(x * 2, x[:0] * 2)", X), (("x[:0] * 2)", "x[:1] * 2)"),), "output 1",
        Status.WRONG_SHAPE,
    ),
    "a returned parameter": Kind(
        SCALED,
        (
            ("torch.ones(256))", "torch.ones(256)); self.old = torch.ones(256)"),
            ("self.scale, self.scale)", "self.scale, self.old.to(x.device))"),
        ),
        "output 1",
    ),
    "an argument for its copy": Kind(
        task_source("(x, x.clone())", X), (("x.clone()", "x"),), "shares memory", Status.ALIASED
    ),
    "complex weights": Kind(
        task_source(
            "torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=256)",
            X,
            setup="self.weight = nn.Parameter(torch.randn(129, dtype=torch.cfloat))",
        ),
        (("* self.weight,", "* self.weight.real,"),),
        "output 0",
    ),
}  # fmt: skip


def sent(worker, task: str, source: str, fidelity: str = "check"):
    return worker.send(
        "evaluate",
        task=Task(name="t", source=task).to_json(),
        source=source,
        fidelity=fidelity,
    )


def verdict_of(answer) -> Evaluation:
    reply = answer.result(_ANSWER_S)
    assert "result" in reply, reply
    return Evaluation.from_json(reply["result"])


@pytest.fixture(scope="module")
def verdicts(worker):
    """The answers to all, which are judged at the same time: right ones, then wrong ones."""
    return {
        name: (
            sent(worker, kind.task, kind.right or own_text(kind.task)),
            sent(worker, kind.task, own_text(kind.task, *kind.wrong)),
        )
        for name, kind in KINDS.items()
    }


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", KINDS)
def test_the_right_candidate_of_a_kind_is_correct(verdicts, name):
    verdict = verdict_of(verdicts[name][0])
    assert verdict.status is Status.CORRECT, verdict.feedback


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", KINDS)
def test_the_wrong_candidate_of_a_kind_is_refused_with_the_reason(verdicts, name):
    verdict = verdict_of(verdicts[name][1])
    assert verdict.status is KINDS[name].status, verdict.feedback
    assert KINDS[name].words in verdict.feedback


REFUSED = {
    "a random output": (
        task_source("torch.multinomial(x, 1)", "[torch.softmax(torch.randn(8, 99), -1)]"),
        "is random, or remembers calls",
    ),
    "a sparse output": (task_source("x.to_sparse()", X), "output 0 of Model.forward is a sparse"),
    "a nested argument": (
        task_source("x", "[torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])]"),
        "a nested tensor",
    ),
    "an output that the next call overwrites": (
        task_source(
            "torch.add(x, 1, out=self.out)", X,
            setup="self.out = torch.empty(64, 256)",
        ),
        "the second overwrites",
    ),
}  # fmt: skip


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", REFUSED)
def test_a_task_that_no_candidate_can_be_judged_by_is_refused(worker, name):
    task, words = REFUSED[name]
    reply = sent(worker, task, own_text(task)).result(_ANSWER_S)
    assert reply["error"]["kind"] == "usage", reply
    assert words in reply["error"]["message"]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("task", [INPLACE, STEP, SCALED], ids=["argument", "state", "parameter"])
def test_what_is_returned_without_a_copy_is_timed_and_judged(worker, task):
    verdict = verdict_of(sent(worker, task, own_text(task), "screen"))
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios["eager"].value > 0
