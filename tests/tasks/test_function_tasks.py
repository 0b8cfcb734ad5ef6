"""A task may be a function: keywords, nested outputs, outputs written into arguments, no state."""

from types import SimpleNamespace

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.worker.correctness.cases import LoadedCase, load_task
from evolve.worker.correctness.compare import judge, judge_by_suite
from evolve.worker.ipc.pytree import flatten

KEYWORDS = """
import torch

def reference(x, *others, scale=2.0, shift, **options):
    total = sum(others, x)
    return {"scaled": total * scale, "rest": [total + shift, options["last"] * 3]}

def get_inputs():
    return {"x": torch.randn(4, 8), "shift": torch.randn(8), "last": torch.randn(3)}
"""
DESTINATION = """
import torch

def reference(x, out):
    torch.mul(x, 3.0, out=out)

def get_inputs():
    return [torch.randn(4, 8), torch.zeros(4, 8)]
"""
LENIENT = """
import torch

def reference(x):
    return torch.sin(x)

def suite_check(output, reference, inputs):
    return bool((output == 0).all()), "not all is zero"

def get_inputs():
    return [torch.randn(4, 8)]
"""


def task_of(tmp_path, text: str) -> Task:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return find_task(str(path))


def case_of(tmp_path, text: str) -> LoadedCase:
    (case,) = load_task(task_of(tmp_path, text)).cases
    return case


def verdict(case: LoadedCase, outcome) -> Status:
    inputs = case.inputs(1)
    expected = case.expected(case.model(1), inputs)
    outputs, spec = flatten(outcome(*inputs))
    return judge(case, outputs, spec, expected, inputs).status


def test_each_parameter_of_a_function_is_one_argument_of_forward(tmp_path):
    case = case_of(tmp_path, KEYWORDS)
    x, others, scale, shift, options = case.inputs(1)
    assert (others, scale) == ((), 2.0)
    assert (x.shape, shift.shape, options["last"].shape) == ((4, 8), (8,), (3,))
    assert x.equal(case.inputs(1)[0])
    assert not x.equal(case.inputs(2)[0])


@pytest.mark.parametrize(("factor", "status"), [(2, Status.CORRECT), (2.1, Status.WRONG_VALUE)])
def test_nested_outputs_of_a_function_are_judged(tmp_path, factor, status):
    def outcome(x, others, scale, shift, options):
        return {"scaled": x * factor, "rest": [x + shift, options["last"] * 3]}

    assert verdict(case_of(tmp_path, KEYWORDS), outcome) is status


def test_an_output_written_into_an_argument_is_judged(tmp_path):
    case = case_of(tmp_path, DESTINATION)
    x, out = inputs = case.inputs(1)
    expected = case.expected(case.model(1), inputs)
    for written, status in ((x * 3.0, Status.CORRECT), (out, Status.WRONG_VALUE)):
        assert judge(case, [written], expected.spec, expected, inputs).status is status


def test_the_suites_rule_gives_a_verdict_of_its_own(tmp_path):
    case = case_of(tmp_path, LENIENT)
    inputs = case.inputs(1)
    expected = case.expected(case.model(1), inputs)
    right, zeros = [torch.sin(inputs[0])], [torch.zeros(4, 8)]
    assert judge(case, right, "T", expected, inputs).status is Status.CORRECT
    assert not judge_by_suite(case, right, expected, inputs)
    assert judge_by_suite(case, zeros, expected, inputs)
    plain = SimpleNamespace(task="mine", check=None, suite_check=None)
    assert judge_by_suite(plain, right, expected, inputs)  # KernelBench's


OWN_TYPE_ONLY = {
    "an operation": "torch.searchsorted(torch.ones(3, dtype=torch.float32), x)[x.numel():]",
    "a table": "{torch.float32: 64}[x.dtype]",
    "an assertion": "(_ for _ in ()).throw(AssertionError) if x.dtype != torch.float32 else 0",
    "a compiler": "CompilationError.unless(x.dtype == torch.float32)",
}
OF_ONE_TYPE = """
import torch
from triton.errors import TritonError

class CompilationError(TritonError):
    @classmethod
    def unless(cls, right):
        if not right:
            raise cls("no such type")

def reference(x):
    {statement}
    return x * 2

def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.mark.parametrize("kind", OWN_TYPE_ONLY)
def test_a_reference_that_takes_its_own_type_only_is_judged_by_its_outcome(tmp_path, kind):
    case = case_of(tmp_path, OF_ONE_TYPE.format(statement=OWN_TYPE_ONLY[kind]))
    assert verdict(case, lambda x: x * 2) is Status.CORRECT
    assert verdict(case, lambda x: x * 2.1) is Status.WRONG_VALUE


def test_a_file_with_a_model_is_no_function_task(tmp_path):
    text = (
        KEYWORDS + "\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    text += "def get_init_inputs():\n    return []\n"
    assert task_of(tmp_path, text).source == text
