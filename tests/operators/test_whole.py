"""Templates for operations that the compiler leaves whole: normalisations, scans, losses.

Invariants:
- a program with our kernels computes what torch does, whatever sizes, places of dimensions, types
  and tunables are;
- which of the kernels for rows a norm gets depends on its shape and the device alone;
- what no template can do is no program;
- two losses of one program have functions of their own;
- where norms are many, those share tunables whose blocks may be alike.

Programs run under Triton's interpreter.
"""

import ast

import pytest
import torch

from evolve.core.source import tunables
from operators.local.inductor import NotConvertible, convert
from tests.operators.differences import collected
from tests.operators.output_code import TASK, compiled, matrix, program
from tests.operators.templates_cases import tolerance
from tests.operators.templates_running import answers, interpreted
from tests.operators.whole_cases import COSINE, HINGE, SQUARE, WHOLE_CASES


@pytest.fixture(scope="module")
def differences(request) -> dict[str, float]:
    names = collected(request, "name")
    cases = [each for each in WHOLE_CASES if each["name"] in names]
    return answers(interpreted(cases), "cpu", TRITON_INTERPRET="1")


@pytest.mark.slow  # test_templates runs such programs
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [each["name"] for each in WHOLE_CASES])
def test_a_program_with_our_kernels_computes_what_torch_does(differences, name):
    assert differences[name] < tolerance(name, 4e-6)


@pytest.mark.parametrize("case", WHOLE_CASES, ids=lambda case: case["name"])
def test_a_launch_passes_what_its_kernel_takes(case):
    """The interpreter overlooks a keyword too many; the compiler does not."""
    tree = ast.parse(case["source"])
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    takes = {node.name: [argument.arg for argument in node.args.args] for node in functions}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            given = [keyword.arg for keyword in node.keywords]
            given = [name for name in given if name not in ("num_warps", "num_stages")]
            assert sorted(takes[ast.unparse(node.func.value)][len(node.args) :]) == sorted(given)


def kernels_of(name: str) -> set[str]:
    (source,) = (each["source"] for each in WHOLE_CASES if each["name"] == name)
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {name for name in names if name.endswith("_kernel")}


def test_rows_are_held_read_in_a_loop_or_cut_by_their_length_and_number():
    assert kernels_of("held layer True") == {"norm_kernel"}
    assert kernels_of("looped layer True") == {"norm_looped_kernel"}
    assert kernels_of("in parts layer True") == {"norm_parts_kernel", "norm_apply_kernel"}


@pytest.mark.parametrize("name", ["held", "looped", "sums"])
def test_what_follows_goes_into_the_tail(name):
    (kernel,) = kernels_of(f"{name} with a tail")
    assert kernel.endswith("_relu_kernel")


def test_one_pass_or_two_is_open_where_a_mean_is_taken_and_nowhere_else():
    sources = {each["name"]: each["source"] for each in WHOLE_CASES}
    names = {t.name for t in tunables.parse(sources["looped layer True"])}
    assert "NORM_LOOPED_PASSES" in names
    others = {t.name for t in tunables.parse(sources["looped absolute values"])}
    assert names - others == {"NORM_LOOPED_PASSES"}


def test_where_norms_are_many_those_share_tunables_whose_rows_are_as_wide_and_lie_alike():
    views = (2**21, 4, 1), (2**11, 4096, 1), (512, 2**14, 1), (8, 2**14, 64)
    calls = [
        f"norm.default(x, None, None, 'layer', {list(view)}, [1, 1, 1], {1 / view[1]}, {eps})"
        for view in views
        for eps in (0.1, 0.2, 0.3)
    ]
    found = []
    for number, call in enumerate(calls):
        found += [f"buf{number} = torch.ops.evolve.{call}"]
        found += [f"assert_size_stride(buf{number}, (2048, 4096), (4096, 1))"]
    source = program({"x": torch.empty(2048, 4096, device="meta")}, found, "buf11")
    choices = {t.name: t.choices for t in tunables.parse(source) if t.name.endswith("BLOCK_M")}
    assert choices == {
        "NORM_BLOCK_M": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "NORM_2_BLOCK_M": (1, 2, 4),
        "NORM_LOOPED_BLOCK_M": (1, 2, 4),
        "NORM_LOOPED_2_BLOCK_M": (16, 32, 64, 128),
    }


X = matrix(64, 20)
SCAN = "torch.ops.evolve.scan.default(x, None, [64, 20, 1], False, False, False)"


def lines(call: str, made: str = "") -> list[str]:
    known = [f"buf0 = {call}", "assert_size_stride(buf0, (64, 20), (20, 1))"]
    return [made, *known] if made else known


@pytest.mark.parametrize(
    ("found", "arguments"),
    [
        (lines(SCAN), {"x": matrix(20, 64).T}),
        (lines(SCAN.replace("(x,", "(other,"), "other = torch.ones(64, 20)"), {"x": X}),
    ],
    ids=["another order", "unknown shape"],
)
def test_what_no_template_can_do_is_no_program(found, arguments):
    with pytest.raises(NotConvertible):
        program(arguments, found)


def test_no_program_calls_what_only_templates_stand_for():
    found = compiled({"x": X}, lines(SCAN), "buf0")
    with pytest.raises(NotConvertible):
        convert(TASK.format(names="x, a"), "t", found)


def test_two_losses_have_functions_of_their_own():
    shape = [64, 20]
    found = []
    for number, (term, outcome) in enumerate([(SQUARE, ""), (HINGE, ""), (SQUARE, ""), COSINE]):
        call = f"total.default(x, y, None, {term!r}, {outcome!r}, {shape}, 1.0)"
        found += [f"buf{number} = torch.ops.evolve.{call}"]
        found += [f"assert_size_stride(buf{number}, (), ())"]
    source = program({"x": X, "y": X}, found, "buf3")
    assert source.count("def loss_term(") == source.count("def loss_2_term(") == 1
    assert source.count("def loss_3_terms(") == source.count("def loss_3_outcome(") == 1
    assert source.count("loss_parts_kernel[") == 2
