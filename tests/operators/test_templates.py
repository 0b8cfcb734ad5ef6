"""Templates: kernels of ours for what the compiler leaves to vendors' libraries.

Invariants:
- a program with our kernels computes what torch does, whatever sizes, strides and tunables are;
- a pointwise kernel goes into the tail of the product it reads where nothing else can tell;
- what a template cannot do stays a call of the library, and no other statement changes;
- launches of the same shape share their tunables, and so do where there are many all of a kernel
  whose blocks may be alike.

Programs run under Triton's interpreter, which knows no precision but ieee.
"""

import ast
import json
import re
from pathlib import Path

import pytest
import torch

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from operators.local.inductor import NotConvertible, convert
from operators.local.templates import Products
from tests.operators.differences import collected
from tests.operators.inductor_running import INTERPRETED
from tests.operators.output_code import (
    TASK,
    add,
    compiled,
    image,
    instance,
    matrix,
    pointwise,
    program,
    relu,
    room,
)
from tests.operators.templates_cases import CASES, tolerance
from tests.operators.templates_running import answers, interpreted

pytestmark = pytest.mark.timeout(300)  # one process interprets all programs before a first test
INTERPRETED_CASES = [  # the interpreter multiplies the bits of bfloat16
    case for case in CASES if not case["name"].startswith("bfloat16")
]
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
FIXTURES = sorted((Path(__file__).parent / "template_fixtures").glob("*.json"))
EFFICIENT = "_scaled_dot_product_efficient_attention"


@pytest.fixture(scope="module")
def differences(request) -> dict[str, float]:
    names = collected(request, "name")
    cases = interpreted([each for each in INTERPRETED_CASES if each["name"] in names])
    return answers(cases, "cpu", TRITON_INTERPRET="1")


