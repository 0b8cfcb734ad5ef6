"""Templates: kernels of ours for what the compiler leaves to vendors' libraries.

Invariants:
- a program with our kernels computes what torch does, whatever sizes, strides and tunables are;
- what a template cannot do stays a call of the library, and no other statement changes;
- launches of the same shape share their tunables, and so do all of a kernel where there are many.

Programs run under Triton's interpreter, which knows no precision but ieee.
"""

import pytest

from evolve.core import tunables
from tests.operators.templates_cases import CASES, instance, matrix, program, room
from tests.operators.templates_running import answers

IEEE = ("ieee",)
EFFICIENT = "_scaled_dot_product_efficient_attention"


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    cases = [each | {"source": instance(each["source"], each["name"], IEEE)} for each in CASES]
    return answers(cases, "cpu", TRITON_INTERPRET="1")


@pytest.mark.parametrize("name", [each["name"] for each in CASES])
def test_a_program_with_our_kernels_computes_what_torch_does(differences, name):
    assert differences[name] < 2e-6


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["extern_kernels.mm(a, other, out=buf0)"], "torch.mm("),
        (["extern_kernels.addmm(a, a, b, alpha=2, beta=1, out=buf0)"], "torch.addmm("),
        (["buf1 = extern_kernels.convolution(a, b, bias=None)"], "torch.convolution("),
        (
            [
                "view = reinterpret_tensor(a, (1, 1, 8, 7), (56, 56, 7, 1), 0)",
                "buf1 = torch.ops.aten.max_pool2d_with_indices.default(view, [2, 2])",
                "buf2 = buf1[0]",
                "assert_size_stride(buf2, (1, 1, 4, 3), (12, 12, 3, 1))",
                "buf3 = buf1[1]",
            ],
            "torch.ops.aten.max_pool2d_with_indices.default(",
        ),
        (
            [
                f"buf1 = torch.ops.aten.{EFFICIENT}.default(a, a, a, b, False)",
                "buf2 = buf1[0]",
                "assert_size_stride(buf2, (8, 7), (7, 1))",
            ],
            f"torch.ops.aten.{EFFICIENT}.default(",
        ),
    ],
    ids=["unknown operand", "scaled", "unknown shape", "second of several", "biased attention"],
)
def test_what_a_template_cannot_do_stays_with_the_library(lines, left):
    arguments = {"a": matrix(8, 7), "b": matrix(7, 9)}
    made = ["other = torch.ones(7, 9)", room("buf0", matrix(8, 9))]
    done = "extern_kernels.mm(a, b, out=buf0)"  # a program needs some kernel of ours
    source = program(arguments, [*made, done, *lines])
    assert left in source
    assert source.count("_kernel[") == 1


def lines_of_products(*sizes: int) -> list[str]:
    made = [room(f"buf{at}", matrix(8, 9)) for at in range(len(sizes))]
    return made + [
        f"extern_kernels.mm(reinterpret_tensor(a, (8, {size}), (7, 1), 0), "
        f"reinterpret_tensor(b, ({size}, 9), (9, 1), 0), out=buf{at})"
        for at, size in enumerate(sizes)
    ]


def tunables_of(*sizes: int) -> set[str]:
    arguments = {"a": matrix(8, 70), "b": matrix(70, 9)}
    source = program(arguments, lines_of_products(*sizes))
    assert source.count("def matmul_kernel(") == 1
    return {t.name for t in tunables.parse(source) if t.name.endswith("NUM_WARPS")}


def test_products_of_one_shape_share_their_tunables():
    assert tunables_of(7, 7) == {"MATMUL_NUM_WARPS"}
    assert tunables_of(7, 6) == {"MATMUL_NUM_WARPS", "MATMUL_2_NUM_WARPS"}


def test_where_shapes_are_many_all_products_share_their_tunables():
    assert len(tunables_of(*range(1, 9))) == 8
    assert tunables_of(*range(1, 10)) == {"MATMUL_NUM_WARPS"}
