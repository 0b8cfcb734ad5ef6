"""How far outcomes of a reference move when its operands do."""

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.convolution import CONVOLUTION, in_parts
from evolve.worker.correctness.fp64_truth import Truth
from evolve.worker.correctness.reduction import PRODUCTS, types_of_products
from evolve.worker.correctness.reference_runs import (
    default_dtype,
    forward,
    forward_in,
    in_type,
    where_room_is,
)
from evolve.worker.correctness.tolerance import (
    HALVES,
    motion_blocks,
    no_motion,
    parts,
    unit_roundoff,
)
from evolve.worker.ipc.pytree import components, map_tensors, tensors_of
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.seeding import generator
from evolve.worker.reference.task_module import task_code

SENSITIVITY_STEP = 2.0**-24  # relative size of the least perturbation, that of an fp32 rounding
CUT_STEP = 2.0**-11  # half of the part that is cut off if an operand is read as TF32
# One alone may leave an outcome where it is by luck: of attention on large scores, where two keys
# nearly tie, it missed one case in forty, and honest kernels were taken for wrong ones.
PERTURBATIONS = 4
_ATEN = torch.ops.aten
_SCANS = frozenset((_ATEN.cumsum.default, _ATEN.cumprod.default, _ATEN.logcumsumexp.default))
_SCALINGS = frozenset((_ATEN.mul, _ATEN.mul_, _ATEN.div, _ATEN.div_))
_COPIES = frozenset((_ATEN.copy_, _ATEN.fill_, _ATEN.zero_))
_EMPTY = frozenset((_ATEN.empty, _ATEN.empty_like, _ATEN.empty_strided, _ATEN.empty_permuted,
                    _ATEN.new_empty, _ATEN.new_empty_strided))  # fmt: skip
_ATTENTION_OF_CPU = _ATEN._scaled_dot_product_flash_attention_for_cpu.default
_NUDGED_AT_ONCE = 1 << 27  # elements
_MULTIPLIERS = 1 << 62  # of a hash of values
_SAMPLE = 4096  # elements that tell whether a tensor has few values
Perturbed = Callable[[str, nn.Module, list[Any], torch.Generator], list[Tensor]]
"""The outcome in fp64 when something moves at random."""


def moved_blocks(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    truth: Truth,
    dtypes: list[torch.dtype],
    perturbed: Perturbed,
    times: int = PERTURBATIONS,
) -> list[Tensor]:
    """Root mean square over so many perturbations of how far each block of each output moves.

    Nothing moves if there is no fp64 truth.
    """
    squares = [no_motion(exact) for exact in truth.outputs]
    if truth.note:
        return squares
    place = next((tensor.device for tensor in tensors_of(inputs)), torch.device("cpu"))
    draws = generator(0, "sensitivity", place=place)
    for _ in range(times):  # one outcome at a time: each may take gigabytes
        moved = perturbed(task, model, inputs, draws)
        for total, exact, dtype in zip(squares, truth.outputs, dtypes, strict=True):
            total += motion_blocks(moved.pop(0), exact, dtype).square() / times
    return [total.sqrt() for total in squares]


def rounded(task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator) -> list[Tensor]:
    """When parameters, inputs and results of running sums move by one rounding each."""
    with task_code(task, "Model.forward"):
        return where_room_is(partial(_nudged, draws), model, inputs, _Scans(draws))


