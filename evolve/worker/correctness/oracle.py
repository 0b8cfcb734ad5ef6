"""Expectations of a task on given inputs: its own outcome, the fp64 truth, and the error allowed.

How much an ill-conditioned outcome may be off takes four more runs of the reference in fp64. They
wait until an outcome is not right without them: few honest ones are not, and outcomes of gigabytes
would take most of a judge's time.
"""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError
from evolve.worker.base import shortage
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.base.shortage import is_no_room
from evolve.worker.correctness.convolution import CONVOLUTION, ByProducts, in_parts
from evolve.worker.correctness.freedom import Freedom, freedoms
from evolve.worker.correctness.kinds import flat_outcome
from evolve.worker.correctness.reduction import ReductionTrace
from evolve.worker.correctness.tolerance import (
    Arithmetic,
    OutputBudget,
    coarsened,
    condition_of,
    is_coarse,
    motion_blocks,
    no_motion,
    output_budget,
    real,
    widened,
)
from evolve.worker.ipc.pytree import components, flatten, map_tensors, resolved, tensors_of
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.placing import CPU, moved
from evolve.worker.reference.seeding import generator, seeded
from evolve.worker.reference.task_module import task_code, task_lock

SENSITIVITY_STEP = 2.0**-24  # relative size of the least perturbation, that of an fp32 rounding
_ATEN = torch.ops.aten
_SCANS = frozenset((_ATEN.cumsum.default, _ATEN.cumprod.default, _ATEN.logcumsumexp.default))
CUT_STEP = 2.0**-11  # half of the part that is cut off if an operand is read as TF32
_PRODUCTS = {  # where the first of two operands stands
    _ATEN.mm.default: 0, _ATEN.bmm.default: 0,
    _ATEN.addmm.default: 1, _ATEN.baddbmm.default: 1,
}  # fmt: skip
# One alone may leave an outcome where it is by luck: of attention on large scores, where two keys
# nearly tie, it missed one case in forty, and honest kernels were taken for wrong ones.
PERTURBATIONS = 4
_NUDGED_AT_ONCE = 1 << 27  # elements


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth:
    """Outputs computed in fp64; `note` says where that was not possible, else empty.

    `runs` says whether the reference runs in fp64 at all, if only in parts.
    """

    outputs: list[Tensor]
    note: str = ""
    runs: bool = True


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

        How far outputs move when every floating operand, and what running sums give, moves by one
        fp32 rounding: an honest kernel in another order of operations may be off by that much.
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
    to a copy: of each run is expected what the model as it is would give.
    """
    with ReductionTrace() as trace:
        tree = evaluate_reference(task, copied(model), inputs)
    reference, spec = flatten(tree)
    if changed is not None:
        tree, _ = tree
        _, spec = flatten(tree)
    truth = evaluate_truth(model, inputs, reference)
    arithmetic = Arithmetic(accumulation=accumulation, terms=trace.length, even=even)
    budgets = [
        output_budget(native, exact, arithmetic)
        for native, exact in zip(reference, truth.outputs, strict=True)
    ]
    dtypes = [native.dtype for native in reference]
    run = partial(_observed, task, model, inputs)
    motions = partial(_motions, task, model, inputs, truth, dtypes)
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
            return _forward_in(dtype, model, inputs, *modes)
        return _forward(copied(model), list(map_tensors(Tensor.clone, inputs)), *modes)


def copied(model: nn.Module) -> nn.Module:
    """A copy, if the model can be copied."""
    try:
        return copy.deepcopy(model)
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except _failures():
        return model


@torch.no_grad()
def _widened(
    budgets: list[OutputBudget | None],
    reference: list[Tensor],
    truth: list[Tensor],
    motions: Callable[["_Perturbed"], list[Tensor]],
    arithmetic: Arithmetic,
) -> list[OutputBudget | None]:
    """By how far outcomes move when operands do.

    By a rounding; and where the reference is off by more than that explains, when those of products
    do by as much as tensor cores cut off.
    """
    own = [real(native) for native in reference]
    floating = {index: budget for index, budget in enumerate(budgets) if budget}
    moved = motions(_rounded)
    conditions = {
        index: condition_of(budget, own[index].shape, moved[index], SENSITIVITY_STEP)
        for index, budget in floating.items()
    }
    wide = {
        index: widened(budget, own[index].dtype, conditions[index], arithmetic)
        for index, budget in floating.items()
    }
    if any(
        is_coarse(budget, own[index].dtype, conditions[index], arithmetic)
        for index, budget in floating.items()
    ):
        moved = motions(_cut)
        wide = {
            index: coarsened(budget, moved[index], truth[index]) for index, budget in wide.items()
        }
    return [wide.get(index) for index in range(len(budgets))]


@torch.no_grad()
def evaluate_reference(task: str, model: nn.Module, inputs: list[Any]) -> Any:
    """The reference's outcome in native precision; the inputs are left as they are.

    Raises:
        UsageError: it raises, or gives something else than tensors.
    """
    with task_code(task, "Model.forward"), seeded(0), _shortage_told():
        tree = model(*map_tensors(Tensor.clone, inputs))
    if not flat_outcome(task, tree)[0]:
        raise UsageError(f"task {task}: Model.forward returns no tensor. Return at least one.")
    return map_tensors(lambda tensor: resolved(tensor.detach().clone()), tree)


def _failures() -> tuple[type[Exception], ...]:
    """What a reference raises in a type it is not written for; Triton's errors are of its own."""
    own = getattr(sys.modules.get("triton.errors"), "TritonError", RuntimeError)
    return (*FAILURES_OF_A_FUNCTION, own)


