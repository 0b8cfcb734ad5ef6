"""What the judge says of a reference before any candidate.

Invariants:
1. Each operation that computes or moves data has its time, its operands' shapes, bytes and work.
2. Shares of operations add up to the time of a call by eager, which is measured in a process.
3. The device's facts and the longest sum are those that the verdicts have.
4. The task's inputs, parameters and random state are left as they are.
"""

import pytest
import torch

from evolve.core.reference import ReferenceCost
from evolve.core.task import Task
from evolve.worker.timing.operation_times import operation_times
from tests.worker.judging import loaded_case, task_source
from tests.worker.serving import HONEST_CPP, RELU_TASK

N = 256
CHAIN = Task(
    name="chain",
    source=task_source(
        "torch.relu(torch.relu(self.l(x))).t().contiguous()",
        f"[torch.randn({N}, {2 * N})]",
        setup=f"self.l = nn.Linear({2 * N}, {N}, bias=False)",
    ),
)


@pytest.fixture(scope="module")
def cost(worker) -> ReferenceCost:
    return ReferenceCost.from_json(worker.ask("reference", task=CHAIN.to_json()))


def test_each_operation_has_its_shapes_bytes_and_work(cost):
    (case,) = cost.cases
    found = {each.name: each for each in case.operations}
    assert set(found) == {"mm", "relu", "clone"}
    assert found["mm"].shapes == ((N, 2 * N), (2 * N, N))
    assert found["mm"].flops == case.flops == 2 * N * N * 2 * N
    assert found["mm"].moved_bytes == 4 * (2 * 2 * N * N + N * N)
    assert found["relu"].calls == 2
    assert found["relu"].moved_bytes == 2 * 2 * 4 * N * N
    assert found["clone"].flops == 0


def test_operations_add_up_to_the_call(cost):
    (case,) = cost.cases
    times = [each.time_ms for each in case.operations]
    assert times == sorted(times, reverse=True)
    assert min(times) > 0
    assert sum(times) + case.others_ms == pytest.approx(case.time_ms)


def test_the_limits_are_by_measured_rates(cost):
    (case,) = cost.cases
    assert case.moved_bytes == 4 * (2 * 2 * N * N + N * N)
    assert case.bound == "fp32 arithmetic"
    assert case.flops_per_s == pytest.approx(cost.flops_per_s["fp32"])
    assert case.arithmetic_ms > case.memory_ms > 0


@pytest.mark.slow
def test_facts_are_those_of_the_verdicts(worker):
    cost = ReferenceCost.from_json(worker.ask("reference", task=RELU_TASK.to_json()))
    verdict = worker.evaluate(HONEST_CPP, RELU_TASK, fidelity="screen")
    assert cost.device == verdict.environment
    assert {"cores", "vector_units", "torch", "compiler"} <= cost.device.keys()
    assert cost.longest_sum == verdict.descriptors.get("longest_sum", 0.0)


def test_a_reference_is_left_as_it_was():
    case = loaded_case(
        task_source(
            "self.n(x.mul_(2.0))",
            "[torch.randn(4, 8)]",
            setup="self.n = nn.BatchNorm1d(8)",
        )
    )
    model, inputs = case.model(1), case.inputs(2)
    before, state = inputs[0].clone(), torch.random.get_rng_state()
    names = {each.name for each in operation_times("probe", model, inputs)}
    assert "mul_" in names
    assert torch.equal(before, inputs[0])
    assert torch.equal(state, torch.random.get_rng_state())
