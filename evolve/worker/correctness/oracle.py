"""Expectations of a task on given inputs: its own outcome, the fp64 truth, and the error allowed.

How much an ill-conditioned outcome may be off takes four more runs of the reference in fp64, and
five more where products take results in 16 bits. They wait until an outcome is not right without
them: few honest ones are not, and outcomes of gigabytes would take most of a judge's time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.fp64_truth import as_truth, run_in_fp64
from evolve.worker.correctness.freedom import Freedom, freedoms
from evolve.worker.correctness.reduction import ReductionTrace
from evolve.worker.correctness.reference_runs import (
    copied,
    evaluate_reference,
    forward,
    forward_in,
)
from evolve.worker.correctness.sensitivity import (
    SENSITIVITY_STEP,
    cut,
    intermediates_rounded,
    moved_blocks,
    rounded,
)
from evolve.worker.correctness.tolerance import (
    Arithmetic,
    OutputBudget,
    coarsened,
    condition_of,
    is_coarse,
    output_budget,
    real,
    widened,
)
from evolve.worker.ipc.pytree import flatten, map_tensors
from evolve.worker.reference.task_module import task_code, task_lock
from evolve.worker.reference.torch_settings import settings_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Expected:
    """All that `judge` needs to know about one set of inputs.

    `tree` is the outcome of the reference, `spec` its nesting, `reference` the tensors of it and,
    after them, those that it has changed, whose `names` these are in prose;
    `truth` the same tensors from fp64; `budgets` the error allowed for each floating output (None
    for the others), as long as it is as well-conditioned as can be; `reduction` the longest
    reduction seen; `note` a fallback that was needed.
    """

    tree: Any
    reference: list[Tensor]
    spec: str
    truth: list[Tensor]
    budgets: list[OutputBudget | None]
    reduction: int
    note: str
    widen: Callable[[], list[OutputBudget | None]]
    names: tuple[str, ...] = ()
    loosen: Callable[[], list[Freedom]] = list
    _wide: list[OutputBudget | None] = field(default_factory=list)
    _free: list[Freedom] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of the outcomes."""
        return sum(tensor.nbytes for tensor in (*self.reference, *self.truth))

    def freedom(self, index: int) -> Freedom:
        """Further right values of one of the tensors; worked out when first asked for."""
        with task_lock:
            if not self._free:
                self._free.extend(self.loosen())
            return self._free[index] if index < len(self._free) else Freedom()

    @property
    def returned(self) -> list[Tensor]:
        """The tensors that the reference returned."""
        return self.reference[: len(self.reference) - len(self.names)]

    def name(self, index: int) -> str:
        """The name of one of the tensors in prose."""
        at = index - len(self.returned)
        return f"output {index}" if at < 0 else f"{self.names[at]}, which forward writes to,"

    @property
    def wide_budgets(self) -> list[OutputBudget | None]:
        """The error allowed in the end; worked out when it is first asked for.

        How far outputs move when every floating operand, and each result of a running sum, moves by
        one fp32 rounding: an honest kernel in another order of operations may be off by that much.
        And how far when results that products of 16 bits take move by a rounding to their type, all
        one way within a limit (`Arithmetic.joint_limit`): kernels have no other operands for tensor
        cores.
        If the reference itself is less exact than that explains (eager's convolutions), in
        proportion to how far they move when operands of products do.
        """
        with task_lock:
            if not self._wide:
                self._wide.extend(self.widen())
            return self._wide


