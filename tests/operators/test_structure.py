"""Rewrites of the structure of Triton programs.

Invariants:
- a rewritten program computes what the one before computes, whatever its tunables are set to;
- it is a program like any other: tunables declared rightly, constants that nothing reads gone;
- what cannot be rewritten is refused with a reason.

Programs are the fixtures of `test_inductor` and seeds that ship, interpreted at tiny sizes.
"""

import json
import random
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
import torch

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from operators.local.inductor import convert
from operators.local.structure import REWRITES, NotApplicable, TritonProgram
from operators.local.templates import How
from tests.operators import row_sums
from tests.operators.differences import differences_by
from tests.operators.inductor_running import INTERPRETED
from tests.operators.output_code import instance, matrix, quick
from tests.operators.templates_cases import attention, convolution, pool, product
from tests.operators.whole_cases import WHOLE_CASES

pytestmark = pytest.mark.timeout(300)  # one process interprets all programs before a first test
FOLDER = Path(__file__).parent / "inductor_fixtures"
ROOT = Path(__file__).parents[2]
SLOW = ("softmax_split",)  # tens of thousands of elements, and nothing that the others have not
FUSED = "chain: fuse_pointwise of scaled_kernel"

CHAIN_TASK = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(30))

    def forward(self, x):
        return torch.relu(x * self.scale + x), (x * self.scale + x) * 3 + x


def get_inputs():
    return [torch.randn(7, 30)]


def get_init_inputs():
    return []
"""

CHAIN = '''"""A chain of elementwise kernels."""

import torch
import triton
import triton.language as tl
from torch import nn

SCALED_BLOCK = 64
SCALED_WARPS = 4
SHIFTED_BLOCK = 32
SHIFTED_WARPS = 2
TUNABLE = {"SCALED_BLOCK": (32, 64), "SCALED_WARPS": (4, 8), "SHIFTED_BLOCK": (16, 32)}


# x * scale + x
@triton.jit
def scaled_kernel(x_ptr, scale_ptr, scaled_ptr, BLOCK: tl.constexpr):
    numel = 210
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    column = index % 30
    x = tl.load(x_ptr + index, mask)
    scale = tl.load(scale_ptr + column, mask)
    tl.store(scaled_ptr + index, x * scale + x, mask)


# relu(scaled), scaled * 3 + x
@triton.jit
def shifted_kernel(scaled_ptr, x_ptr, first_ptr, second_ptr, BLOCK: tl.constexpr):
    numel = 210
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < numel
    value = tl.load(scaled_ptr + offset, mask)
    x = tl.load(x_ptr + offset, mask)
    tl.store(first_ptr + offset, tl.where(value > 0, value, 0.0), mask)
    tl.store(second_ptr + offset, value * 3 + x, mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(30))

    def forward(self, x):
        x = x.contiguous()
        scaled = torch.empty((7, 30), device=x.device, dtype=torch.float32)
        # the first
        scaled_kernel[(triton.cdiv(210, SCALED_BLOCK),)](
            x, self.scale, scaled, BLOCK=SCALED_BLOCK, num_warps=SCALED_WARPS
        )
        first = torch.empty((7, 30), device=x.device, dtype=torch.float32)
        second = torch.empty((7, 30), device=x.device, dtype=torch.float32)
        # the second
        shifted_kernel[(triton.cdiv(210, SHIFTED_BLOCK),)](
            scaled, x, first, second, BLOCK=SHIFTED_BLOCK, num_warps=SHIFTED_WARPS
        )
        del scaled
        return first, second
'''


OWN_TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def own(case: dict) -> tuple[str, str]:
    """The program of a template's case, and a task for it."""
    inputs = ", ".join(f"torch.randn{tuple(view[0])}" for _, view in case["tensors"])
    names = ", ".join(case["names"])
    task = OWN_TASK.format(names=names, result=case["reference"], inputs=inputs)
    return instance(case["source"], case["name"], INTERPRETED), task


