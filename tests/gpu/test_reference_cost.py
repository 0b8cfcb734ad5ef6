"""What the judge says of a reference on a GPU before any candidate.

Invariants:
- operations are timed on the device: short ones are not charged with the host's time to launch;
- rates of products by arithmetic are there, and the split ones are above fp32's.
"""

from evolve.core.reference import ReferenceCost
from evolve.core.task import Task
from tests.worker.judging import task_source

N = 2048
CHAIN = Task(
    name="chain",
    source=task_source(
        "torch.relu(torch.relu(self.l(x)))",
        f"[torch.randn({N}, {N})]",
        setup=f"self.l = nn.Linear({N}, {N}, bias=False)",
    ),
)


def test_operations_of_a_reference_are_timed_on_the_device(worker):
    cost = ReferenceCost.from_json(worker.ask("reference", task=CHAIN.to_json()))
    print(cost)
    (case,) = cost.cases
    mm, relu = case.operations
    assert (mm.name, relu.name, relu.calls) == ("mm", "relu", 2)
    assert mm.flops == 2 * N**3
    assert mm.time_ms > relu.time_ms
    assert relu.time_ms < 0.05  # two passes over 32 MB; two launches alone would take 10 us
    assert cost.flops_per_s["bf16x3"] > cost.flops_per_s["fp32"]
    assert cost.device["capability"]
