"""Errors of an output by blocks, and how large they may be.

An output is cut into blocks of consecutive elements. The error of a block is measured against
fp64 truth, relative to the block's own root mean square, so that a wrong tail tile cannot hide in
a global ratio, nor a wrong small row behind a large one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

KAPPA = 4.0  # times the reference's own error
BASE_ROUNDINGS = 16.0  # roundings of the compute type that any kernel may make on the way
WALK_ROUNDINGS = 2.0  # times sqrt(terms): a sequential sum whose rounding errors walk randomly
DRIFT_ROUNDINGS = 1.0  # times terms: the bound for a sequential sum whose errors have one sign
MAX_TERMS = 1 << 16  # that are added one after the other: longer sums are made in lanes or parts
OPERAND_ROUNDINGS = 2.5  # of operands, if the task allows a shorter type for them
PEAK = 8.0  # largest single error over the root mean square of errors
MIN_SCALE = 1 / 64  # of a block, relative to its row and to the median block in use
HALVES = (torch.float16, torch.bfloat16)  # types that products round operands to
_NEIGHBOURS = 64  # blocks on either side that tell about one that is nearly all cut off
_CUT_OFF = 0.75  # of a block, from where on its own motion is one of a few elements
_USUAL = 1.25  # times a coarse reference's typical error: with operands in bf16 it is 1.5
_CUT = 2.0**-9 / OPERAND_ROUNDINGS  # of an operand that is cut to TF32, not rounded
# Elements looked at together, which bounds the memory of a comparison: on the CPU as many as caches
# hold. With as few a GPU waits for launches: outcomes of 6 GB took an H200 1.6 s to expect, nearly
# all of it here.
_SLAB = 1 << 20
_SLAB_OF_GPU = 1 << 24
_COMPARED_AT_ONCE = 1 << 27  # elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Permitted arithmetic: the accumulation that the task allows, over how many terms.

    `terms` is the length of the longest reduction; `even` whether rounding errors of its terms
    may be expected to cancel; `products` the type of each product of the reference, in order.
    """

    accumulation: str
    terms: int
    even: bool
    products: tuple[torch.dtype, ...] = ()

    @property
    def joint_limit(self) -> float:
        """The most, relative to its scale, that roundings of one sign move a block.

        All roundings of one product's operands may have one sign: weights that are equal, or one
        that outweighs all others. As far as the rest is linear, that is a factor of one unit
        roundoff u. Signs of several products are independent of each other, so that their factors
        add up to sqrt(products) * u, and to no more than twice that in one case of twenty.
        """
        units = [unit_roundoff(dtype) for dtype in self.products if dtype in HALVES]
        return 2 * math.hypot(*units)


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputBudget:
    """Allowed error of one floating output: per block, relative to the block's `scale`.

    `finite` says that reference and truth are finite everywhere; `own` is the reference's own error
    in every block; `usual` is the most that an outcome may be off in the median of the `used` ones.
    """

    block: int
    scale: Tensor
    rms: Tensor
    peak: Tensor
    finite: bool
    own: Tensor
    usual: float = math.inf

    @property
    def used(self) -> Tensor:
        """The blocks where the reference has any error."""
        return self.own > 0

    @cached_property
    def typical(self) -> float:
        """The reference's own error in the median block of these; few outcomes need it."""
        return float(_median_of_some(self.own))