def templates():
    """Of each kind of kernel one."""
    x, heads = torch.empty(2, 6, 7, 8, device="meta"), torch.empty(2, 2, 20, 16, device="meta")
    weight = torch.empty(6, 1, 3, 3, device="meta")
    yield "product", product("p", matrix(3, 37, 50), matrix(3, 50, 29))
    yield "vector", product("v", matrix(45, 30), matrix(30, 1))
    yield "depthwise", convolution("d", x, weight, groups=6)
    yield "average", pool("a", "avg_pool2d", x, [3, 3])
    yield "heads", attention("h", "flash_attention", heads, heads, heads, ", 0.0, True")
    yield "even product", product("e", matrix(37, 300), matrix(300, 29), how=How.EVEN)
    wanted = ("looped groups", "sums with a tail", "cosine")
    yield from ((case["name"], case) for case in WHOLE_CASES if case["name"] in wanted)


@cache
def programs():
    """Source of each program, and of its task, by name."""
    found = {"chain": (CHAIN, CHAIN_TASK), "row sums": (row_sums.SOURCE, row_sums.TASK)}
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem in SLOW:
            continue
        data = json.loads(path.read_text())
        compiled = Compiled.from_json(data["compiled"])
        source = convert(data["task"], path.stem, compiled, precisions=INTERPRETED)
        found[path.stem] = (source, data["task"])
    for name, case in templates():
        found[name] = own(case)
    for task, seed in (("softmax", "seed_triton"), ("rmsnorm", "seed_triton")):
        path = ROOT / "examples" / "tasks" / task / "seeds" / f"{seed}.py"
        found[f"{task} by hand"] = (path.read_text(), found[task][1])
    return found


@cache
def rewritten():
    """All rewrites that can be made, by name, each with its program's."""
    found = {}
    for name, (source, _) in programs().items():
        program = TritonProgram(source)
        for rewrite, function in REWRITES.items():
            for kernel in program.kernels:
                try:
                    found[f"{name}: {rewrite} of {kernel}"] = (name, function(program, kernel))
                except NotApplicable as reason:
                    assert str(reason)
    return found


def differences(names):
    rng = random.Random(1)
    lines = []
    for name in names:
        origin, source = rewritten()[name]
        before, task = programs()[origin]
        chosen = quick(tunables.parse(source), rng)
        interpreted = {n: v for n, v in chosen.items() if not n.endswith("INPUT_PRECISION")}
        instance = tunables.render(source, interpreted)
        pair = {"name": name, "task": task, "before": before, "after": instance}
        lines.append(json.dumps(pair))
    return differences_by("structure_running", given="\n".join(lines), TRITON_INTERPRET="1")


def test_a_rewritten_program_computes_what_it_did():
    assert differences([FUSED])[FUSED] < 2e-6


@pytest.mark.slow  # the test above interprets one rewritten program
def test_every_other_rewritten_program_computes_what_it_did():
    others = rewritten().keys() - {FUSED}
    found = differences([name for name in rewritten() if name in others])
    assert found.keys() == others
    assert {name: far for name, far in found.items() if not far < 2e-6} == {}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_rewrite_can_be_made_of_some_program(rewrite):
    assert any(f": {rewrite} of " in name for name in rewritten())


def test_what_it_declares_is_what_it_has():
    for name, (_, source) in rewritten().items():
        for tunable in tunables.parse(source):
            assert len(tunable.choices) > 1, name
            assert tunable.default in tunable.choices, name


def test_elementwise_neighbours_become_one_kernel_and_what_passed_between_is_gone():
    source = REWRITES["fuse_pointwise"](TritonProgram(CHAIN), "scaled_kernel")
    program = TritonProgram(source)
    assert list(program.kernels) == ["scaled_shifted_kernel"]
    kernel = source[source.index("def scaled_shifted_kernel") : source.index("class ModelNew")]
    assert "scaled_ptr" not in source
    assert kernel.count("tl.load(x_ptr") == 1
    assert "SHIFTED" not in source
    assert "scaled = " not in source.replace("scaled_value = ", "")
    assert "del " not in source