def _nudged(
    draws: torch.Generator, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    model = cast_module(copy.deepcopy(model), torch.float64)
    operands = map_tensors(lambda tensor: in_type(torch.float64, tensor), inputs)
    for moving in (*(parameter.data for parameter in model.parameters()), *tensors_of(operands)):
        if moving.is_floating_point():
            _nudge(moving, draws, SENSITIVITY_STEP)
    with default_dtype(torch.float64):
        return forward(model, operands, *modes)


def cut(task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator) -> list[Tensor]:
    """When operands of products and convolutions move as those do that tensor cores read."""
    with task_code(task, "Model.forward"):
        return forward_in(torch.float64, model, inputs, _Products(draws, CUT_STEP))


def intermediates_rounded(
    products: Sequence[torch.dtype],
    task: str,
    model: nn.Module,
    inputs: list[Any],
    draws: torch.Generator,
    *,
    together: bool = False,
) -> list[Tensor]:
    """When results that become operands of products of 16 bits move by a rounding to their type.

    At random, or all away from zero. `products` are the types of all products, in order. Nothing
    moves if these have several types and the products in fp64 are others.
    """
    mode = _Intermediates(None if together else draws, products)
    with task_code(task, "Model.forward"):
        moved = forward_in(torch.float64, model, inputs, mode)
        return moved if mode.is_matched else forward_in(torch.float64, model, inputs)


class _Scans(DispatchMode):
    """In it, results of running sums and products are moved by a rounding.

    Each is rounded where it stands. Of the difference of two, which a state space model takes the
    exponential of, that may be far more than moving the terms between them does.
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
    """In it, operands of products and convolutions are moved by a relative step.

    At random, or all away from zero if there are no draws.
    """

    def __init__(self, draws: torch.Generator | None, step: float) -> None:
        super().__init__()
        self._draws, self._step = draws, step

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation is CONVOLUTION:  # whose operands may take gigabytes
            x, weight, *others = arguments
            weight = self._moved(weight)
            return in_parts(lambda x: operation(self._moved(x), weight, *others), x)
        operands = list(arguments)
        for place in PRODUCTS.get(operation.overloadpacket, ()):
            operands[place] = self._moved(operands[place])
        return operation(*operands, **options)

    def _moved(self, operand: Tensor) -> Tensor:
        if not operand.is_floating_point():  # products of places are exact
            return operand
        return self._nudged(operand.clone())

    def _nudged(self, operand: Tensor) -> Tensor:
        if self._draws is None:
            return operand.mul_(1 + self._step)
        _nudge(operand, self._draws, self._step)
        return operand


class _Intermediates(_Products):
    """In it, results that become operands of products are moved by a rounding to a type.

    Products of tensor cores take operands of 16 bits, so every kernel rounds what it has computed
    for them, each at a scale of its own: FlashAttention's weights (Dao et al., 2022) are not those
    of a softmax, since they are divided by their sum later. What the reference is given stays as it
    is, also times a number, which a kernel can multiply the product by.
    """

    def __init__(self, draws: torch.Generator | None, products: Sequence[torch.dtype]) -> None:
        super().__init__(draws, 0.0)
        self._products = products
        self._made = 0
        self._computed: set[StorageWeakRef] = set()

    @property
    def is_matched(self) -> bool:
        """Whether each product so far has had the type of its own."""
        return len(set(self._products)) == 1 or self._made == len(self._products)

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if products := len(types_of_products(operation, arguments)):
            dtype = self._products[min(self._made, len(self._products) - 1)]
            self._step = unit_roundoff(dtype) if dtype in HALVES else 0.0
            self._made += products
        read = _read(operation, arguments, options)
        is_given = not any(map(self._is_computed, read))
        if operation is _ATTENTION_OF_CPU:
            is_given, outcome = False, self._attention(*arguments, **options)
        else:
            outcome = super().run(operation, arguments, options)
        kind = operation.overloadpacket
        if kind in _EMPTY:  # else the verdict would depend on the memory's former values
            tensors_of(outcome)[0].zero_()
        if not operation.is_view:
            is_copy = not read or kind in _COPIES
            is_same = is_copy or (kind in _SCALINGS and _all_but_one_are_numbers(read))
            for made in filter(Tensor.is_floating_point, tensors_of(outcome)):
                self._note(made, is_given and (is_same or self._is_representable(made)))
        return outcome

    def _moved(self, operand: Tensor) -> Tensor:
        return super()._moved(operand) if self._is_computed(operand) else operand

    def _is_computed(self, tensor: Tensor) -> bool:
        is_dense = tensor.layout is torch.strided
        return is_dense and StorageWeakRef(tensor.untyped_storage()) in self._computed

    def _note(self, made: Tensor, is_given: bool) -> None:
        if made.layout is not torch.strided:
            return
        # A storage's record outlives its memory while there is a reference: none gets its place.
        storage = StorageWeakRef(made.untyped_storage())
        (self._computed.discard if is_given else self._computed.add)(storage)

    def _is_representable(self, made: Tensor) -> bool:
        """Whether no rounding to a type of 16 bits changes values: they are copies of givens."""
        return any(
            all(torch.equal(part.to(dtype).to(part), part) for part in parts(made))
            for dtype in {dtype for dtype in self._products if dtype in HALVES}
        )

    def _attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """By its operations, a head at a time: the scores of all would be gigabytes."""
        made, sums = _ATTENTION_OF_CPU(
            q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )
        q, k, v = map(self._moved, (q, k, v))
        size = (q.shape[2], k.shape[2])
        mask = q.new_zeros(size) if attn_mask is None else attn_mask
        if is_causal:
            mask = mask + q.new_full(size, -math.inf).triu(1)
        mask = mask.expand(*q.shape[:2], *size)
        for batch, head in itertools.product(*map(range, q.shape[:2])):
            shared = head * k.shape[1] // q.shape[1]
            scores = q[batch, head] @ k[batch, shared].mT
            scores *= q.shape[-1] ** -0.5 if scale is None else scale
            weights = _ATEN._safe_softmax(scores.add_(mask[batch, head]), -1)
            made[batch, head] = self._nudged(weights) @ v[batch, shared]
        return made, sums


def _read(operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an outcome is made of."""
    kind = operation.overloadpacket
    if kind in _EMPTY:
        return []
    if kind in _COPIES and _is_whole(arguments[0]):
        return tensors_of(list(arguments[1:]))
    written = {argument.name for argument in operation._schema.arguments if argument.is_out}
    named = [value for name, value in options.items() if name not in written]
    return tensors_of([*arguments, *named])


def _is_whole(tensor: Tensor) -> bool:
    """Whether it has all elements of its storage."""
    is_dense = tensor.layout is torch.strided
    return is_dense and tensor.nbytes == tensor.untyped_storage().nbytes()


def _all_but_one_are_numbers(operands: list[Tensor]) -> bool:
    """Whether all but one of the operands are numbers."""
    return sum(operand.dim() > 0 for operand in operands) == 1


def _nudge(tensor: Tensor, draws: torch.Generator, step: float) -> None:
    """Move all values by a relative step, away from zero or towards it at random, in place.

    If few values are there, equal ones move together as well, as a rounding moves them: its errors
    add up in a sum then.
    """
    if tensor.layout is not torch.strided:
        tensor = components(tensor)[-1]
    if not tensor.numel() or not tensor.dim():
        parts: tuple[Tensor, ...] = (tensor,)
    else:  # its own memory is to stay small beside a tensor of gigabytes
        rows = max(1, _NUDGED_AT_ONCE * tensor.shape[0] // tensor.numel())
        parts = tensor.split(rows)
    if _has_few_values(tensor):
        key = 2 * int(torch.randint(_MULTIPLIERS, (), generator=draws, device=draws.device)) + 1
        for part in parts:
            # A multiplicative hash: the highest bit depends on all bits of the value.
            _move(part, part.double().abs().view(torch.int64).mul_(key) < 0, step)
    for part in parts:
        is_up = torch.randint(0, 2, part.shape, generator=draws, dtype=torch.bool,
                              device=draws.device).to(part.device)  # fmt: skip
        _move(part, is_up, step)


def _move(part: Tensor, is_up: Tensor, step: float) -> None:
    part.mul_(torch.where(is_up, part.new_tensor(1 + step), part.new_tensor(1 - step)))


def _has_few_values(tensor: Tensor) -> bool:
    """By the first elements of its memory: a copy of all in order may be one of gigabytes."""
    start, stored = tensor.storage_offset(), tensor.untyped_storage().nbytes() // tensor.itemsize
    some = tensor.as_strided((min(_SAMPLE, tensor.numel(), stored - start),), (1,), start)
    return 0 < 2 * some.unique().numel() <= some.numel()