def whole_program(path: Path, fused: bool) -> dict[str, str]:
    """What is made of output code as torch wrote it."""
    data = json.loads(path.read_text())
    compiled = Compiled.from_json(data["compiled"])
    source = convert(data["task"], path.stem, compiled, Products(INTERPRETED, fused=fused))
    assert "torch.mm(" not in source
    assert "torch.convolution(" not in source
    return {
        "name": f"{path.stem} {fused}",
        "task": data["task"],
        "source": instance(source, path.stem, INTERPRETED),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_launch_passes_what_its_kernel_takes(case):
    """The interpreter overlooks a keyword too many; the compiler does not."""
    tree = ast.parse(case["source"])
    takes = {
        node.name: {argument.arg for argument in node.args.args}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    launches = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and ast.unparse(node.func.value) in takes
    ]
    assert launches
    for launch in launches:
        kernel = ast.unparse(launch.func.value)
        passed = {keyword.arg for keyword in launch.keywords} - OPTIONS
        assert passed <= takes[kernel], kernel
        assert len(launch.args) + len(passed) == len(takes[kernel]), kernel


def lines_of_forward(source: str) -> list[str]:
    return source[source.index("class ModelNew") :].splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_launches_are_written_alike_on_lines_that_are_not_too_long(case):
    lines = lines_of_forward(case["source"])
    assert [line for line in lines if len(line) > 88 and "assert " not in line] == []
    assert not any(",](" in line for line in lines)


@pytest.mark.slow
def test_whole_programs_compute_what_their_references_do():
    whole = [whole_program(path, fused) for path in FIXTURES for fused in (False, True)]
    found = answers(whole, "cpu", TRITON_INTERPRET="1")
    assert len(found) == len(whole)
    assert {name: far for name, far in found.items() if not far < 2e-6} == {}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", [each["name"] for each in INTERPRETED_CASES])
def test_a_program_with_our_kernels_computes_what_torch_does(differences, name):
    assert differences[name] < tolerance(name, 2e-6)


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_no_float_of_32_or_16_bits_stays_with_the_library(dtype, is_known):
    square = torch.empty(7, 7, dtype=dtype, device="meta")
    found = compiled(
        {"a": square if is_known else matrix(7, 7)},
        [room("buf0", square), "extern_kernels.mm(a, a, out=buf0)"],
        "buf0",
    )
    with pytest.raises(NotConvertible, match="wrote no kernel"):
        convert(TASK.format(names="a"), "t", found, Products())


def test_a_product_of_halves_has_no_choice_of_precision_beside_one_of_float32():
    half = torch.empty(7, 7, dtype=torch.float16, device="meta")
    lines = [room("buf0", half), "extern_kernels.mm(a, a, out=buf0)"]
    lines += [room("buf1", matrix(7, 7)), "extern_kernels.mm(b, b, out=buf1)"]
    source = program({"a": half, "b": matrix(7, 7)}, lines, "buf0")
    names = [t.name for t in tunables.parse(source) if t.name.endswith("PRECISION")]
    assert names == ["MATMUL_2_INPUT_PRECISION"]


@pytest.mark.parametrize("keys", [(2, 5, 9, 16), (1, 6, 9, 16), (2, 6, 9, 8)])
def test_attention_with_other_batches_or_heads_stays_with_the_library(keys):
    q, k = torch.empty(2, 6, 9, 16, device="meta"), torch.empty(keys, device="meta")
    lines = [
        "buf0 = torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, k, 0.0, False)",
        "buf1 = buf0[0]",
        "assert_size_stride(buf1, (2, 6, 9, 16), (864, 144, 16, 1), 'sdpa')",
    ]
    found = compiled({"q": q, "k": k}, lines, "buf1")
    with pytest.raises(NotConvertible, match="wrote no kernel"):
        convert(TASK.format(names="q, k"), "t", found, Products())


def test_a_grid_has_no_more_programs_beside_each_other_than_a_device_takes():
    many = torch.empty(1000, 80, 9, 16, device="meta")
    name = "torch.ops.aten._scaled_dot_product_flash_attention.default"
    lines = [f"buf0 = {name}(q, q, q, 0.0, False)", "buf1 = buf0[0]"]
    lines += [f"assert_size_stride(buf1, {tuple(many.shape)}, {many.stride()}, 'sdpa')"]
    source = program({"q": many}, lines, "buf1")
    (grid,) = re.findall(r"attention_kernel\[(.*)\]\(", source)
    assert grid == "(80000 * triton.cdiv(9, ATTENTION_BLOCK_M),)"


def test_checks_of_newer_versions_of_torch_tell_the_same_shapes():
    images, filters = image(2, 3, 9, 9), image(4, 3, 3, 3)
    shape, stride = (2, 4, 7, 7), (196, 49, 7, 1)
    about = "'aten.convolution'"
    call = "extern_kernels.convolution(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
    call += "transposed=False, output_padding=(0, 0), groups=1, bias=None)"
    checks = {
        "2.13": f"assert_size_stride(buf0, {shape}, {stride}, {about})",
        "2.15": f"assert_tensor_metadata(buf0, {shape}, {stride}, torch.float32, {about})",
        "of several": f"assert_size_stride_grouped((buf0,), ({shape},), ({stride},), {about})",
    }
    written = {
        version: program({"x": images, "w": filters}, [f"buf0 = {call}", check])
        for version, check in checks.items()
    }
    assert "conv_kernel[" in written["2.13"]
    assert len(set(written.values())) == 1


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
    source = program({"a": A, "b": matrix(70, 9)}, lines_of_products(*range(1, 9), 40, 5))
    assert tunables.parse(source)["MATMUL_BLOCK_K"].choices == (16, 32, 64)  # of the largest


A, B = matrix(8, 7), matrix(7, 9)
MADE = [room("buf0", matrix(8, 9)), room("buf2", matrix(8, 9))]
PRODUCT = "extern_kernels.mm(a, b, out=buf0)"
READ = "triton_poi_fused_relu_0.run(buf0, 72, stream=s)"
COPIED = ["tmp0 = tl.load(in_ptr0 + (x0), xmask)", "tl.store(out_ptr0 + (x0), tmp0, xmask)"]
COPY = pointwise("copy", 72, "in_ptr0, out_ptr0", ["x0 = xindex", *COPIED])
TURNED = pointwise(
    "copy", 72, "in_ptr0, out_ptr0", ["x0 = (xindex % 9) * 8 + xindex // 9", *COPIED]
)
WRITE = "triton_poi_fused_copy_0.run(buf0, buf2, 72, stream=s)"
OTHER = "triton_poi_fused_copy_0.run(buf3, buf2, 72, stream=s)"


def launches(lines, out: str, kernels: str) -> int:
    source = program({"a": A, "b": B}, [*MADE, *lines], out, kernels)
    return source.count("_kernel[")


def test_a_kernel_goes_into_the_tail_of_the_product_that_only_it_reads():
    assert launches([PRODUCT, READ], "buf0", relu(72)) == 1
    assert launches([PRODUCT, WRITE], "buf2", COPY) == 1


def test_what_else_the_kernel_reads_may_be_copied_before():
    copied = ["assert_size_stride(a, (8, 7), (7, 1), 'input')", "a = copy_if_misaligned(a)"]
    assert launches([PRODUCT, *copied, READ], "buf0", relu(72)) == 1


RESHAPED = "buf3 = reinterpret_tensor(buf0, (9, 8), (8, 1), 0)"
READ_BY_SHAPE = "triton_poi_fused_relu_0.run(buf3, 72, stream=s)"


def test_a_kernel_may_read_the_product_by_another_shape():
    assert launches([PRODUCT, RESHAPED, "del buf0", READ_BY_SHAPE], "buf3", relu(72)) == 1


def test_room_for_a_product_that_nothing_reads_any_more_is_not_made():
    for lines in ([PRODUCT, WRITE, "del buf0"], [PRODUCT, RESHAPED, "del buf0", OTHER, "del buf3"]):
        source = program({"a": A, "b": B}, [*MADE, *lines], "buf2", COPY)
        assert "buf0" not in source
        assert "buf3" not in source


def product_over(target: str, *, before: str = "") -> list[str]:
    """`h + h @ b`, stored to `target`; h is buf4."""
    return [
        "buf4 = torch.relu(a)",
        "assert_size_stride(buf4, (8, 7), (7, 1))",
        room("buf5", matrix(8, 7)),
        *([before] if before else []),
        "extern_kernels.mm(buf4, reinterpret_tensor(b, (7, 7), (7, 1), 0), out=buf5)",
        target,
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [*product_over("buf6 = buf4"), "triton_poi_fused_add_0.run(buf6, buf5, 56, stream=s)"],
        [
            *product_over("buf6 = reinterpret_tensor(buf4, (7, 8), (8, 1), 0)"),
            "triton_poi_fused_add_0.run(buf6, buf5, 56, stream=s)",
        ],
        [
            *product_over("pass", before="buf6 = reinterpret_tensor(buf4, (56, ), (1, ), 0)"),
            "triton_poi_fused_add_0.run(buf6, buf5, 56, stream=s)",
        ],
        [*product_over("pass"), "triton_poi_fused_add_0.run(buf4, buf5, 56, stream=s)"],
    ],
    ids=["by another name", "by another shape", "by a shape from before", "by its own name"],
)
def test_a_tail_does_not_store_to_what_its_product_still_reads(lines):
    out = "buf4" if "(buf4, buf5" in lines[-1] else "buf6"
    assert launches([line for line in lines if line != "pass"], out, add(56)) == 2