@pytest.mark.parametrize(
    "change",
    [
        ("return first, second", "return first, second + scaled"),
        ("        # the first\n", "        other = scaled.view(-1)\n        # the first\n"),
    ],
    ids=["afterwards", "by another name"],
)
def test_a_buffer_that_somebody_else_reads_is_written_still(change):
    source = CHAIN.replace(*change).replace("        del scaled\n", "")
    fused = REWRITES["fuse_pointwise"](TritonProgram(source), "scaled_kernel")
    assert "tl.store(scaled_ptr + index, scaled_value, mask)" in fused
    assert "scaled = torch.empty(" in fused


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("offset < numel", "offset < numel - 1"), "not read where it is written"),
        (("scaled_ptr + offset", "scaled_ptr + offset // 2"), "not read where it is written"),
        (("cdiv(210, SHIFTED_BLOCK)", "cdiv(211, SHIFTED_BLOCK)"), "another number of elements"),
        (("dtype=torch.float32)\n        # the first", "dtype=torch.float16)\n        # the first"),
         "not known to be a float32 buffer"),
        (("        # the second\n", "        x = x + 1\n"), "no other kernel is launched"),
        (("tl.where(value > 0, value, 0.0)", "value / tl.sum(value, 0)"), "calls tl.sum"),
        (("scaled, x, first, second,", "scaled, x, first, x,"), "x is not read where"),
    ],
)  # fmt: skip
def test_neighbours_that_do_not_fit_are_left_alone(change, reason):
    assert change[0] in CHAIN
    source = CHAIN.replace(*change)
    if change[1].endswith("x,"):
        source = source.replace("x_ptr + index", "x_ptr + (index + 1)")
    with pytest.raises(NotApplicable, match=reason):
        REWRITES["fuse_pointwise"](TritonProgram(source), "scaled_kernel")


def test_a_grid_that_is_no_tuple_is_left_alone():
    source = CHAIN.replace(
        "scaled_kernel[(triton.cdiv(210, SCALED_BLOCK),)]", "scaled_kernel[x.shape[:1]]"
    )
    for rewrite in ("persistent_grid", "fuse_pointwise"):
        with pytest.raises(NotApplicable, match="not written as a tuple"):
            REWRITES[rewrite](TritonProgram(source), "scaled_kernel")


def joined(source: str) -> str:
    """With the first argument of a call beside the call."""
    return re.sub(r"\(\n +", "(", source)


def test_a_persistent_kernel_loads_parameters_once_and_starts_accumulators_for_each_tile():
    source = joined(rewritten()["layernorm: persistent_grid of native_layer_norm_kernel"][1])
    kernel = source[source.index("@triton.jit\ndef native_layer_norm_kernel") :]
    before, inside = kernel.split("for number in tl.range(", 1)
    assert "tl.load(weight_ptr" in before
    assert "tl.load(x_ptr" not in before
    assert "tl.load(x_ptr" in inside
    looped = rewritten()["softmax_online: persistent_grid of softmax_prepare_softmax_kernel"][1]
    before, inside = looped.split("for number in tl.range(", 1)
    assert "_sum = tl.zeros(" not in before
    assert "_sum = tl.zeros(" in inside


def test_a_held_row_is_read_once_and_has_no_block_to_choose():
    source = joined(rewritten()["softmax_online: hold_rows of softmax_prepare_softmax_kernel"][1])
    assert source.count("tl.load(x_ptr") == 1
    assert "R0_BLOCK: tl.constexpr = 4096" in source
    assert "R0_BLOCK" not in {tunable.name for tunable in tunables.parse(source)}


def test_a_row_that_no_mask_bounds_is_not_held_in_a_longer_block():
    source = programs()["softmax_online"][0]
    unmasked = source.replace("r0_mask & xmask, eviction", "xmask, eviction")
    assert unmasked != source
    with pytest.raises(NotApplicable, match="no mask along the row"):
        REWRITES["hold_rows"](TritonProgram(unmasked), "softmax_prepare_softmax_kernel")


BY_HAND = """import torch
import triton
import triton.language as tl

BLOCK = 512
TUNABLE = {{"BLOCK": (256, 512)}}


@triton.jit
def rows_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    n = 1536
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
{body}

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows_kernel[(x.shape[0],)](x, y, BLOCK=BLOCK)
        return y
"""
LOOP = """
for start in tl.range(0, n, BLOCK):
    at = start + cols
    inside = at < n
    x = tl.load(x_ptr + row * n + at, inside, other=0.0)
    {line}"""
