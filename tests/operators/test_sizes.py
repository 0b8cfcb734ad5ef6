"""Sizes in programs that the project makes.

Invariants:
1. The parts of a product's SHAPE, and counts of elements in a grid, stand as constants of the
   module, once each; launches and grids use their names.
2. Names are of the program alone: none that the task has, and equal sizes of one role share one.
3. The numbers of a program can be read by others: rewrites of kernels, and the tuner's expectation.
"""

import ast
import re
from dataclasses import replace

import pytest

from evolve.core.source import tunables
from operators.local.structure.program import TritonProgram
from operators.local.template_seed import TemplateSeed
from operators.local.tuning.resources import constants
from tests.operators import proposing
from tests.operators.prompt_states import H100, matmul_relu_h100


@pytest.fixture(scope="module")
def programs() -> list[str]:
    task = matmul_relu_h100().task
    made = proposing.proposals(TemplateSeed(), task, **H100)
    return [each.program.source for each in made if hasattr(each, "program")]


def launches(source: str) -> dict[str, ast.Call]:
    return {name: launch.call for name, launch in TritonProgram(source).all_launches}


def test_a_products_sizes_have_the_names_of_their_roles(programs):
    for source in programs:
        ((name, call),) = [pair for pair in launches(source).items() if "matmul" in pair[0]]
        (shape,) = [option.value for option in call.keywords if option.arg == "SHAPE"]
        prefix = name.removesuffix("_kernel").upper()
        named = [f"{prefix}_{role}" for role in ("ROWS", "COLUMNS", "DEPTH")]
        assert [ast.unparse(part) for part in shape.elts] == named
        assert [constants(ast.parse(source))[each] for each in named] == [8, 9, 7]
        assert f"triton.cdiv({prefix}_ROWS, {prefix}_BLOCK_M)" in source
        assert not set(named) & {each.name for each in tunables.parse(source)}


def test_a_flat_count_of_elements_is_a_constant_that_equal_ones_share(programs):
    (source,) = [each for each in programs if " relu_kernel[" in each]
    assert "relu_kernel[(triton.cdiv(NUMEL, RELU_XBLOCK),)]" in source
    assert re.findall(r"^NUMEL\w* = (\d+)\b", source, re.MULTILINE) == ["72"]


def test_every_size_says_what_it_is_of(programs):
    for source in programs:
        ((name, _),) = [pair for pair in launches(source).items() if "matmul" in pair[0]]
        prefix = name.removesuffix("_kernel").upper()
        for role in ("rows", "columns", "depth"):
            said = rf"^{prefix}_{role.upper()} = \d+  # {role}, in SHAPE of {name}$"
            assert re.search(said, source, re.MULTILINE)
        for line in re.findall(r"^NUMEL.*$", source, re.MULTILINE):
            assert line.endswith("  # elements of a launch; in kernels too, as `xnumel` and so on")


def test_no_size_stands_in_a_grid_as_a_number(programs):
    for source in programs:
        for _, launch in TritonProgram(source).all_launches:
            divided = [node.args[0] for node in ast.walk(launch.grid) if isinstance(node, ast.Call)]
            assert divided
            assert not [part for part in divided if isinstance(part, ast.Constant)]


def test_a_name_that_the_task_has_is_left_to_it():
    task = matmul_relu_h100().task
    taken = replace(
        task, source=f"NUMEL = 3\n{task.source}".replace("bias=False", "bias=NUMEL > 3")
    )
    made = proposing.proposals(TemplateSeed(), taken, **H100)
    sources = [each.program.source for each in made if hasattr(each, "program")]
    (source,) = [each for each in sources if " relu_kernel[" in each]
    assert "NUMEL_2 = 72" in source
    assert "triton.cdiv(NUMEL_2, RELU_XBLOCK)" in source
