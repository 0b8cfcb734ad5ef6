"""Programs from the compiler's output code.

Invariants:
- a program computes what its reference does, whatever its tunables are set to;
- it stands alone: nothing of the compiler's own run time is imported or named;
- it takes over the reference's constructor and weights;
- what cannot be converted is refused with a reason, never written wrongly.

The fixtures are output code of torch 2.13, and of 2.15 if their name ends so, at tiny sizes.
"""

import ast
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from operators.local.inductor import PRECISIONS, NotConvertible, convert, precisions
from operators.local.inductor.cpp import library
from operators.local.inductor.reading import RawCpp
from operators.local.inductor.tidy import tidy
from tests.operators.differences import collected, differences_by
from tests.operators.output_code import matrix
from tests.operators.output_code import program as written

FOLDER = Path(__file__).parent / "inductor_fixtures"
FIXTURES = sorted(FOLDER.glob("*.json"))

# What forward's argument is called; a program has other things of these names.
NAMES = ("kernels", "shapes", "XBLOCK", "NUM_WARPS", "softmax_kernel", "maximum_2")


def read(path: Path) -> tuple[str, Compiled]:
    data = json.loads(path.read_text())
    return data["task"], Compiled.from_json(data["compiled"])


def with_code(compiled: Compiled, code: str) -> Compiled:
    (case,) = compiled.cases
    return replace(compiled, cases=(replace(case, code=code),))


def program(path: Path) -> str:
    task, compiled = read(path)
    return convert(task, path.stem, compiled)


def renamed(name: str) -> dict[str, object]:
    """The softmax with an argument of that name, and a second case, so that shapes are compared."""
    task, compiled = read(FOLDER / "softmax.json")
    (case,) = compiled.cases
    (argument,) = case.arguments
    argument = replace(argument, source=name)
    case = replace(case, arguments=(argument,))
    other = replace(case, name="other", arguments=(replace(argument, shape=(1, 1)),))
    task = task.replace("forward(self, x:", f"forward(self, {name}:").replace("(x,", f"({name},")
    return {"task": task, "compiled": replace(compiled, cases=(case, other)).to_json()}


@pytest.fixture(scope="module")
def differences(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("renamed")
    for name in collected(request, "name"):
        (folder / f"{name}.json").write_text(json.dumps(renamed(name)))
    paths = [*collected(request, "path"), *sorted(folder.glob("*.json"))]
    return differences_by("inductor_running", *map(str, paths), TRITON_INTERPRET="1")


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_converted_program_computes_what_its_reference_does(differences, path):
    assert differences[path.stem] < 2e-6


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_program_stands_alone(path):
    source = program(path)
    assert "inductor" not in source
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported <= {
        *("torch", "torch.nn", "triton", "triton.language", "triton.language.extra", "math")
    }


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_values_are_called_after_tensors_or_counted_and_lines_are_not_too_long(path):
    source = program(path)
    for kernel in re.findall(r"^def .*?(?=^\S)", source, flags=re.M | re.S):
        numbers = {int(number) for number in re.findall(r"\b_?tmp(\d+)", kernel)}
        assert numbers == set(range(len(numbers)))
        for name, pointer in re.findall(r"(\w+) = tl.load\((\w+)_ptr ", kernel):
            assert name == pointer or kernel.count(f"{pointer}_ptr +") > 1
    head = source[: source.index("\nclass ")]
    calls = [line for line in head.splitlines() if len(line) > 88 and re.match(" +[^ ]*\\(", line)]
    assert calls == []


def test_a_kernel_that_only_moves_elements_is_not_called_after_what_it_is_for():
    task, compiled = read(FOLDER / "gelu_bias.json")
    code = compiled.cases[0].code
    (body,) = re.findall(r"    tmp0 = tl.load.*?(?=\'\'\', device_str)", code, flags=re.S)
    moved = "    tmp7 = tl.load(in_ptr0 + (x2), xmask)\n    tl.store({} + (x2), tmp7, xmask)\n"
    out = re.findall(r"tl.store\((\w+)", body)[-1]
    source = convert(task, "t", with_code(compiled, code.replace(body, moved.format(out))))
    assert "a copy for add, gelu" in source
    assert "copy_kernel[" in source


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_kernel_has_open_tunables_that_the_program_declares_rightly(path):
    source = program(path)
    space = tunables.parse(source)
    grids = [
        node.func.slice
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    ]
    assert all(isinstance(grid, ast.Tuple) for grid in grids)
    assert len(space.tunables) >= len(grids) >= 1
    assert all(len(tunable.choices) > 1 for tunable in space.tunables)


def test_a_program_keeps_the_helpers_that_the_constructor_needs_and_no_more():
    source = program(FOLDER / "nested_arguments.json")
    names = {
        n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)
    }
    assert {"narrow", "Head", "ModelNew"} <= names
    assert not {"Model", "get_inputs", "get_init_inputs"} & names
    assert "WIDTH = 40" in source
    assert "super(ModelNew, self)" in source