TOTAL = "total = tl.zeros([BLOCK], tl.float32)"
SECOND = "tl.store(y_ptr + row * n + at, tl.exp(x) / tl.sum(total, 0), inside)"


def by_hand(*parts: str) -> TritonProgram:
    """A kernel with this in its body."""
    body = textwrap.indent("\n".join(parts), " " * 4)
    return TritonProgram(BY_HAND.format(body=body + "\n"))


def test_a_kernel_that_moves_its_pointers_is_not_given_a_second_tile():
    stored = "tl.store(y_ptr + cols, tl.load(x_ptr + cols))"
    REWRITES["persistent_grid"](by_hand(stored), "rows_kernel")
    for moved in ("x_ptr += row * n", "x_ptr = x_ptr + row * n", "if row > 1:\n    x_ptr += n"):
        with pytest.raises(NotApplicable, match="it changes x_ptr"):
            REWRITES["persistent_grid"](by_hand(moved, stored), "rows_kernel")


@pytest.mark.parametrize(
    "line",
    [
        "total += tl.exp(x)",
        "total = total + tl.exp(x)",
        "total, other = total + tl.exp(x), x",
        "inside |= at < 2 * n\n    total = tl.where(inside, total + tl.exp(x), total)",
    ],
)
def test_a_sum_that_takes_in_what_lies_beyond_the_row_keeps_its_blocks(line):
    good = "total = tl.where(inside, total + tl.exp(x), total)"
    held = by_hand(TOTAL, LOOP.format(line=good), LOOP.format(line=SECOND).replace("x =", "x2 ="))
    assert "BLOCK: tl.constexpr = 2048" in REWRITES["hold_rows"](held, "rows_kernel")
    wrong = by_hand(TOTAL, LOOP.format(line=line), LOOP.format(line=SECOND))
    with pytest.raises(NotApplicable, match=r"total takes in what|no mask along the row"):
        REWRITES["hold_rows"](wrong, "rows_kernel")


@pytest.mark.parametrize("moved", ["ptrs += n", "ptrs, _ = ptrs + n, 0", "if row:\n    ptrs += n"])
def test_loads_from_a_pointer_that_moves_in_between_stay_two(moved):
    line = "tl.store(y_ptr + at, {name} + x, inside)"
    loads = ["ptrs = x_ptr + cols", "a = tl.load(ptrs)", "b = tl.load(ptrs)"]
    loops = [LOOP.format(line=line.format(name=name)) for name in "ab"]
    once = REWRITES["hold_rows"](by_hand(*loads, *loops), "rows_kernel")
    assert "b = a" in once
    loads.insert(2, moved)
    with pytest.raises(NotApplicable, match="no row is read twice"):
        REWRITES["hold_rows"](by_hand(*loads, *loops), "rows_kernel")


COMMENTED = """# of a row
acc = tl.zeros([BLOCK], tl.float32)
for start in tl.range(0, n, BLOCK):  # blocks
    # what lies there
    x = tl.load(
        x_ptr + row * n + start + cols,
        mask=start + cols < n,
        other=0.0,
    )
    acc += x
tl.store(y_ptr + cols, acc)"""


@pytest.mark.parametrize("rewrite", ["persistent_grid", "pipeline_loops"])
def test_what_a_rewrite_does_not_change_stays_as_it_is_written(rewrite):
    source = REWRITES[rewrite](by_hand(COMMENTED), "rows_kernel")
    assert "    # of a row\n" in source
    assert "    # what lies there\n" in source
    assert "mask=start + cols < n,\n" in source
    assert "acc += x\n" in source


def test_rewritten_templates_have_their_documentation_and_lines_that_are_not_too_long():
    matrices = (torch.empty(64, 64, device="meta"),) * 2
    program = TritonProgram(product("mm", *matrices)["source"])
    source = REWRITES["persistent_grid"](program, "matmul_kernel")
    kernel = source[source.index("def matmul_kernel") : source.index("class ModelNew")]
    assert '\n    """Computes a @ b' in kernel
    assert "    value = matmul_tile(\n" in kernel
    assert max(map(len, kernel.splitlines())) <= 100
