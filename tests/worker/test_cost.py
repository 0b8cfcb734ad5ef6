"""What a reference is said to cost.

Invariants:
- every byte of inputs, parameters and outputs counts once; what is not read does not;
- operations are counted by the kind of their operands.
"""

import pytest

from evolve.worker.timing.reference_cost import Cost, count_cost
from tests.worker.judging import loaded_case, task_source

MATMUL = task_source("a @ b", "[torch.randn(32, 64), torch.randn(64, 16)]", "a, b")


def cost(source: str) -> Cost:
    case = loaded_case(source)
    return count_cost("probe", case.model(1), case.inputs(2))


@pytest.mark.parametrize(
    ("outcome", "inputs", "setup", "read", "written"),
    [
        ("torch.relu(x) * 2 + x", "[torch.randn(64, 256)]", "pass", 64 * 256, 64 * 256),
        ("x.sum()", "[torch.randn(100)]", "pass", 100, 1),
        ("x[:10] + 1", "[torch.randn(100)]", "pass", 10, 10),
        ("x + 1", "[torch.randn(10, 1).expand(10, 50)]", "pass", 10, 500),
        ("x", "[torch.randn(100)]", "pass", 0, 0),
        ("self.l(x)", "[torch.randn(8, 16)]", "self.l = nn.Linear(16, 4)", 128 + 68, 32),
        ("x + 1", "[torch.randn(8)]", "self.unused = nn.Linear(99, 99)", 8, 8),
        ("(x + 1, x.t())", "[torch.randn(4, 8)]", "pass", 32, 32),
    ],
)
def test_bytes_are_counted_once(outcome, inputs, setup, read, written):
    found = cost(task_source(outcome, inputs, setup=setup))
    assert (found.moved_bytes, found.output_bytes) == (4 * (read + written), 4 * written)


def test_of_a_table_only_what_is_looked_up_is_read():
    setup = "self.table = nn.Embedding(1000, 16)"
    found = cost(task_source("self.table(x)", "[torch.arange(10)]", setup=setup))
    assert found.moved_bytes == 8 * 10 + 2 * 4 * 10 * 16


@pytest.mark.parametrize(
    ("source", "flops"),
    [
        (MATMUL, {"fp32": 2 * 32 * 64 * 16}),
        (MATMUL.replace("a @ b", "a.bfloat16() @ b.bfloat16()"), {"bf16": 2 * 32 * 64 * 16}),
        (task_source("torch.relu(x)", "[torch.randn(9)]"), {}),
        (
            task_source("F.conv2d(x, w)", "[torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3)]",
                        "x, w"),
            {"fp32": 2 * 2 * 5 * 6 * 6 * 27},
        ),
        (
            task_source("F.scaled_dot_product_attention(x, x, x)", "[torch.randn(1, 2, 32, 16)]"),
            {"fp32": 4 * 2 * 32 * 32 * 16},
        ),
    ],
)  # fmt: skip
def test_operations_are_counted_by_kind(source, flops):
    assert cost(source).flops == flops