def test_a_kernel_without_a_mask_is_only_offered_blocks_that_divide_its_size():
    task, compiled = read(FOLDER / "gelu_bias.json")
    masked = tunables.parse(convert(task, "t", compiled))["XBLOCK"]
    written = compiled.cases[0].code
    code = written.replace("xmask = xindex < xnumel", "xmask = tl.full([XBLOCK], True, tl.int1)[:]")
    assert code != written
    unmasked = convert(task, "t", with_code(compiled, code))
    assert "xnumel = 1920\n" in code
    assert masked.choices == (128, 256, 512, 1024, 2048)
    assert "\nXBLOCK = 128\n" in unmasked  # the one that divides 1920
    assert "XBLOCK" not in {tunable.name for tunable in tunables.parse(unmasked)}


@pytest.mark.parametrize(
    ("columns", "wanted"), [(700, (8, 64)), (20_000, (16, 32)), (524_160, (128, 4))]
)
def test_where_columns_lie_side_by_side_a_block_has_many_of_them(columns, wanted):
    """Also where Inductor does not know, and would try it out."""
    task, compiled = read(FOLDER / "layernorm_looped.json")
    inner = tunables.parse(convert(task, "t", compiled))
    code = compiled.cases[0].code.replace("ReductionHint.INNER", "ReductionHint.DEFAULT")
    assert tunables.parse(convert(task, "t", with_code(compiled, code))) == inner
    code = re.sub(r"xnumel = \d+\n", f"xnumel = {columns}\n", code)
    outer = code.replace("(r0_1 + 320*x0)", f"(x0 + {columns}*r0_1)")
    assert outer != code
    found = tunables.parse(convert(task, "t", with_code(compiled, outer))).defaults
    assert (found["XBLOCK"], found["R0_BLOCK"]) == wanted


TWO_REDUCED = """
triton_red_fused_sum_0 = async_compile.triton('triton_red_fused_sum_0', '''
import triton

@triton_heuristics.reduction(
    size_hints={{'x': 1024, 'r0_': 1024, 'r1_': 1024}}, reduction_hint=ReductionHint.{hint},
    triton_meta={{}}, inductor_meta={{'grid_type': 'Grid1D'}}
)
@triton.jit
def triton_red_fused_sum_0(in_ptr0, out_ptr0, xnumel, r0_numel, r1_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr, R1_BLOCK : tl.constexpr):
    xnumel = 2048
    r0_numel = {outer}
    r1_numel = {inner}
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :, None]
    r1_base = tl.arange(0, R1_BLOCK)[None, None, :]
    _tmp2 = tl.full([XBLOCK, R0_BLOCK, R1_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        for r1_offset in tl.range(0, r1_numel, R1_BLOCK):
            r1_index = r1_offset + r1_base
            r1_mask = r1_index < r1_numel
            at = in_ptr0 + (r1_index + {inner}*r0_index + {inner}*{outer}*xindex)
            tmp0 = tl.load(at, r0_mask & r1_mask & xmask, other=0.0)
            _tmp2 = _tmp2 + tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK, R1_BLOCK])
    tl.store(out_ptr0 + (xindex), tl.sum(tl.sum(_tmp2, 2), 1)[:, None, None], xmask)
''', device_str='cuda')
"""  # noqa: E501


