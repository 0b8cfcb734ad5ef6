"""Parts of a program: modules by class and constructor, and functions of torch, and their calls."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from evolve.capture.jobs import Part
from evolve.capture.origin import module_text, type_of
from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.worker.ipc.pytree import tensors_of

FUNCTIONS: dict[Any, tuple[str, ...]] = {
    functional: (
        *("scaled_dot_product_attention", "softmax", "log_softmax", "cross_entropy", "nll_loss"),
        *("linear", "bilinear", "embedding", "conv1d", "conv2d", "conv3d", "conv_transpose2d"),
        *("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "normalize"),
        *("interpolate", "grid_sample", "pad", "unfold", "fold", "one_hot", "glu", "kl_div"),
        *("mse_loss", "l1_loss", "binary_cross_entropy_with_logits", "cosine_similarity"),
        *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "pixel_shuffle"),
    ),
    torch: (
        *("matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "softmax", "log_softmax"),
        *("cumsum", "topk", "sort", "logsumexp", "cdist", "gather", "index_select"),
    ),
}
"""Those that are watched where no module of torch calls them."""


_constructors: Any = WeakIdKeyDictionary()  # of modules, which need not be hashable


def part_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Part:
    """The part that a call of a module is of; it raises nothing, whatever the module is."""
    kind = type(module)
    try:
        constructor, dtype = _constructors.get(module), type_of(module)
        if constructor is None:
            constructor = _constructors[module] = module_text(module)
    except FAILURES_OF_A_FUNCTION:
        constructor, dtype = f"{kind.__qualname__}(?)", "none"
    return Part(
        f"{kind.__module__}.{kind.__qualname__}",
        constructor,
        dtype,
        module.training,
        len(args),
        tuple(sorted(kwargs)),
    )


def part_of_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Part:
    """The part that a call of a function is of."""
    return Part(name, "", "", False, len(args), tuple(sorted(kwargs)))


def write_counts(tree: Any) -> list[int]:
    """Of all tensors in a tree: others after one was written to in place.

    Tensors made under `torch.inference_mode()` count no writes.
    """
    return [-1 if one.is_inference() else one._version for one in tensors_of(tree)]


def arguments_of(part: Part, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """A call's arguments in the order of the task's: positional ones, then by name."""
    return [*args, *(kwargs[name] for name in part.named)]


def shapes_text(arguments: Any) -> str:
    """Shapes of the tensors of arguments: `8x128x64, 128x128`."""
    try:
        return ", ".join("x".join(map(str, t.shape)) or "scalar" for t in _tensors(arguments))
    except FAILURES_OF_A_FUNCTION:  # a nested tensor has no shape
        return "other"


def device_of(arguments: Any) -> str:
    """Type of the device of the first tensor; `cpu` without one."""
    try:
        return next((tensor.device.type for tensor in _tensors(arguments)), "cpu")
    except FAILURES_OF_A_FUNCTION:  # a container of the user's fails when it is looked at
        return "cpu"


def unwrapped(module: nn.Module) -> tuple[nn.Module, bool]:
    """The user's module, and whether torch.compile has compiled it."""
    modules = vars(module).get("_modules")
    own = modules.get("_orig_mod") if isinstance(modules, dict) else None  # else of TorchScript
    return (own, True) if isinstance(own, nn.Module) else (module, False)


def is_of_torch(module: nn.Module) -> bool:
    """Whether its class is torch's: the functions that it calls are its own affair."""
    return type(module).__module__.startswith("torch.")


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Names for so many positional arguments of a call: the signature's, if it has them."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [plain[n] if n < len(plain) else f"argument_{n}" for n in range(count)]


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for one in tree:
            yield from _tensors(one)
    elif isinstance(tree, dict):
        for one in tree.values():
            yield from _tensors(one)