def real(tensor: Tensor) -> Tensor:
    """The tensor with complex numbers as pairs of real ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def computable(tensor: Tensor) -> Tensor:
    """The tensor in a type for which torch has all operations; equal values stay equal.

    Floating types of 8 bits become longer ones, unsigned integers of 16 bits and more signed ones.
    """
    if tensor.dtype is torch.uint64:
        return tensor.view(torch.int64)
    if tensor.dtype in (torch.uint16, torch.uint32):
        return tensor.long()
    if not tensor.is_floating_point() or tensor.dtype.itemsize > 1:
        return tensor
    return tensor.float() if tensor.dtype is torch.float8_e8m0fnu else tensor.half()


def parts(tensor: Tensor) -> Sequence[Tensor]:
    """The tensor in pieces along its longest dimension: comparing takes many times its memory."""
    if tensor.numel() <= _COMPARED_AT_ONCE:
        return (tensor,)
    size, dim = max((size, dim) for dim, size in enumerate(tensor.shape))
    return tensor.split(max(1, _COMPARED_AT_ONCE * size // tensor.numel()), dim)


def _are_finite(*tensors: Tensor) -> bool:
    """Everywhere. A sum is ten times as quick as `isfinite`, but may overflow.

    Sums are read together: for each reading a GPU is waited for, which others use as well.
    """
    pieces = [part for tensor in tensors for part in parts(tensor)]
    sums = torch.stack([computable(part).sum().double() for part in pieces]).tolist()
    return all(
        math.isfinite(total) or bool(computable(part).isfinite().all())
        for total, part in zip(sums, pieces, strict=True)
    )


def block_length(shape: torch.Size) -> int:
    """A row where rows are of middling length, else 256 elements."""
    last = shape[-1] if shape else 1
    return last if 64 <= last <= 1024 else 256


def error_blocks(
    values: Tensor | None, truth: Tensor, block: int, *, finite_only: bool = True
) -> tuple[Tensor, Tensor]:
    """Root mean square and largest |values - truth| of every block, fp64; None stands for zeros.

    With `finite_only`, elements whose error is not finite count as no error; without, they make
    that of their block not finite.
    """
    values, truth = None if values is None else values.reshape(-1), truth.reshape(-1)
    norm, peak = _error_sizes(values, truth, block, masked=False)
    if finite_only and not math.isfinite(float(peak.max())):  # NaN is the largest
        norm, peak = _error_sizes(values, truth, block, masked=True)
    roots = torch.full_like(norm, math.sqrt(block))
    if missing := -truth.numel() % block:
        roots[-1] = math.sqrt(block - missing)
    return norm / roots, peak


def _error_sizes(
    values: Tensor | None, truth: Tensor, block: int, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """Norm and largest |value| of every block of errors; `masked`, of those that are finite."""
    step = max(1, (_SLAB_OF_GPU if truth.is_cuda else _SLAB) // block) * block
    norms, peaks = [], []
    for start in range(0, truth.numel(), step):
        of = slice(start, start + step)
        error = truth[of].double()
        if values is not None:
            error = values[of].double() - error
        if missing := -error.numel() % block:
            error = torch.nn.functional.pad(error, (0, missing))
        if masked:
            error = torch.where(error.isfinite(), error, 0.0)
        rows = error.view(-1, block)
        norms.append(torch.linalg.vector_norm(rows, dim=1))
        peaks.append(_largest(rows))
    return _joined(norms), _joined(peaks)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _largest(rows: Tensor) -> Tensor:
    """The largest |value| of every row, NaN included; `vector_norm` takes ten times as long."""
    return torch.maximum(rows.amax(1), -rows.amin(1))


def no_motion(truth: Tensor) -> Tensor:
    """What `motion_blocks` gives for an outcome that did not move at all."""
    truth = real(truth)
    blocks = -(-truth.numel() // block_length(truth.shape)) if truth.is_floating_point() else 0
    return torch.zeros(blocks, dtype=torch.float64, device=truth.device)


def motion_blocks(moved: Tensor, truth: Tensor, dtype: torch.dtype) -> Tensor:
    """How far every block of an outcome moved: root mean square |moved - truth|, fp64.

    Of the elements that the outcome's own type can hold; empty if there are no floating ones.
    """
    moved, truth = real(moved), real(truth)
    if truth.numel() == 0 or not truth.is_floating_point():
        return no_motion(truth)
    if moved.shape != truth.shape:  # how many elements there are depends on the values
        moved = truth
    if not all(bool(_is_in_range(part, dtype).all()) for part in parts(truth)):
        moved = torch.where(_is_in_range(truth, dtype), moved, truth)
    return error_blocks(moved, truth, block_length(truth.shape))[0]


def _is_in_range(truth: Tensor, dtype: torch.dtype) -> Tensor:
    """Which elements a type can hold: others are no measure of these, one would hide a row."""
    return truth.abs() <= torch.finfo(dtype).max


def output_budget(reference: Tensor, truth: Tensor, arithmetic: Arithmetic) -> OutputBudget | None:
    """The least error that is allowed for one output; None if it has no floating elements.

    Args:
        reference: The native outcome.
        truth: The fp64 outcome.
        arithmetic: What honest kernels may do.
    """
    if not reference.is_floating_point() and not reference.is_complex():
        return None
    reference, truth = real(reference), real(truth)
    if truth.numel() == 0:
        return None
    block = block_length(truth.shape)
    is_finite = _are_finite(reference, truth)
    in_range = truth if is_finite else torch.where(_is_in_range(truth, reference.dtype), truth, 0.0)
    scale = _scales(in_range, block, finite_only=False)
    # The difference of two numbers of fp64 may overflow.
    may_be_off = not is_finite or reference.dtype is torch.float64
    errors = error_blocks(reference, truth, block, finite_only=may_be_off)
    own_rms, own_peak = (error / scale for error in errors)
    rms = KAPPA * torch.clamp(own_rms, min=own_rms.median())
    rms = torch.clamp(rms, min=error_floor(reference.dtype, arithmetic, 1.0))
    peak = torch.maximum(PEAK * rms, KAPPA * own_peak)
    if arithmetic.accumulation == "tf32":  # one large product may be all that a block holds
        _, largest = error_blocks(None, in_range, block)
        peak = torch.maximum(peak, OPERAND_ROUNDINGS * _CUT * largest / scale)
    return OutputBudget(block=block, scale=scale, rms=rms, peak=peak, finite=is_finite, own=own_rms)


def condition_of(budget: OutputBudget, shape: torch.Size, motion: Tensor, step: float) -> Tensor:
    """For each block how many times as much as the operands an outcome moves; at least 1.

    Args:
        budget: That of `output_budget`.
        shape: Of the outcome, real.
        motion: How far blocks of the fp64 outcome move (`motion_blocks`) when every operand moves
            by a relative `step`.
        step: See `motion`.
    """
    # One perturbation moves neighbours together (a cumulative sum): a block may stay by luck.
    motion = torch.maximum(motion, _over_row(motion, shape, budget.block))
    return torch.clamp(motion / budget.scale / step, min=1.0)


def widened(
    budget: OutputBudget,
    dtype: torch.dtype,
    condition: Tensor,
    arithmetic: Arithmetic,
    intermediate_motion: Tensor,
) -> OutputBudget:
    """Further allowance, if outcomes move more than the operands that they are made of.

    Args:
        budget: That of `output_budget`.
        dtype: Of the outcome.
        condition: That of `condition_of`.
        arithmetic: What honest kernels may do.
        intermediate_motion: How far each block moves, relative to its scale, when results that
            products take move by a rounding to their type.
    """
    honest = error_floor(dtype, arithmetic, condition) + intermediate_motion
    rms = torch.maximum(honest, budget.rms)
    return _raised(budget, rms, PEAK * rms)


def is_coarse(
    budget: OutputBudget, dtype: torch.dtype, condition: Tensor, arithmetic: Arithmetic
) -> bool:
    """Whether the reference's typical error is more than honest arithmetic explains.

    Then its operands are shorter than fp32: tensor cores cut those of convolutions, and round those
    of products of 16 bits. How far these may move an outcome does not count here: the reference's
    own error says how far they do, and most blocks have to be about as exact.
    Sums whose rounding errors have all one sign are the worst there are, and no typical ones.
    Arguments are those of `widened`.
    """
    honest = error_floor(dtype, replace(arithmetic, even=True), condition)[budget.used]
    return budget.typical > 0 and budget.typical > float(honest.median())


def coarsened(budget: OutputBudget, motion: Tensor, truth: Tensor) -> OutputBudget:
    """Further allowance, if the reference is coarse.

    Its own error in a block is no measure there: errors of cut operands have one sign, and in a
    block that is nearly all cut off at zero it may have none, and a kernel that rounds them has
    some. So a block may be off as much more than a typical one as it moves more when operands of
    products do; or, where nearly all of it is cut off, as a neighbour does. In most blocks no error
    exceeds than the reference, or its operands are shorter still.
    """
    typical = float(_median_of_some(motion / budget.scale))
    if not typical > 0:
        return budget
    near = torch.where(_is_cut_off(real(truth), budget.block), _over_neighbours(motion), motion)
    more = near / budget.scale / typical
    rms = KAPPA * budget.typical * more
    most = max(PEAK, budget.block**0.5)  # of a block's error, in one of its elements
    raised = _raised(budget, rms, rms * torch.clamp(PEAK * more.square(), min=PEAK, max=most))
    return replace(raised, usual=_USUAL * budget.typical)


def _is_cut_off(truth: Tensor, block: int) -> Tensor:
    """Whether nearly all elements of a block are its least, or its largest."""
    flat = truth.reshape(-1)
    step = max(1, (_SLAB_OF_GPU if truth.is_cuda else _SLAB) // block) * block
    found = []
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step]
        missing = -part.numel() % block
        rows = torch.cat([part, part[-1:].expand(missing)]).view(-1, block)
        ends = torch.stack([rows.amin(1), rows.amax(1)])
        shares = [(rows == end[:, None]).double().mean(1) for end in ends]
        found.append(torch.maximum(*shares) >= _CUT_OFF)
    return torch.cat(found)


def _median_of_some(sizes: Tensor) -> Tensor:
    """The median of those above 0; 0 if there are none.

    Where all is cut off at zero, nothing is off or moves. By sorting, as `median` does: to pick
    them out, a GPU would be asked how many there are.
    """
    some, others = (sizes > 0).sum(), (sizes <= 0).sum()
    middle = sizes.sort().values.take(others + (some - 1) // 2)  # NaN comes last
    return torch.where(some > 0, middle, 0.0)


def _over_neighbours(sizes: Tensor) -> Tensor:
    """For each block the largest of those around it."""
    width = 2 * _NEIGHBOURS + 1
    return torch.nn.functional.max_pool1d(sizes[None, None], width, 1, _NEIGHBOURS)[0, 0]


def _raised(budget: OutputBudget, rms: Tensor, peak: Tensor) -> OutputBudget:
    rms, peak = torch.maximum(rms, budget.rms), torch.maximum(peak, budget.peak)
    return replace(budget, rms=rms, peak=peak)


def relative_error(values: Tensor, truth: Tensor) -> Tensor:
    """Root mean square error of every block, relative to the block's scale."""
    values, truth = real(values), real(truth)
    block = block_length(truth.shape)
    return error_blocks(values, truth, block)[0] / _scales(truth, block)


