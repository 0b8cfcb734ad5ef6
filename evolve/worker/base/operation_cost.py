"""How much work operations of torch are: bytes that they read and write, and arithmetic operations.

Counted by shapes. For products, convolutions and attention there are formulas; an operation that
visits its elements once or a few times counts one for each. Others cannot be counted, and are not
guessed.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evolve.worker.ipc.pytree import tensors_of

# Operations that make, describe or move data and compute nothing, by name without the overload.
_ALLOCATION = """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like
    new_zeros ones ones_like new_ones full full_like new_full scalar_tensor arange fill fill_
    zero zero_ lift lift_fresh lift_fresh_copy resize_ set_
"""
_MOVEMENT = """
    clone copy copy_ _to_copy to contiguous detach alias _local_scalar_dense is_pinned pin_memory
    _pin_memory cat stack constant_pad_nd _reshape_alias _unsafe_view reshape flatten
"""
_METADATA = """
    size stride storage_offset dim numel is_contiguous sym_size sym_stride sym_numel
    sym_storage_offset is_same_size detach_ as_strided_ unsqueeze_ squeeze_ transpose_ t_
    resize_as_ _assert_async
"""
_MOVING = frozenset((_ALLOCATION + _MOVEMENT + _METADATA).split())

# Beside those that torch calls pointwise: a few passes over all elements, however they are used.
_POINTWISE = """
    abs eq ne lt le gt ge masked_fill threshold where floor_divide copysign glu hardswish
    log_sigmoid_forward mse_loss smooth_l1_loss huber_loss binary_cross_entropy nll_loss_forward
    nll_loss2d_forward complex polar _prelu_kernel clamp bernoulli normal uniform random rand randn
    rand_like randn_like randint randint_like native_dropout _add_relu
"""
_REDUCTIONS = """
    sum nansum mean amax amin aminmax _aminmax max min prod any all argmax argmin norm
    linalg_vector_norm var std var_mean std_mean logsumexp count_nonzero trace equal
    cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp
    softmax log_softmax _softmax _log_softmax _safe_softmax
    native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training _is_all_true _is_any_true
"""
_PLACES = """
    index index_select gather take embedding masked_select index_put _index_put_impl scatter
    scatter_add scatter_reduce index_add index_copy index_fill masked_scatter sort topk kthvalue
    median nonzero flip roll repeat repeat_interleave tril triu eye linspace randperm
    unsafe_split unsafe_split_with_sizes bucketize searchsorted isin
"""
_LINEAR = frozenset((_POINTWISE + _REDUCTIONS + _PLACES).split())
# Operations that read no more of their first operand than they give.
PICKING = ("embedding", "index", "index_select", "gather", "take", "masked_select")
# Those that torch's formulas do not know, or not by their arguments: x, weight, ...
_CONVOLUTION_NAMES = """
    mkldnn_convolution miopen_convolution _slow_conv2d_forward slow_conv3d_forward
    slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d
    _nnpack_spatial_convolution cudnn_convolution_relu cudnn_convolution_add_relu
"""
_CONVOLUTIONS = frozenset(_CONVOLUTION_NAMES.split())
_OF_VECTORS = ("mv", "addmv", "dot", "vdot")  # a product with a vector: two for each element
_OF_COMPLEX = 4  # real products in one of complex numbers
_numel, _element_size = Tensor.numel, Tensor.element_size  # before a candidate replaces them


class Work(NamedTuple):
    """Bytes read and written, and arithmetic operations."""

    nbytes: int = 0
    operations: int = 0

    def __add__(self, other: "Work") -> "Work":  # type: ignore[override]
        return Work(self.nbytes + other.nbytes, self.operations + other.operations)

    def at_least(self, other: "Work") -> "Work":
        """The larger of both, of bytes and of operations."""
        return Work(max(self.nbytes, other.nbytes), max(self.operations, other.operations))


def prepare() -> None:
    """Import torch's formulas, which import Triton: they are first used under the task lock."""
    _formulas()


def moves_data(operation: Any) -> bool:
    """Whether an operation of ATen only makes, describes or moves data."""
    return operation.is_view or operation.overloadpacket.__name__ in _MOVING


def work_of(
    operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], outcome: Any
) -> Work | None:
    """The cost of a call of an operation; None if it cannot be counted."""
    done = operations_of(operation, arguments, options, outcome)
    if done is None:
        return None
    name = operation.overloadpacket.__name__
    given, made = tensors_of([*arguments, *options.values()]), _tensors_in(outcome)
    written = sum(map(_nbytes, made))
    read = [_nbytes(tensor) for tensor in given]
    if name in PICKING and read:
        read[0] = min(read[0], written)
    return Work(sum(read) + written, done)


def operations_of(
    operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], outcome: Any
) -> int | None:
    """Arithmetic operations of a call; None if they cannot be counted."""
    name = operation.overloadpacket.__name__
    elements = elements_of(arguments, options, outcome)
    if _formula(operation.overloadpacket) is not None:
        operands = tensors_of(list(arguments))
        factor = _OF_COMPLEX if any(tensor.is_complex() for tensor in operands) else 1
        return factor * products_of(operation, arguments, options, outcome)
    if name.rstrip("_") in _OF_VECTORS:
        return 2 * elements
    if torch.Tag.pointwise in operation.tags or name in _LINEAR or name.rstrip("_") in _LINEAR:
        return elements
    return None


def elements_of(arguments: tuple[Any, ...], options: Mapping[str, Any], outcome: Any) -> int:
    """Elements of the largest tensor that an operation reads or gives."""
    given = tensors_of([*arguments, *options.values()])
    return max(map(_numel, [*given, *_tensors_in(outcome)]), default=0)


def products_of(
    operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], outcome: Any
) -> int:
    """Operations of a matrix product, a convolution or attention; 0 for all others."""
    formula = _formula(operation.overloadpacket)
    return int(formula(*arguments, **options, out_val=outcome)) if formula else 0


def _formula(packet: Any) -> Callable[..., Any] | None:
    formulas = _formulas()
    if packet.__name__ in _CONVOLUTIONS:
        return _convolution
    if packet.__name__.startswith("_scaled_dot_product") and packet not in formulas:
        return _attention  # as on the CPU
    return formulas.get(packet)


@cache
def _formulas() -> dict[Any, Callable[..., Any]]:
    """Torch's, copied before a candidate changes them."""
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def _convolution(_: Tensor, weight: Tensor, *__: Any, out_val: Any, **___: Any) -> int:
    given = sum(map(_numel, _tensors_in(out_val)))
    return 2 * given * _numel(weight) // max(1, weight.shape[0])


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    from torch.utils.flop_counter import sdpa_flop_count

    return int(sdpa_flop_count(q.shape, k.shape, v.shape))


def _tensors_in(outcome: Any) -> list[Tensor]:
    return tensors_of(list(outcome) if isinstance(outcome, tuple | list) else [outcome])


def _nbytes(tensor: Tensor) -> int:
    return _numel(tensor) * _element_size(tensor)