@torch.no_grad()
def evaluate_truth(model: nn.Module, inputs: list[Any], reference: list[Tensor]) -> Truth:
    """Outputs of the reference with parameters, inputs and new tensors in fp64.

    If an operation does not exist in fp64, the best that there is stands in (fp32 for a half
    precision reference, else the native outcome `reference`) and `note` says so.
    """
    try:
        outputs = _forward_in(torch.float64, model, inputs)
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except _failures() as error:
        return _fallback(model, inputs, reference, error)
    shapes = [[one.shape for one in several] for several in (outputs, reference)]
    if shapes[0] != shapes[1]:  # of a view as bytes, or if it depends on values
        return _fallback(model, inputs, reference, RuntimeError("its outcome has another shape"))
    for index, (exact, own) in enumerate(zip(outputs, reference, strict=True)):
        if own.is_floating_point() and exact.dtype != torch.float64:
            note = f"output {index} stays {exact.dtype} when the reference runs in fp64"
            return Truth(outputs=[_doubled(output) for output in outputs], note=note)
    return Truth(outputs=outputs)


def _fallback(
    model: nn.Module, inputs: list[Any], reference: list[Tensor], error: Exception
) -> Truth:
    reason = f"the reference does not run in fp64 ({type(error).__name__}: {str(error)[:120]})"
    try:
        outputs = _forward_in(torch.float32, model, inputs)
        if [one.shape for one in outputs] != [one.shape for one in reference]:
            raise RuntimeError("another shape")
        note = f"{reason}; judged by its outcome in fp32"
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except _failures():
        outputs, note = reference, f"{reason}; judged by its native outcome"
    return Truth(outputs=[_doubled(output) for output in outputs], note=note, runs=False)


def _motions(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    truth: Truth,
    dtypes: list[torch.dtype],
    perturbed: "_Perturbed",
) -> list[Tensor]:
    """Root mean square over perturbations of how far each block of each output moves.

    Nothing moves if there is no fp64 truth.
    """
    squares = [no_motion(exact) for exact in truth.outputs]
    if truth.note:
        return squares
    place = next((tensor.device for tensor in tensors_of(inputs)), torch.device("cpu"))
    draws = generator(0, "sensitivity", place=place)
    for _ in range(PERTURBATIONS):  # one outcome at a time: each may take gigabytes
        moved = perturbed(task, model, inputs, draws)
        for total, exact, dtype in zip(squares, truth.outputs, dtypes, strict=True):
            total += motion_blocks(moved.pop(0), exact, dtype).square() / PERTURBATIONS
    return [total.sqrt() for total in squares]


_Perturbed = Callable[[str, nn.Module, list[Any], torch.Generator], list[Tensor]]
"""The outcome in fp64 when something moves at random."""


def _rounded(
    task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator
) -> list[Tensor]:
    """When parameters, inputs and what running sums give move by one rounding each."""
    with task_code(task, "Model.forward"):
        return _where_room_is(partial(_nudged, draws), model, inputs, _Scans(draws))


