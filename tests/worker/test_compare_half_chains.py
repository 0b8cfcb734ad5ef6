"""Tasks in 16 bits that make many products, each of what the one before has given.

Invariants: kernels that round between the products, or do not, pass in every input family; an
outcome that is none (zeros, the input), results kept in 8 bits, and one product left out, fail.
"""

from functools import lru_cache, partial

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.judge.audit import audit
from tests.worker.judging import judged, loaded_case, task_source, verdicts
from tests.worker.test_compare_half import HALVES, is_wrong_in_some_family

TASKS = {
    "squarings": task_source(
        "power(a)",
        "[torch.linalg.qr(torch.randn(128, 128))[0]]",
        arguments="a",
        extra="""
def power(a):
    for _ in range(8):
        a = a @ a
    return a
""",
    ),
    "layers": task_source(
        "layers(self.weights, x)",
        "[torch.randn(64, 128)]",
        setup="self.weights = nn.ParameterList(torch.randn(128, 128) / 8 for _ in range(32))",
        extra="""
def layers(weights, x):
    for weight in weights:
        x = torch.relu(x) @ weight
    return x
""",
    ),
    "newton-schulz": task_source(
        "orthogonal(x)",
        "[torch.randn(96, 128)]",
        extra="""
def orthogonal(x):
    x = x / (x.norm() + 1e-7)
    for _ in range(10):
        s = x @ x.mT
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x
""",
    ),
    "recurrence": task_source(
        "recurrent(self.weight, x)",
        "[torch.randn(64, 32, 128)]",
        setup="self.weight = nn.Parameter(torch.randn(128, 128) / 16)",
        extra="""
def recurrent(weight, x):
    h = torch.zeros_like(x[0])
    for step in x:
        h = torch.tanh(h @ weight + step)
    return h
""",
    ),
}


@lru_cache
def chain(name, precision):
    return loaded_case(TASKS[name], precision=precision)


def squarings(model, a, *, to=torch.float32, skipped=0):
    short, a = a.dtype, a.float()
    for _ in range(8 - skipped):
        a = (a @ a).to(to).float()
    return a.to(short)


def layers(model, x, *, to=torch.float32, skipped=0):
    short, x = x.dtype, x.float()
    for weight in list(model.weights)[skipped:]:
        x = (torch.relu(x) @ weight.float()).to(to).float()
    return x.to(short)


def newton_schulz(model, x, *, to=torch.float32, skipped=0):
    short, x = x.dtype, x.float()
    x = (x / (x.norm() + 1e-7)).to(to).float()
    for _ in range(10 - skipped):
        s = (x @ x.mT).to(to).float()
        s = (-4.7750 * s + 2.0315 * (s @ s)).to(to).float()
        x = (3.4445 * x + s @ x).to(to).float()
    return x.to(short)


def recurrence(model, x, *, to=torch.float32, skipped=0):
    h = torch.zeros(x.shape[1:])
    for step in x[: len(x) - skipped]:
        h = torch.tanh(h @ model.weight.float() + step.float()).to(to).float()
    return h.to(x.dtype)


CANDIDATES = {
    "squarings": squarings,
    "layers": layers,
    "newton-schulz": newton_schulz,
    "recurrence": recurrence,
}


@pytest.mark.sample(5)  # each task and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", TASKS)
def test_a_chain_passes_with_and_without_roundings_between_its_products(name, precision):
    for to in (torch.float32, HALVES[precision]):
        found = verdicts(chain(name, precision), partial(CANDIDATES[name], to=to))
        assert set(found.values()) == {Status.CORRECT}, (to, found)


@pytest.mark.sample(5)  # each task and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", TASKS)
def test_an_outcome_that_is_none_is_far_off(name, precision):
    case = chain(name, precision)
    for made in (
        lambda model, x: torch.zeros_like(x[0] if name == "recurrence" else x),
        lambda model, x: (x[-1] if name == "recurrence" else x).clone(),
    ):
        verdict = judged(case, made)
        assert verdict.status is Status.WRONG_VALUE
        assert verdict.margin > 4, verdict


@pytest.mark.sample(5)  # each task and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", TASKS)
def test_a_chain_in_8_bits_or_without_one_product_fails_in_some_family(name, precision):
    case = chain(name, precision)
    assert is_wrong_in_some_family(case, partial(CANDIDATES[name], to=torch.float8_e4m3fn))
    assert is_wrong_in_some_family(case, partial(CANDIDATES[name], skipped=1))


@pytest.mark.sample(5)  # each task and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", TASKS)
def test_an_audit_finds_a_chain_sound(name, precision):
    task = Task(name="probe", source=TASKS[name], precision=precision)
    assert audit(load_task(task)) == ()
