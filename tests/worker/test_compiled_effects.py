"""Compiler seeds of references that do more than to give a new tensor, as the judge sees them.

Invariants: a program from the compiler's output is right where the reference returns an argument
or a buffer, writes to them, or takes gradients; it needs nothing of this package.
"""

import pytest

from evolve.core.compiled import Compiled
from evolve.core.evaluation import Status
from evolve.core.task import Task
from operators.local.inductor import convert

HEAD = """
import torch
from torch import nn
{imports}


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(32))
        self.register_buffer("total", torch.zeros(32))

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(16, 32), torch.randn(16, 32)]


def get_init_inputs():
    return []
"""
BACKWARD = (
    HEAD.format(
        imports="from evolve.testing.suite_tasks.gradients import Backward",
        name="Forward",
        body="return torch.tanh(x * self.weight) * y",
    ).replace("return [torch", "return [torch.randn(16, 32), torch")
    + """

class Model(Backward, Forward):
    def forward(self, grad_output, x, y):
        return super().forward(grad_output, x, y)
"""
)
GRADIENT = (
    "x = x.detach().requires_grad_(); out = (torch.tanh(x) * y * self.weight).sum(); "
    "return torch.autograd.grad(out, x)[0]"
)
# As a suite writes it whose tasks have any number of inputs.
ANY_INPUTS = BACKWARD.replace("grad_output, x, y)", "grad_output, *inputs)")
SUITES = ANY_INPUTS.replace(
    "from evolve.testing.suite_tasks.gradients import Backward",
    "from evolve.testing.suite_tasks import calls as _calls, gradients as _gradients",
).replace("(Backward, ", "(_gradients.Backward, ")
POOLED = SUITES.replace(
    "tanh(x * self.weight) * y",
    "max_pool1d(x[:, None] * self.weight, 2).sum(1).repeat(1, 2) * y",
)
# From a class of its file.
INHERITED = (
    HEAD.format(imports="", name="Base", body="return x * self.weight + y")
    + """

class Model(Base):
    pass
"""
)
SOURCES = {
    "backward": BACKWARD,
    "any inputs": SUITES,
    "a scatter": POOLED,
    "an inherited forward": INHERITED,
}
BODIES = {
    "an argument": "return x, y * 2 + x",
    "an argument that it writes to": "x.add_(y.sin()); return x",
    "a state that it writes to": "self.total += (x * y).sum(0); return self.total, x.sin()",
    "gradients": f"with torch.enable_grad(): {GRADIENT}",
    "a weight": "return x * self.weight, self.weight",
    "parts of weights": "return self.weight[2:5] + y[0, 0], self.weight[2:5], self.total",
    "gradients that it leaves to the judge": GRADIENT,
}


def task_of(body: str) -> Task:
    source = SOURCES.get(body) or HEAD.format(imports="", name="Model", body=body)
    return Task(name="effects", source=source, size="tiny")


@pytest.mark.slow  # PyTorch's compiler; test_inductor converts what it wrote before
@pytest.mark.sample(1)
@pytest.mark.parametrize("returns", [*SOURCES, *BODIES])
def test_a_compiler_seed_has_the_effects_and_the_gradients_of_its_reference(worker, returns):
    task = task_of(BODIES.get(returns, returns))
    answer = worker.ask("compiled", task=task.to_json(), variants=["default"])["default"]
    assert "compiled" in answer, answer
    program = convert(task.source, task.name, Compiled.from_json(answer["compiled"]))
    assert "evolve" not in program
    verdict = worker.evaluate(program, task, "check")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom or returns == "a scatter"  # torch's, of which it is most of the work