@pytest.mark.parametrize("hint", ["INNER", "OUTER", "DEFAULT"])
@pytest.mark.parametrize(("outer", "inner"), [(1000, 255), (3, 5000), (5000, 3), (4096, 4096)])
def test_two_dimensions_that_are_reduced_share_what_one_block_holds(hint, outer, inner):
    kernel = TWO_REDUCED.format(hint=hint, outer=outer, inner=inner)
    lines = [
        "buf0 = empty_strided_cuda((2048, ), (1, ), torch.float32)",
        f"triton_red_fused_sum_0.run(a, buf0, 2048, {outer}, {inner}, stream=raw_stream0)",
    ]
    source = written({"a": matrix(2048, outer, inner)}, lines, kernels=kernel)
    blocks = [int(size) for size in re.findall(r"^\w*BLOCK = (\d+)$", source, re.MULTILINE)]
    assert len(blocks) == 3
    assert 256 <= math.prod(blocks) <= 2048
    assert max(blocks[1:]) > 1


def test_where_all_rows_are_held_there_are_more_columns_where_they_lie_side_by_side():
    task, compiled = read(FOLDER / "layernorm.json")
    code = compiled.cases[0].code.replace("ReductionHint.INNER", "ReductionHint.DEFAULT")
    code = re.sub(r"xnumel = \d+\n", "xnumel = 700\n", code)
    outer = code.replace("(r0_1 + 320*x0)", "(x0 + 700*r0_1)")
    assert outer != code
    begun = [
        tunables.parse(convert(task, "t", with_code(compiled, one))).defaults["XBLOCK"]
        for one in (code, outer)
    ]
    assert begun == [4, 8]  # 8 times 512 are 4096


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("async_compile.triton(", "async_compile.halide("), "halide"),
        (("'grid_type': 'Grid1D'", "'grid_type': 'CooperativeReductionGrid'"), "grid"),
        (("    xnumel = ", "    other = "), "run time"),
        (("return (buf", "result = (buf"), "returns nothing"),
        (("empty_strided_cpu(", "from_a_pool("), "from_a_pool"),
        (("def call(", "def start("), "no function"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_converted_is_refused_with_a_reason(change, reason):
    task, compiled = read(FOLDER / "layernorm_looped.json")
    with pytest.raises(NotConvertible, match=reason):
        convert(task, "t", with_code(compiled, compiled.cases[0].code.replace(*change)))


def test_a_constant_that_a_function_makes_stands_behind_that_function():
    task, compiled = read(FOLDER / "layernorm_looped.json")
    own = "def tupled(n):\n    return (n, n)\n\n\nPAIR = tupled(1)\n\n\nclass Model("
    task = task.replace("class Model(", own).replace("self.eps = eps", "self.eps = eps * PAIR[0]")
    source = convert(task, "t", compiled)
    assert source.index("def tupled(") < source.index("PAIR = tupled(1)")


def test_a_buffer_is_freed_with_its_last_name():
    task, compiled = read(FOLDER / "softmax_split.json")
    code = compiled.cases[0].code
    (*_, (indent, freed)) = re.findall(r"^( +)del (buf\d+)$", code, flags=re.M)
    assert f"del {freed}\n" in convert(task, "t", compiled)
    names = f"other = {freed}; del {freed}  # reuse\n{indent}another = other; del other\n"
    reused = code.replace(f"del {freed}\n", f"{names}{indent}del another\n")
    kept = reused.replace(f"{indent}del another\n", "")
    assert f"del {freed}\n" in convert(task, "t", with_code(compiled, reused))
    assert f"del {freed}\n" not in convert(task, "t", with_code(compiled, kept))


def test_output_code_without_a_kernel_is_refused():
    task, compiled = read(FOLDER / "softmax.json")
    empty = "def call(args):\n    x, = args\n    args.clear()\n    return (x, )\n"
    with pytest.raises(NotConvertible, match="no kernel"):
        convert(task, "t", with_code(compiled, empty))


def test_a_constant_that_a_function_reads_too_keeps_its_name():
    body = ast.parse(
        "half = tl.full([1, 1], 0.5, tl.float32)\n"
        "scaled = x * half\n"
        "wide = tl.broadcast_to(half, [XBLOCK, R0_BLOCK])\n"
        "tl.store(out_ptr, scaled + wide, None)\n"
    ).body
    text = "\n".join(map(ast.unparse, tidy(body)))
    assert "tl.broadcast_to(half" in text
    assert "broadcast_to(0.5" not in text


def test_a_loop_compares_values_and_keeps_places_along_with_them():
    source = program(FOLDER / "argmax.json")
    assert "is_exceeded(" in source
    assert "imum_with_index(_tmp" not in source


def test_a_comparison_that_is_not_followed_as_usual_stays():
    task, compiled = read(FOLDER / "argmax.json")
    (case,) = compiled.cases
    changed = case.code.replace("mask, _tmp3_next, _tmp3)", "mask, _tmp3_next, _tmp2)")
    assert changed != case.code
    source = convert(task, "changed", with_code(compiled, changed))
    assert source.count("= minimum_with_index(") == 1


def test_places_that_are_worked_out_are_compared_too():
    task, compiled = read(FOLDER / "argmax.json")
    (case,) = compiled.cases
    changed = re.sub(r"tmp1, rindex\n", "tmp1, (r0_2 * 5 % 37).to(tl.int32)\n", case.code)
    assert changed != case.code
    source = convert(task, "changed", with_code(compiled, changed))
    assert "is_exceeded(" not in source
    assert source.count("imum_with_index(\n") + source.count("imum_with_index(_tmp") == 2


def test_casts_that_decide_on_a_type_stay_and_those_of_loops_go():
    code = (
        "#include <torch/csrc/inductor/cpp_prefix.h>\n"
        'extern "C" void kernel(const int64_t* in_ptr0, int64_t* out_ptr0)\n{\n'
        "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(9L); "
        "x0+=static_cast<int64_t>(1L))\n{\n"
        "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];\n"
        "auto tmp1 = static_cast<int64_t>(1);\n"
        "out_ptr0[static_cast<int64_t>(x0)] = "
        "c10::div_floor_integer(static_cast<int64_t>(tmp0), static_cast<int64_t>(3L));\n}\n}\n"
    )
    text = library("kernels", "t", {"f": RawCpp(code, ())}, {})
    assert "for(int64_t x0=0; x0<9; x0+=1)" in text
    assert "in_ptr0_data[x0]" in text
    assert "auto tmp1 = static_cast<int64_t>(1);" in text
    assert "div_floor_integer(static_cast<int64_t>(tmp0), static_cast<int64_t>(3L))" in text


def test_the_assertion_on_the_width_of_vectors_holds_where_rows_are_shorter():
    code = (
        'extern "C" void kernel(const float* in_ptr0, float* out_ptr0)\n{\n'
        "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(10L); "
        "x0+=static_cast<int64_t>(16L))\n{\n"
        "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), "
        "static_cast<int64_t>(10L));\n"
        "tmp0.store(out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(10L));\n}\n}\n"
    )
    assert "size() == 16" in library("kernels", "t", {"f": RawCpp(code, ())}, {})
    scalar = code.replace("at::vec::Vectorized<float>::loadu", "plain").replace("(16L)", "(1L)")
    assert "static_assert" not in library("kernels", "t", {"f": RawCpp(scalar, ())}, {})


def test_a_pointer_in_cpp_takes_no_name_that_a_parameter_has():
    code = (
        'extern "C" void kernel(const float* in_ptr0, float* out_ptr0)\n{\n'
        "out_ptr0[0] = in_ptr0[0];\n}\n"
    )
    names = {"f": {0: "x", 1: "x_data"}}
    text = library("kernels", "t", {"f": RawCpp(code, ())}, names)
    assert "auto* x_data_ = static_cast<const float*>(x.data_ptr());" in text
    assert "x_data_data[0] = x_data_[0];" in text


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
def test_forward_may_name_its_argument_as_a_program_names_something_else(differences, name):
    assert differences[name] < 2e-6


def test_an_argument_with_the_name_of_a_buffer_is_refused():
    task, compiled = read(FOLDER / "softmax.json")
    (case,) = compiled.cases
    (argument,) = case.arguments
    case = replace(case, arguments=(replace(argument, name="buf0"),))
    with pytest.raises(NotConvertible, match="x has a name that the compiler uses"):
        convert(task, "t", replace(compiled, cases=(case,)))


def test_a_reference_that_uses_a_name_of_the_program_for_something_else_is_refused():
    task, compiled = read(FOLDER / "softmax.json")
    task = task.replace("class Model(nn.Module):", "class tl(nn.Module):\n    pass\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.part = tl()\n")  # fmt: skip
    with pytest.raises(NotConvertible, match="the reference uses tl for something else"):
        convert(task, "t", compiled)


def test_a_name_that_nothing_binds_in_the_reference_either_is_no_obstacle():
    task, compiled = read(FOLDER / "softmax.json")
    task = task.replace("class Model(nn.Module):", "class Part(nn.Module):\n"
        "    def forward(self, x):\n        return checkpoint.checkpoint(self, x)\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.part = Part()\n")  # fmt: skip
    assert "checkpoint.checkpoint" in convert(task, "t", compiled)
    with pytest.raises(NotConvertible, match="it uses checkpoint"):  # which may come from there
        convert(f"from math import *\n{task}", "t", compiled)


def test_an_assertion_on_an_index_stays():
    task, compiled = read(FOLDER / "cross_entropy.json")
    written = compiled.cases[0].code.count("tl.device_assert(")
    assert written > 0
    assert convert(task, "t", compiled).count("tl.device_assert(") == written


def test_output_code_for_cuda_is_converted_as_that_for_the_cpu_is():
    source = program(FOLDER / "softmax_online.json")
    assert "copy_if_misaligned" not in source
    assert re.search(r"online_softmax_combine\(\s*_tmp\d_max, _tmp\d_sum, ", source)
    assert "False" not in source


@pytest.mark.parametrize("name", ["product_linear", "product_convolution"])
def test_a_product_has_open_blocks_stages_and_precision(name):
    source = program(FOLDER / f"{name}.json")
    space = {tunable.name: tunable for tunable in tunables.parse(source)}
    assert {"BLOCK_M", "BLOCK_N", "INPUT_PRECISION", "NUM_WARPS", "NUM_STAGES"} <= space.keys()
    assert space["INPUT_PRECISION"].choices == PRECISIONS
    assert "ALLOW_TF32" not in source


def test_a_product_without_masks_along_its_depth_takes_blocks_that_divide_it():
    task, compiled = read(FOLDER / "product_linear.json")
    code = compiled.cases[0].code
    assert "EVEN_K : tl.constexpr = False" in code
    assert "K = 40\n" in code
    assert tunables.parse(convert(task, "t", compiled))["BLOCK_K"].choices == (16, 32, 64)
    even = code.replace("EVEN_K : tl.constexpr = False", "EVEN_K : tl.constexpr = True")
    even = even.replace("    K = 40\n", "    K = 96\n")
    space = tunables.parse(convert(task, "t", with_code(compiled, even)))
    assert space["BLOCK_K"].choices == (16, 32)


def test_a_product_with_a_grid_that_is_not_understood_keeps_it_and_its_blocks():
    task, compiled = read(FOLDER / "product_linear.json")
    code = compiled.cases[0].code.replace(", buf1, 6, 1, 1, stream", ", buf1, 7, 1, 1, stream")
    assert code != compiled.cases[0].code
    source = convert(task, "t", with_code(compiled, code))
    assert "_kernel[(7, 1, 1)](" in source
    assert {t.name for t in tunables.parse(source)} == {
        *("INPUT_PRECISION", "NUM_WARPS", "NUM_STAGES")
    }


def test_a_template_that_is_not_known_costs_its_blocks_and_nothing_else():
    source = program(FOLDER / "product_depthwise.json")
    assert "BLOCK_L: tl.constexpr = " in source
    assert {t.name for t in tunables.parse(source)} == {"NUM_WARPS", "NUM_STAGES"}


def test_functions_of_the_devices_library_stay_what_they_are():
    """`tl.exp` is less exact than `libdevice.exp`."""
    for name in ("softmax", "softmax_online"):
        source = program(FOLDER / f"{name}.json")
        assert "libdevice.exp(" in source
        assert "tl.exp(" not in source


@pytest.mark.parametrize(
    ("arch", "offered"),
    [
        ("", {"tf32", "tf32x3", "bf16x6", "bf16x3", "ieee"}),
        ("gfx942:sramecc+:xnack-", {"tf32", "bf16x6", "bf16x3", "ieee"}),
        ("gfx1100", {"bf16x6", "bf16x3", "ieee"}),
    ],
)
def test_a_device_is_offered_the_precisions_that_it_has(arch, offered):
    assert set(precisions("tf32", arch)) == offered
    assert set(precisions("ieee", arch)) == offered - {"tf32"}


def test_numbers_of_either_sign_and_nan_are_divided_and_compared_as_by_torch():
    wrong = differences_by("device_functions_running", TRITON_INTERPRET="1")
    assert wrong == {
        "div_floor_integer": 0, "remainder_integer": 0, "maximum": 0, "minimum": 0,
    }  # fmt: skip