@torch.no_grad()
def expect(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    *,
    accumulation: str,
    even: bool,
    changed: tuple[str, ...] | None = None,
) -> Expected:
    """Runs the reference in native precision and in fp64.

    `changed` names the tensors that it changes, which the model then gives beside its outputs.

    Keeps the model and the inputs, which must not change. A forward that changes its model does so
    to a copy: each run is expected to give the outcome of the model as it is.
    """
    with settings_of(task):
        exact = run_in_fp64(model, inputs)  # first: it needs the most memory, and all else less
    tree, trace = _traced(task, model, inputs)
    reference, spec = flatten(tree)
    if changed is not None:
        tree, _ = tree
        _, spec = flatten(tree)
    with settings_of(task):
        truth = as_truth(exact, model, inputs, reference)
    arithmetic = Arithmetic(
        accumulation=accumulation,
        terms=trace.length,
        even=even,
        products=tuple(trace.operands),
    )
    budgets = [
        output_budget(native, exact, arithmetic)
        for native, exact in zip(reference, truth.outputs, strict=True)
    ]
    dtypes = [native.dtype for native in reference]
    run = partial(_observed, task, model, inputs)
    motions = partial(moved_blocks, task, model, inputs, truth, dtypes)
    return Expected(
        tree=tree,
        reference=reference,
        spec=spec,
        truth=truth.outputs,
        budgets=budgets,
        reduction=trace.length,
        note=truth.note,
        names=changed or (),
        loosen=partial(freedoms, run, reference, torch.float64 if truth.runs else None),
        widen=partial(_widened, budgets, reference, truth.outputs, motions, arithmetic),
    )


def _traced(task: str, model: nn.Module, inputs: list[Any]) -> tuple[Any, ReductionTrace]:
    """The outcome in native precision, and the reductions and products that lead to it.

    Raises:
        UsageError: the reference fails, or has operations that cannot be looked at.
    """
    try:
        with ReductionTrace() as trace:
            return evaluate_reference(task, copied(model), inputs), trace
    except UsageError as error:
        if "HigherOrderOperator" not in str(error.__cause__):
            raise
        raise UsageError(
            f"task {task}: Model.forward uses an operator that takes functions, such as "
            "flex_attention or cond, whose operations the judge cannot follow. Write it in plain "
            "operations of torch."
        ) from error


@torch.no_grad()
def _observed(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    dtype: torch.dtype | None,
    mode: DispatchMode | None,
) -> list[Tensor]:
    """The reference's tensors, in a type where one is given, each operation through a mode."""
    modes = (mode,) if mode else ()
    with task_code(task, "Model.forward"):
        if dtype is not None:
            return forward_in(dtype, model, inputs, *modes)
        return forward(copied(model), list(map_tensors(Tensor.clone, inputs)), *modes)


@torch.no_grad()
def _widened(
    budgets: list[OutputBudget | None],
    reference: list[Tensor],
    truth: list[Tensor],
    motions: Callable[..., list[Tensor]],
    arithmetic: Arithmetic,
) -> list[OutputBudget | None]:
    """By how far outcomes move when operands do.

    By a rounding; when results that products take do by a rounding to their type; and where the
    reference is off by more than that explains, when operands of products do by as much as tensor
    cores cut off.
    """
    own = [real(native) for native in reference]
    floating = {index: budget for index, budget in enumerate(budgets) if budget}
    moved = motions(rounded)
    conditions = {
        index: condition_of(budget, own[index].shape, moved[index], SENSITIVITY_STEP)
        for index, budget in floating.items()
    }
    intermediate_motion = dict.fromkeys(floating, torch.zeros(()))
    if arithmetic.joint_limit:
        apart = motions(partial(intermediates_rounded, arithmetic.products))
        # Values that lie close together are all rounded one way, as is one that outweighs others.
        together = partial(intermediates_rounded, arithmetic.products, together=True)
        joint = motions(together, times=1)
        intermediate_motion = {
            index: torch.maximum(
                apart[index] / budget.scale,
                (joint[index] / budget.scale).clamp(max=arithmetic.joint_limit),
            )
            for index, budget in floating.items()
        }
    wide = {
        index: widened(
            budget, own[index].dtype, conditions[index], arithmetic, intermediate_motion[index]
        )
        for index, budget in floating.items()
    }
    if any(
        is_coarse(budget, own[index].dtype, conditions[index], arithmetic)
        for index, budget in floating.items()
    ):
        moved = motions(cut)
        wide = {
            index: coarsened(budget, moved[index], truth[index]) for index, budget in wide.items()
        }
    return [wide.get(index) for index in range(len(budgets))]
