"""What the tests of the judge share: small task files, and candidates judged on their inputs."""

from collections.abc import Callable
from functools import lru_cache

import numpy
import torch
from torch import Tensor, nn

from evolve.core.task import Case, Task
from evolve.worker.correctness.cases import LoadedCase, load_task
from evolve.worker.correctness.compare import Judgement, judge
from evolve.worker.correctness.oracle import Expected
from evolve.worker.ipc.pytree import flatten

torch.set_num_threads(1)  # small tensors; spinning threads would cost more than they give
SEED = 2
Candidate = Callable[..., object]


def task_source(
    outcome: str,
    inputs: str,
    arguments: str = "x",
    setup: str = "pass",
    init: str = "[]",
    extra: str = "",
) -> str:
    """A task file whose forward returns the expression `outcome` of its `arguments`."""
    return f"""
import torch
from torch import nn
from torch.nn import functional as F

{extra}

class Model(nn.Module):
    def __init__(self, *values):
        super().__init__()
        {setup}

    def forward(self, {arguments}):
        return {outcome}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return {init}
"""


def loaded_case(source: str, **fields) -> LoadedCase:
    return load_task(Task(name="probe", source=source, **fields)).cases[0]


def one_case(**constants) -> tuple[Case, ...]:
    return (Case(name="only", constants=constants),)


@lru_cache(maxsize=200)
def prepared(case: LoadedCase, family: str) -> tuple[nn.Module, list, Expected]:
    """Model, hidden inputs of a family, and what is expected on them."""
    model, inputs = case.model(1), case.inputs(SEED, family)
    return model, inputs, case.expected(model, inputs, family)


def judged(case: LoadedCase, candidate: Candidate, family: str = "task") -> Judgement:
    """The verdict on `candidate(model, *inputs)` on hidden inputs of a family."""
    model, inputs, expected = prepared(case, family)
    with torch.no_grad():
        outputs, spec = flatten(candidate(model, *(value.clone() for value in inputs)))
    return judge(case, outputs, spec, expected, inputs)


def verdicts(case: LoadedCase, candidate: Candidate) -> dict[str, str]:
    """The status in every family that applies to the case."""
    return {family: judged(case, candidate, family).status for family in case.families()}


def sequential_sum(x: Tensor) -> Tensor:
    """Sum over the last dimension in fp32, one term after the other."""
    partial = numpy.add.accumulate(x.numpy(), axis=-1, dtype=numpy.float32)
    return torch.from_numpy(partial[..., -1].copy())


def rounded_to_tf32(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def cut_to_tf32(x: Tensor) -> Tensor:
    """As tensor cores read fp32 operands."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def norm_of(model: nn.Module) -> tuple[Tensor, Tensor]:
    return model.norm.weight, model.norm.bias