def _scales(truth: Tensor, block: int, *, finite_only: bool = True) -> Tensor:
    """The scale of a block's errors: its root mean square, kept from vanishing."""
    size, _ = error_blocks(None, truth, block, finite_only=finite_only)
    middle = _median_of_some(size)
    least = torch.maximum(_over_row(size, truth.shape, block), middle)
    return torch.where(middle > 0, torch.maximum(size, MIN_SCALE * least), 1.0)


def _over_row(sizes: Tensor, shape: torch.Size, block: int) -> Tensor:
    """For each block the root mean square over the blocks of its row (the last dimension)."""
    last = shape[-1] if shape else 1
    if last <= block:  # there is one in each
        return sizes
    rows = torch.arange(sizes.numel(), device=sizes.device) * block // last
    sums = torch.zeros_like(sizes).index_add(0, rows, sizes.square())
    counts = torch.zeros_like(sizes).index_add(0, rows, torch.ones_like(sizes))
    return (sums / counts.clamp(min=1)).sqrt()[rows]


def error_floor(dtype: torch.dtype, arithmetic: Arithmetic, condition: Tensor | float) -> Any:
    """Root mean square error, relative to the scale, that honest kernels of any order may have.

    One rounding to the output's type, and fp32 arithmetic (fp64 for fp64 outputs) whose errors
    grow with the number of terms and with the `condition` of the outcome. `tf32` and `half` add
    the rounding of operands to 11 and 8 bits, `half` also sums in such a type. Tensor cores read
    fp32 operands as TF32 by cutting bits off: two of them cost up to 2**-9.
    """
    unit = unit_roundoff(dtype)
    compute = unit if dtype == torch.float64 else 2.0**-24
    operands = {"ieee": 0.0, "tf32": _CUT, "half": max(unit, 2.0**-8)}
    operand = operands[arithmetic.accumulation]
    adding = operand / 16 if arithmetic.accumulation == "half" else compute
    terms = min(arithmetic.terms, MAX_TERMS)
    walk = WALK_ROUNDINGS * terms**0.5
    growth = walk if arithmetic.even else max(walk, DRIFT_ROUNDINGS * terms)
    return unit + condition * (
        OPERAND_ROUNDINGS * operand + BASE_ROUNDINGS * compute + growth * adding
    )


def unit_roundoff(dtype: torch.dtype) -> float:
    """Largest relative error of rounding to `dtype`."""
    return float(torch.finfo(dtype).eps) / 2
