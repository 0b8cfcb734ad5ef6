"""Operands of 16-bit products that move by a rounding: those that the reference computes.

Invariants: of every form of product, just what has been computed moves, and by one unit roundoff;
what is given stays as it is on every way through memory, whatever that held before; products of
longer types take no part, and do not keep others from it.
"""

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.worker.correctness.sensitivity import intermediates_rounded
from tests.worker.judging import judged, loaded_case, prepared, task_source
from tests.worker.test_compare_half import flash

UNIT = 2.0**-8
FORMS = {
    "mm": "torch.tanh(x) @ self.w",
    "bmm": "torch.bmm(torch.tanh(x)[None], self.w[None])",
    "linear": "F.linear(torch.tanh(x), self.w)",
    "addmm": "torch.addmm(torch.zeros_like(x), torch.tanh(x), self.w)",
    "in place": "torch.zeros_like(x).addmm_(torch.tanh(x), self.w)",
    "in place, batches": "torch.zeros_like(x)[None].baddbmm_(torch.tanh(x)[None], self.w[None])",
    "out": "torch.mm(torch.tanh(x), self.w, out=torch.empty_like(x))",
    "mv": "torch.mv(self.w, torch.tanh(x[0]))",
    "addmv": "torch.addmv(torch.zeros_like(x[0]), self.w, torch.tanh(x[0]))",
    "dot": "torch.dot(torch.tanh(x[0]), self.w[0])",
    "einsum": "torch.einsum('ij,jk->ik', torch.tanh(x), self.w)",
    "convolution": "F.conv1d(torch.tanh(x)[None], self.w[..., None])",
    "gradient of a convolution": "torch.nn.grad.conv1d_input(x[None].shape, self.w[..., None], "
    "torch.tanh(x)[None])",
}
GIVEN = {
    "itself": "x",
    "a copy": "x.clone()",
    "transposed": "x.mT.contiguous()",
    "in new memory": "torch.empty_like(x).copy_(x)",
    "in new memory of its size": "torch.empty(64, 64, dtype=x.dtype).copy_(x)",
    "in a part of new memory": "part_of(torch.empty(128, 64, dtype=x.dtype), x)",
    "in memory of a result": "torch.sigmoid(x).copy_(x)",
    "in memory like that of a result": "torch.empty_like(torch.sigmoid(x)).copy_(x)",
    "zeros": "torch.sigmoid(x).zero_()",
    "a number": "torch.sigmoid(x).fill_(3)",
    "times a number": "x * 0.3",
}
PARTS = """
def part_of(buffer, x):
    buffer[:64] = x
    return buffer[:64]
"""


def motion(source, products=(torch.bfloat16,)):
    """Largest relative motion of the outcome when all that is computed moves up."""
    case = loaded_case(source, precision="bf16")
    model, inputs, expected = prepared(case, "task")
    moved = intermediates_rounded(products, "probe", model, inputs, None, together=True)
    sizes = [(a - b).norm() / b.norm() for a, b in zip(moved, expected.truth, strict=True)]
    return float(max(size.nan_to_num() for size in sizes))


def of_one_product(outcome):
    return task_source(
        outcome,
        "[torch.randn(64, 64)]",
        setup="self.w = nn.Parameter(torch.randn(64, 64) / 8)",
        extra=PARTS,
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_any_form_of_product_takes_moves_by_one_rounding(form):
    assert motion(of_one_product(FORMS[form])) == pytest.approx(UNIT, rel=1e-6)


@pytest.mark.parametrize("way", GIVEN)
def test_what_is_given_stays_whatever_memory_it_goes_through(way):
    for _ in range(3):
        junk = [torch.rand(64 * scale, 64, dtype=torch.float64) for scale in (1, 2)]
        del junk
        assert motion(of_one_product(f"({GIVEN[way]}) @ self.w")) == 0.0


def test_a_result_that_is_written_over_what_is_given_moves():
    for written in ("x.clone().copy_(torch.sigmoid(x))", "part_of(x.repeat(2, 1), x.exp())"):
        assert motion(of_one_product(f"({written}) @ self.w")) == pytest.approx(UNIT, rel=1e-6)


def mixed(outcome):
    """Beside the product in 16 bits there are two in fp32, one before it and one after."""
    return task_source(
        f"(first := table(), {outcome}, first @ first)",
        "[torch.randn(64, 64)]",
        setup="self.w = nn.Parameter(torch.randn(64, 64) / 8)",
        extra="""
def table():
    angles = torch.linspace(0, 1, 16)[:, None].float()
    return torch.cos(angles.exp() @ angles.exp().mT)
""",
    )


def test_products_in_fp32_do_not_move_and_others_beside_them_do():
    types = (torch.float32, torch.bfloat16, torch.float32)
    case = loaded_case(mixed("torch.tanh(x) @ self.w"), precision="bf16")
    model, inputs, expected = prepared(case, "task")
    moved = intermediates_rounded(types, "probe", model, inputs, None, together=True)
    motions = [float((a - b).norm() / b.norm()) for a, b in zip(moved, expected.truth, strict=True)]
    assert motions == pytest.approx([0, UNIT, 0], rel=1e-6, abs=1e-12)
    assert motion(mixed("torch.tanh(x) @ self.w"), types[:2]) == 0.0  # others than were seen


def test_flash_attention_passes_beside_a_small_product_in_fp32():
    """Rotary tables, say: of what is computed in 16 bits the weights are rounded all the same."""
    source = task_source(
        "(F.scaled_dot_product_attention(q, k, v), self.table @ self.table)",
        "[2.5 * torch.randn(1, 2, 512, 128), *(torch.randn(1, 2, 256, 128) for _ in range(2))]",
        arguments="q, k, v",
        setup="self.table = torch.linspace(0, 1, 64).view(8, 8)",
    )

    def candidate(model, q, k, v):
        return flash(model, q, k, v, fused=True), model.table @ model.table

    case = loaded_case(source, precision="bf16")
    found = {family: judged(case, candidate, family).status for family in case.families()}
    assert set(found.values()) == {Status.CORRECT}, found
