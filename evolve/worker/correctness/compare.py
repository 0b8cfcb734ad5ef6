"""The judge of outcomes: exact in structure, an error budget against fp64 truth in values."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.core.evaluation import Status
from evolve.worker.correctness.mismatch import describe_mismatch
from evolve.worker.correctness.oracle import Expected
from evolve.worker.correctness.tolerance import OutputBudget, computable, error_blocks, parts, real
from evolve.worker.ipc.pytree import map_tensors, unflatten
from evolve.worker.reference.task_module import task_values

_PIECE = 1 << 18  # elements that are compared together, as many as caches hold
_NOT_THERE = 0.5  # error of a block, relative to its size


class Checked(Protocol):
    """The part of a case that `judge` needs: its task's name, and its own checkers if any."""

    @property
    def task(self) -> str: ...

    @property
    def check(self) -> Any: ...

    @property
    def suite_check(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """`CORRECT`, or what is wrong, with feedback for the kernel's author.

    `margin` is the largest error over the allowed one: at most 1 if values are right; None
    if it was not measured. It is over what a well-conditioned outcome may be off; 1 if that
    is exceeded and the outcome is right all the same, so that the more exact never has the larger.
    `rules` name the freedom that a right outcome has used (`freedom`), `label` the difference of
    one that is wrong on inputs with NaN and infinities (`non_finite`).
    """

    status: Status
    feedback: str = ""
    margin: float | None = None
    rules: tuple[str, ...] = ()
    label: str = ""


def worst(*margins: float | None) -> float | None:
    """The largest of some margins; None if none was measured."""
    return max((margin for margin in margins if margin is not None), default=None)


def judge(
    case: Checked,
    outputs: Sequence[Tensor],
    spec: str,
    expected: Expected,
    inputs: list[Any],
    *,
    explain: bool = True,
    excuse: bool = True,
) -> Judgement:
    """Whether outputs (flattened, with the text of their nesting) are right for these inputs.

    Nesting, shapes and dtypes have to be exact. The task's own `check` decides on values where it
    has one. Otherwise integers have to be equal (to the reference, or to fp64 truth where that
    rounds differently), nothing may be NaN or infinite where the truth is finite, and the error of
    every block has to stay in its budget (`evolve.worker.correctness.tolerance`).
    Finding out what a wrong outcome looks like takes longer than judging it; `explain=False` leaves
    it out of the feedback.

    An ill-conditioned task may excuse values off by more than their own size, which takes four runs
    of the reference in fp64. `excuse=False` is for who asks whether an outcome is there at all: one
    is wrong then that is off by half of its own size in most of its blocks.
    """
    structure = judge_structure(outputs, spec, expected)
    if structure is not None:
        return structure
    with task_values(case.task, "its outcome"):
        return _judge_all(case, outputs, expected, inputs, explain, excuse)


def _judge_all(
    case: Checked,
    outputs: Sequence[Tensor],
    expected: Expected,
    inputs: list[Any],
    explain: bool,
    excuse: bool,
) -> Judgement:
    first = 0
    if case.check is not None:  # of returned tensors; changed ones are judged in any case
        first = len(expected.returned)
        hooked = _judge_by_hook(case.check, outputs[:first], expected, inputs)
        if hooked.status is not Status.CORRECT or first == len(outputs):
            return hooked
    margin, rules = 0.0, []
    for index, output in enumerate(outputs[first:], first):
        verdict = _judge_values(index, output, expected, explain, excuse)
        if verdict.status is not Status.CORRECT:
            return verdict
        margin = max(margin, verdict.margin or 0.0)
        rules += [f"{expected.name(index)}: {rule}" for rule in verdict.rules]
    return Judgement(Status.CORRECT, margin=margin, rules=tuple(rules))


def judge_structure(outputs: Sequence[Tensor], spec: str, expected: Expected) -> Judgement | None:
    """What is wrong with the nesting, shapes or dtypes of outputs; None if nothing is."""
    if spec != expected.spec or len(outputs) != len(expected.reference):
        return Judgement(
            Status.WRONG_TREE,
            f"outputs are nested as {spec[:80]}, the reference's as {expected.spec[:80]} "
            "(T: a tensor)",
        )
    for index, (output, own) in enumerate(zip(outputs, expected.reference, strict=True)):
        if output.shape != own.shape:
            return Judgement(
                Status.WRONG_SHAPE,
                f"{expected.name(index)} has shape {tuple(output.shape)}, "
                f"the reference's {tuple(own.shape)}",
            )
        if output.dtype != own.dtype:
            return Judgement(
                Status.WRONG_DTYPE,
                f"{expected.name(index)} is {output.dtype}, the reference's {own.dtype}",
            )
    return None


def _judge_by_hook(
    check: Any, outputs: Sequence[Tensor], expected: Expected, inputs: list[Any]
) -> Judgement:
    tree = unflatten([output.clone() for output in outputs], expected.tree)
    reference = map_tensors(Tensor.clone, expected.tree)
    arguments = map_tensors(Tensor.clone, inputs)
    try:
        answer = check(tree, reference, arguments)
        passed, reason = answer if isinstance(answer, tuple) else (answer, "")
        passed, reason = bool(passed), str(reason)
    except torch.OutOfMemoryError:  # no fault of the outcome: judged again, alone
        raise
    except FAILURES_OF_A_FUNCTION as error:
        reason = f"check() raised {type(error).__name__} on this outcome: {str(error)[:200]}"
        return Judgement(Status.WRONG_VALUE, reason)
    if passed:
        return Judgement(Status.CORRECT)
    return Judgement(Status.WRONG_VALUE, f"check() refused the outcome: {reason[:300]}")


def _judge_values(
    index: int, output: Tensor, expected: Expected, explain: bool, excuse: bool
) -> Judgement:
    own, truth, budget = expected.reference[index], expected.truth[index], expected.budgets[index]
    rules: tuple[str, ...] = ()
    if budget is None:
        wrong = (output != own) & (output != truth)
        if bool(wrong.any()):
            freedom = expected.freedom(index)
            wrong &= ~freedom.allows(output, own)
            rules = (freedom.rule,)
        margin = math.inf if bool(wrong.any()) else 0.0
    else:
        output, own, truth = real(output), real(own), real(truth)
        margin, off = _margin(output, own, truth, budget)
        # Values that are not finite stay wrong: the excuse only says which others are right.
        may_help = explain or margin < math.inf
        if margin > 1.0 and may_help and (excuse or off < _NOT_THERE):
            wide = expected.wide_budgets[index]
            assert wide is not None
            budget, margin = wide, max(1.0, _margin(output, own, truth, wide)[0])
        if margin > 1.0 and may_help and excuse and own.dtype.itemsize > 1:
            freedom = expected.freedom(index)
            rules = (freedom.rule,) if freedom.rule else ()
            if rules and freedom.low is not None:
                moved = freedom.allows(output, own)
                settled = torch.where(moved, truth.to(output.dtype), output)
                margin = max(1.0, _margin(settled, own, truth, budget)[0])
    if margin <= 1.0:
        return Judgement(Status.CORRECT, margin=margin, rules=rules)
    text = f"{expected.name(index)} {tuple(own.shape)} {str(own.dtype).removeprefix('torch.')}"
    if explain:
        with contextlib.suppress(torch.OutOfMemoryError):  # it takes many times the output
            if budget is None:
                text += _integers_off(output, own)
            else:
                wrong = _bad_elements(output, own, truth, budget)
            text += ": " + describe_mismatch(computable(output), computable(truth), wrong, margin)
    return Judgement(Status.WRONG_VALUE, text, margin)


def _integers_off(output: Tensor, own: Tensor) -> str:
    """By how much, and that they are compared exactly."""
    if output.dtype is torch.bool:
        return ""
    most = int((output.double() - own.double()).abs().max())
    return f" (compared exactly, but for ties and half-way codes; largest difference {most})"


def _margin(
    output: Tensor, own: Tensor, truth: Tensor, budget: OutputBudget
) -> tuple[float, float]:
    """The largest error over the allowed one, and that of most blocks over their own size."""
    if not budget.finite and bool(_unexpected_nonfinite(output, own, truth).any()):
        return math.inf, math.inf
    rms, peak = error_blocks(output, truth, budget.block, finite_only=not budget.finite)
    of_allowed = (torch.maximum(rms / budget.rms, peak / budget.peak) / budget.scale).max()
    worst, off = torch.stack([of_allowed, (rms / budget.scale).median()]).tolist()
    if budget.usual < math.inf:
        usual = (rms / budget.scale)[budget.used].median()
        worst = max(worst, float(usual) / budget.usual)
    return (math.inf, math.inf) if math.isnan(worst) else (worst, off)


def _unexpected_nonfinite(output: Tensor, own: Tensor, truth: Tensor) -> Tensor:
    """NaN and infinities that neither the reference nor the truth has in that place."""
    rounded = truth.to(own.dtype)
    same = (output == own) | (output == rounded) | (output.isnan() & (own.isnan() | truth.isnan()))
    # If one of reference and truth overflowed and the other did not, a finite value is as good.
    output, own, rounded = computable(output), computable(own), computable(rounded)
    allowed = output.isfinite() & (own.isfinite() | rounded.isfinite())
    return ~same & ~allowed


def _bad_elements(output: Tensor, own: Tensor, truth: Tensor, budget: OutputBudget) -> Tensor:
    """Elements that are not finite, or further off than their block's root mean square allows."""
    allowed = (budget.rms * budget.scale).repeat_interleave(budget.block)[: truth.numel()]
    error = (output.double() - truth.double()).abs()
    error = torch.where(error.isfinite(), error, 0.0)
    return (error > allowed.view(truth.shape)) | _unexpected_nonfinite(output, own, truth)


def judge_by_suite(
    case: Checked, outputs: Sequence[Tensor], expected: Expected, inputs: list[Any]
) -> bool:
    """Whether a right outcome is right by the suite's rule too: the task's, or KernelBench's."""
    if case.suite_check is None:
        return suite_verdict(outputs, expected)
    returned = outputs[: len(expected.returned)]
    return _judge_by_hook(case.suite_check, returned, expected, inputs).status is Status.CORRECT


def suite_verdict(outputs: Sequence[Tensor], expected: Expected) -> bool:
    """KernelBench's own rule, kept for comparison: allclose to the reference's native outcome.

    Absolute and relative tolerance are 1e-4 in fp32 and 1e-2 in half precision. It has none for
    8 bits: there they are 1e-1, those of KernelBench-Hard.
    """
    if len(outputs) != len(expected.reference):
        return False
    for output, own in zip(outputs, expected.returned, strict=False):
        if output.shape != own.shape:
            return False
        tolerance = _suite_tolerance(own)
        for some, wanted in zip(parts(output), parts(own), strict=True):
            if not _is_close(computable(some.to(own.dtype)), computable(wanted), tolerance):
                return False
    return True


def _is_close(some: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """What `torch.allclose` says, which takes five times as long and is asked where this says no.

    It counts infinities that are the same as close, and so do few outcomes.
    """
    size = max(1, some.numel()) if some.is_cuda else _PIECE
    pieces = zip(some.reshape(-1).split(size), wanted.reshape(-1).split(size), strict=True)
    if some.is_floating_point() and all(
        bool(((own - own_wanted).abs_() < own_wanted.abs().mul_(tolerance).add_(tolerance)).all())
        for own, own_wanted in pieces
    ):
        return True
    return torch.allclose(some, wanted, atol=tolerance, rtol=tolerance)


def _suite_tolerance(own: Tensor) -> float:
    if not own.is_floating_point() or own.dtype.itemsize > 2:
        return 1e-4
    return {2: 1e-2, 1: 1e-1}[own.dtype.itemsize]