@pytest.mark.parametrize(
    ("lines", "out", "kernels"),
    [
        ([PRODUCT, READ], "buf0", relu(71)),
        ([PRODUCT, WRITE], "buf0", COPY),
        ([PRODUCT, WRITE, "buf3 = reinterpret_tensor(buf0, (9, 8), (8, 1), 0)"], "buf3", COPY),
        ([PRODUCT, WRITE], "buf2", TURNED),
        ([PRODUCT, "b.add_(1)", READ], "buf0", relu(72)),
        ([PRODUCT, "extern_kernels.mm(b, a, out=buf2)", READ], "buf0", relu(72)),
    ],
    ids=["another size", "returned too", "read later", "another order", "a change", "a call"],
)
def test_a_kernel_stays_where_a_tail_might_change_what_is_computed(lines, out, kernels):
    assert launches(lines, out, kernels) >= 2


def test_two_tails_of_one_name_and_different_texts_are_two_kernels():
    other = COPY.replace("tmp0, xmask)", "tmp0 + 1.0, xmask)")
    second = other.replace("triton_poi_fused_copy_0", "triton_poi_fused_copy_1")
    lines = [PRODUCT, WRITE, room("buf3", matrix(8, 9)), room("buf4", matrix(8, 9))]
    lines += ["extern_kernels.mm(a, b, out=buf3)"]
    lines += ["triton_poi_fused_copy_1.run(buf3, buf4, 72, stream=s)"]
    lines += ["buf5 = torch.add(buf2, buf4)"]
    source = program({"a": A, "b": B}, [*MADE, *lines], "buf5", COPY + second)
    assert "def matmul_copy_kernel(" in source
    assert "def matmul_copy_2_kernel(" in source
