"""Checks that a task file names in one line: each accepts what is equal in its sense, and no more.

Generated tasks go through the judge as well: none ends it with an exception of its own.
"""

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.testing import checks
from tests.benchmarks.task_fuzz import run
from tests.worker.judging import task_source
from tests.worker.test_practice import SAMPLED, own_text

NUMBERS = torch.tensor([1.0, torch.nan])
CODES = torch.tensor([[1, 5, 9], [2, 2, 7]], dtype=torch.int8)
SCORES = torch.tensor([[0.1, 0.5, 0.5, 0.2], [0.9, 0.1, 0.2, 0.3]])
IDS = torch.tensor([[1, 2], [0, 3]])
torch.manual_seed(0)
CHANCES = torch.softmax(torch.randn(400, 9), -1)
DRAWN, AGAIN = (torch.multinomial(CHANCES, 1).squeeze(-1) for _ in range(2))

CASES = {
    "close": (checks.close(1e-3), NUMBERS, NUMBERS * 1.0005),
    "steps": (checks.steps(1), CODES, CODES + 1),
    "few steps": (checks.steps(1, share=0.2), CODES, CODES + (CODES == 9)),
    "nested": (checks.steps(1), {"q": (CODES,), "s": None}, {"q": (CODES - 1,), "s": None}),
    "any order": (checks.any_order(), CODES, CODES.flip(-1)),
    "ties": (checks.indices_of(lambda x: x), IDS, IDS.new_tensor([[2, 1], [0, 3]])),
    "sampled": (checks.sampled(lambda x: x), DRAWN, AGAIN),
    "permutation": (checks.permutation(), torch.arange(4), torch.tensor([2, 0, 3, 1])),
}  # fmt: skip
WRONG = {
    "close": NUMBERS.nan_to_num(),
    "steps": CODES + 2,
    "few steps": CODES + 1,
    "nested": {"q": (CODES - 2,), "s": None},
    "any order": CODES + 1,
    "ties": IDS.new_tensor([[2, 2], [0, 3]]),
    "sampled": CHANCES.argmax(-1),
    "permutation": torch.tensor([0, 0, 1, 2]),
}
INPUTS = {"ties": [SCORES], "sampled": [CHANCES]}


@pytest.mark.parametrize("name", CASES)
def test_a_check_accepts_what_is_equal_in_its_sense_and_nothing_else(name):
    check, reference, equal = CASES[name]
    inputs = INPUTS.get(name, [])
    assert check(equal, reference, inputs) == (True, "")
    passed, reason = check(WRONG[name], reference, inputs)
    assert not passed
    assert reason


@pytest.mark.parametrize("name", ["ties", "sampled"])
def test_an_index_out_of_range_is_refused(name):
    check, reference, _ = CASES[name]
    assert check(reference + 99, reference, INPUTS[name])[1] == "an index is out of range"


@pytest.mark.slow  # draws are judged in test_practice too
def test_a_task_file_names_a_check_in_one_line(worker):
    extra = "\nfrom evolve.testing.checks import sampled\ncheck = sampled(lambda x: x)\n"
    sampled = SAMPLED.replace("torch.randn(8, 99)", "torch.randn(512, 99)")
    task = Task(name="t", source=sampled + extra)
    assert worker.ask("audit", task=task.to_json()) == []
    found = worker.evaluate(own_text(sampled), task, "check")
    assert found.status is Status.CORRECT, found.feedback
    greedy = own_text(sampled, ("torch.multinomial(x, 1).squeeze(-1)", "x.argmax(-1)"))
    found = worker.evaluate(greedy, task, "check")
    assert "not as probable as draws are" in found.feedback


def test_no_generated_task_ends_the_judge_with_an_exception():
    found = run(40, seed=3)
    assert found["faults"] == []
    assert found["counts"]["sound"] > 0
    assert found["counts"]["refused"] > 0


SPARSE = task_source(
    "torch.relu(adjacency @ x)",
    "[(torch.rand(24, 24) * (torch.rand(24, 24) < 0.2)).to_sparse{kind}(), torch.randn(24, 16)]",
    arguments="adjacency, x",
)
KINDS = {
    "csr": SPARSE.replace("{kind}", "_csr"),
    "coo": SPARSE.replace("{kind}", ""),
    "float8": task_source("(x * 2).to(torch.float8_e4m3fn)", "[torch.randn(8, 16)]"),
    "scales": task_source(
        "x.abs().amax(-1).to(torch.float8_e8m0fnu)", "[torch.randn(8, 16)]"
    ),
    "lazy": task_source("self.l(x)", "[torch.randn(8, 16)]", setup="self.l = nn.LazyLinear(4)"),
    "conjugate": task_source("x.imag * 2", "[torch.randn(8, 16, dtype=torch.complex64).conj()]"),
    "a number": task_source("(x @ x.T).trace()", "[torch.randn(8, 16)]"),
    "largest": task_source("x.argmax()", "[torch.randn(512)]"),
    "bytes": task_source("(x * 2).view(torch.uint8)", "[torch.randn(8, 16)]"),
}  # fmt: skip


def test_tensors_of_unusual_kinds_are_judged(worker):
    asked = {
        name: worker.send(
            "evaluate",
            task=Task(name=name, source=source).to_json(),
            source=own_text(source),
            fidelity="check",
        )
        for name, source in KINDS.items()
    }
    replies = {name: one.result(200) for name, one in asked.items()}
    assert {
        name: reply
        for name, reply in replies.items()
        if reply.get("result", {}).get("status") != "correct"
    } == {}
    wrong = own_text(KINDS["csr"], ("torch.relu(", "torch.abs("))
    task = Task(
        name="csr", source=KINDS["csr"].replace("torch.rand(24, 24) *", "torch.randn(24, 24) *")
    )
    assert worker.evaluate(wrong, task, "check").status is Status.WRONG_VALUE


@pytest.mark.parametrize(
    ("inputs", "outcome", "words"),
    [
        ("[torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])]", "x", "a nested tensor"),
        ("[torch.randn(4, device='meta')]", "x", "input tensor 0 is a meta tensor"),
        ("[torch.randn(8)]", "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", "int_repr"),
        ("[torch.randn(8)]", "x.to_sparse()", "output 0 of Model.forward is a sparse tensor"),
        ("[torch.zeros(8, dtype=torch.uint8)]", "x.view(torch.float4_e2m1fn_x2)", "view(torch"),
    ],
)  # fmt: skip
def test_other_kinds_are_refused_in_one_sentence_that_names_task_and_remedy(
    worker, inputs, outcome, words
):
    task = Task(name="odd", source=task_source(outcome, inputs))
    error = worker.send("audit", task=task.to_json()).result(60)["error"]
    assert error["kind"] == "usage"
    assert error["message"].startswith("task odd: ")
    assert "\n" not in error["message"]
    assert words in error["message"]
