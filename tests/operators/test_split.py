"""Sums over rows that are cut into parts for several programs.

Invariant: only sums are cut, and only where rows are few. What a cut program computes is tested
with all rewrites (`test_structure`).
"""

import re

import pytest

from evolve.core.source import tunables
from operators.local.structure import REWRITES, NotApplicable, TritonProgram
from tests.operators.row_sums import SOURCE

KERNEL = "row_sums_kernel"


def split(source: str, multiprocessors: int = 132) -> str:
    return REWRITES["split_reduction"](TritonProgram(source, multiprocessors), KERNEL)


def test_parts_are_summed_side_by_side_and_joined_by_the_kernel_that_goes_on():
    source = split(SOURCE)
    first, second = re.findall(r"def (\w+_kernel)\(", source)
    assert (first, second) == ("row_sums_parts_kernel", KERNEL)
    joining = source[source.index(f"def {KERNEL}") : source.index("class ModelNew")]
    assert "x_ptr" not in joining
    assert "R0_BLOCK" not in joining
    assert "tl.sigmoid" in joining
    assert "tl.sigmoid" not in source[: source.index(f"def {KERNEL}")]
    assert tunables.parse(source)["ROW_SUMS_PARTS"].choices == (2, 4, 8, 16, 32, 64, 128)


def test_a_program_is_cut_once():
    for kernel in ("row_sums_parts_kernel", KERNEL):
        with pytest.raises(NotApplicable):
            REWRITES["split_reduction"](TritonProgram(split(SOURCE)), kernel)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("xnumel = 16", "xnumel = 9999", "keep a device busy"),
        ("tmp3 = _tmp1 + ", "tmp3 = _tmp1 * ", "more leaves its loop"),
        ("tl.sum(_tmp1, 1)", "tl.max(_tmp1, 1)", "more leaves its loop"),
        ("R0_BLOCK], 0, tl.float32)\n    for", "R0_BLOCK], 1, tl.float32)\n    for", "more leaves"),
        ("tl.sigmoid(tmp0) + tmp1", "tl.sigmoid(tmp0) + tmp1 + tl.sum(x, 1)", "more leaves"),
        ("tmp3 = _tmp1 + ", "tl.store(x_ptr, x)\n        tmp3 = _tmp1 + ", "stores in its loop"),
        ("    r0_base = ", "    tl.store(buf2_ptr + xindex, 0)\n    r0_base = ", "before its loop"),
        ("    x0 = ", "    x1 = tl.atomic_add(buf2_ptr, 1)\n    x0 = ", "before its loop"),
        ("broadcast_to(x, [", "broadcast_to(_tmp1, [", "more leaves its loop"),
    ],
    ids=[
        "rows",
        "product",
        "maximum",
        "begins with 1",
        "elements",
        "store",
        "earlier store",
        "atomic",
        "feedback",
    ],
)
def test_what_is_no_sum_of_few_rows_is_left_alone(old, new, reason):
    assert old in SOURCE
    with pytest.raises(NotApplicable, match=reason):
        split(SOURCE.replace(old, new))


def test_how_many_rows_are_few_is_a_matter_of_the_device():
    with pytest.raises(NotApplicable, match="its 16 rows keep a device busy"):
        split(SOURCE, multiprocessors=2)