def _nudged(
    draws: torch.Generator, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    model = cast_module(copy.deepcopy(model), torch.float64)
    operands = map_tensors(lambda tensor: _in(torch.float64, tensor), inputs)
    for moving in (*(parameter.data for parameter in model.parameters()), *tensors_of(operands)):
        if moving.is_floating_point():
            _nudge(moving, draws, SENSITIVITY_STEP)
    with _default_dtype(torch.float64):
        return _forward(model, operands, *modes)


def _cut(task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator) -> list[Tensor]:
    """When operands of products and convolutions move as those do that tensor cores read."""
    with task_code(task, "Model.forward"):
        return _forward_in(torch.float64, model, inputs, _Products(draws))


class _Scans(DispatchMode):
    """In it, what running sums and products give is moved by a rounding.

    Each is rounded where it stands. Of the difference of two, which a state space model takes the
    exponential of, that may be far more than what moving the terms between them does.
    """

    def __init__(self, draws: torch.Generator) -> None:
        super().__init__()
        self._draws = draws

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        if operation in _SCANS and outcome.is_floating_point():
            _nudge(outcome, self._draws, SENSITIVITY_STEP)
        return outcome


class _Products(DispatchMode):
    """In it, operands of products and convolutions are moved by what is cut off them."""

    def __init__(self, draws: torch.Generator) -> None:
        super().__init__()
        self._draws = draws

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation is CONVOLUTION:  # whose operands may take gigabytes
            x, weight, *others = arguments
            weight = self._moved(weight)
            return in_parts(lambda x: operation(self._moved(x), weight, *others), x)
        first = _PRODUCTS.get(operation, len(arguments))
        operands = [self._moved(operand) for operand in arguments[first : first + 2]]
        return operation(*arguments[:first], *operands, *arguments[first + 2 :], **options)

    def _moved(self, operand: Tensor) -> Tensor:
        if not operand.is_floating_point():  # products of places are exact
            return operand
        moved = operand.clone()
        _nudge(moved, self._draws, CUT_STEP)
        return moved


def _nudge(tensor: Tensor, draws: torch.Generator, step: float) -> None:
    """Move all values by a relative step up or down at random, in place."""
    if tensor.layout is not torch.strided:
        tensor = components(tensor)[-1]
    if not tensor.numel() or not tensor.dim():
        parts: tuple[Tensor, ...] = (tensor,)
    else:  # what this takes itself is to stay small beside a tensor of gigabytes
        rows = max(1, _NUDGED_AT_ONCE * tensor.shape[0] // tensor.numel())
        parts = tensor.split(rows)
    for part in parts:
        is_up = torch.randint(0, 2, part.shape, generator=draws, dtype=torch.bool,
                              device=draws.device).to(part.device)  # fmt: skip
        up, down = part.new_tensor(1 + step), part.new_tensor(1 - step)
        part.mul_(torch.where(is_up, up, down))


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _forward_in(
    dtype: torch.dtype, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    """The outcome with floating operands of a type, each operation through these modes."""
    return _where_room_is(partial(_made_in, dtype), model, inputs, *modes)


def _where_room_is(
    run: Callable[..., list[Tensor]], model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    """`run(model, inputs, *modes)`; by the CPU if nothing else has memory for it.

    A GPU of 80 GB has not enough for an input and an output of 6 GB each in fp64, with what lies
    between them, beside a candidate that has both.
    """
    try:
        return run(model, inputs, *modes)
    except torch.OutOfMemoryError as error:
        place = tensors_of([inputs, list(model.parameters())])[0].device
        if not shortage.is_alone() or place == CPU:
            raise
        said = str(error)  # its frames hold gigabytes
    torch.cuda.empty_cache()
    try:
        made = run(copy.deepcopy(model).to(CPU), moved(CPU, inputs), *modes, _NoDraws())
    except (
        _failures()
    ) as error:  # if the model has tensors on its GPU, say: there is no memory then
        raise torch.OutOfMemoryError(f"{said} (by the CPU: {error})") from error
    return [output.to(place) for output in made]


class _NoDraws(DispatchMode):
    """An error where random numbers are drawn: another device draws others."""

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in operation.tags:
            raise ValueError(f"{operation} draws random numbers")
        return operation(*arguments, **options)


def _made_in(
    dtype: torch.dtype, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    operands = map_tensors(lambda tensor: _in(dtype, tensor), inputs)
    with _default_dtype(dtype):
        return _forward(cast_module(copy.deepcopy(model), dtype), operands, *modes)


def _in(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """A copy, in the type where it is floating."""
    return tensor.to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)


def _forward(model: nn.Module, inputs: list[Any], *modes: DispatchMode) -> list[Tensor]:
    """The outcome of a forward, each of whose operations goes through these, the last first."""
    # The modes inside: outside they would see what a convolution is made by, and no convolution.
    with _shortage_told(), seeded(0), ByProducts(), ExitStack() as around:
        for mode in modes:
            around.enter_context(mode)
        return [resolved(output.detach()) for output in flatten(model(*inputs))[0]]


@contextmanager
def _shortage_told() -> Iterator[None]:
    """What libraries say in words of their own is told apart from an operation that is missing.

    Or for want of memory truth would be of fp32, as coarse as convolutions in TF32, and who is more
    exact would be wrong.
    """
    try:
        yield
    except RuntimeError as error:
        if is_no_room(error):
            raise torch.OutOfMemoryError(str(error)) from error
        raise


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a forward creates by itself follow the precision of the run."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
