"""Torch's settings of a whole process, as task files make them: they hold for their own code.

A file may say `torch.set_default_dtype(torch.float64)` when it is imported. One process judges many
tasks, so each file's settings are put in place while its code runs, and taken back after it. They
go with the name that the file's code is run under, for two files may have one name.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch

Setting = tuple[Callable[[], Any], Callable[[Any], object]]  # read it, write it
_UNREADABLE = object()


def _read(get: Callable[[], Any]) -> Any:
    """A setting's value; none where torch has no such setting, or cannot tell.

    `torch.get_float32_matmul_precision` raises after a file has used `fp32_precision`.
    """
    try:
        return get()
    except (AttributeError, RuntimeError):
        return _UNREADABLE


def _write(setting: Setting, value: Any) -> None:
    get, put = setting
    if value is not _UNREADABLE and _read(get) != value:
        put(value)


def _named(path: str) -> Callable[[], Any]:
    """Something of torch, looked up when it is used: a version may lack it."""
    return partial(attrgetter(path), torch)


def _attribute(path: str) -> Setting:
    holder, _, name = path.rpartition(".")
    holding = _named(holder)

    def put(value: Any) -> None:
        # A file may forbid it (`torch.backends.disable_global_flags`).
        with torch.backends.__allow_nonbracketed_mutation():
            setattr(holding(), name, value)

    return _named(path), put


def _functions(get: str, put: str) -> Setting:
    getting, putting = _named(get), _named(put)
    return lambda: getting()(), lambda value: putting()(value)


def _freeze(is_frozen: bool) -> None:
    module = torch.backends.flags_frozen.__globals__
    module["__allow_nonbracketed_mutation_flag"] = not is_frozen


def _device() -> torch.device:
    """`torch.get_default_device` makes a tensor, which fails if there is no such device."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch.device("cpu") if context is None else context.device


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


# Of products and convolutions in fp32: two older settings, which also write to the newer ones, and
# these by backend and operation. One without a value of its own has that of an earlier one.
_OLDER: tuple[Setting, ...] = (
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    _attribute("backends.cudnn.allow_tf32"),
)
_NEWER = (
    ("generic", "all"),
    *((backend, of) for backend in ("cuda", "mkldnn") for of in ("all", "matmul", "conv", "rnn")),
)


def _newer(backend: str, of: str) -> Setting:
    # By torch's own functions: `torch.backends.mkldnn.fp32_precision = ...` writes to another.
    return (
        lambda: torch._C._get_fp32_precision_getter(backend, of),
        lambda value: torch._C._set_fp32_precision_setter(backend, of, value),
    )


_PRECISIONS = (*_OLDER, *(_newer(*place) for place in _NEWER))


def _precision() -> list[Any]:
    return [_read(get) for get, _ in _PRECISIONS]


def _set_precision(values: Sequence[Any]) -> None:
    for setting, value in zip(_PRECISIONS, values, strict=True):
        _write(setting, value)


def _reduction(name: str) -> Setting:
    """Whether products may sum in their own short type, and in parts."""

    def put(value: tuple[bool, bool]) -> None:
        may, in_parts = value
        setattr(torch.backends.cuda.matmul, name, may if in_parts else value)

    return lambda: (
        getattr(torch.backends.cuda.matmul, name),
        getattr(torch.backends.cuda.matmul, f"{name}_split_k", True),
    ), put


def _autocast(device: str) -> Setting:
    def put(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), put


def _flushes_denormals() -> bool:
    """Torch does not say; it is a setting of the processor, so Python's numbers follow it too."""
    return sys.float_info.min / 2 == 0


_SETTINGS: tuple[Setting, ...] = (
    (torch.backends.flags_frozen, _freeze),
    (torch.get_default_dtype, torch.set_default_dtype),
    (_device, _set_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    _attribute("utils.deterministic.fill_uninitialized_memory"),
    (_precision, _set_precision),
    _autocast("cpu"),
    _autocast("cuda"),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.set_anomaly_enabled(*value),
    ),
    (_flushes_denormals, torch.set_flush_denormal),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    _attribute("backends.cudnn.enabled"),
    _attribute("backends.cudnn.benchmark"),
    _attribute("backends.cudnn.benchmark_limit"),
    _attribute("backends.cudnn.deterministic"),
    _attribute("backends.cudnn.depthwise_kernel"),
    _attribute("backends.mkldnn.enabled"),
    _attribute("backends.mkldnn.deterministic"),
    _attribute("backends.opt_einsum.enabled"),
    _attribute("backends.opt_einsum.strategy"),
    _attribute("backends.quantized.engine"),
    _functions("_C._get_nnpack_enabled", "backends.nnpack.set_flags"),
    _functions("backends.mha.get_fastpath_enabled", "backends.mha.set_fastpath_enabled"),
    _reduction("allow_fp16_reduced_precision_reduction"),
    _reduction("allow_bf16_reduced_precision_reduction"),
    _attribute("backends.cuda.matmul.allow_fp16_accumulation"),
    _functions("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    _functions("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    _functions("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
    _functions("backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp"),
    _functions(
        "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
    ),
    _functions("backends.cuda.preferred_linalg_library", "backends.cuda.preferred_linalg_library"),
    _functions("backends.cuda.preferred_blas_library", "backends.cuda.preferred_blas_library"),
    _functions(
        "backends.cuda.preferred_rocm_fa_library", "backends.cuda.preferred_rocm_fa_library"
    ),
)


class TaskName(str):
    """The name of a task whose file is loaded, with the settings of torch that the file changes."""

    def __init__(self, _: str) -> None:
        self.settings: dict[int, Any] = {}  # by their place in `_SETTINGS`


@contextmanager
def recording_settings(task: TaskName) -> Iterator[None]:
    """Inside, a task's file is imported: settings that it changes are its own from then on."""
    before = _current()
    try:
        yield
    finally:
        changes = enumerate(zip(before, _current(), strict=True))
        task.settings = {at: now for at, (old, now) in changes if old != now}


def apply_settings(task: str) -> None:
    """Make a task's own settings those of the process."""
    if isinstance(task, TaskName):
        for at, value in task.settings.items():
            _write(_SETTINGS[at], value)


@contextmanager
def settings_of(task: str) -> Iterator[None]:
    """Inside, a task's own settings are in place; after it, all are as they were before.

    Raises:
        RuntimeError: a setting cannot be taken back; all others are, and later tasks run.
    """
    grad, before = torch.is_grad_enabled(), _current()
    try:
        apply_settings(task)
        yield
    finally:
        torch._C._set_grad_enabled(grad)  # the judge's own matter: see `Conditions.grad`
        if _current() != before:  # seldom, and some settings write to others: so all of them then
            _restore(before)


def _restore(values: Sequence[Any]) -> None:
    with ExitStack() as ending:  # which does all that it is told to, also after an error
        for setting, value in zip(_SETTINGS, values, strict=True):
            ending.callback(_write, setting, value)


def _current() -> list[Any]:
    return [_read(get) for get, _ in _SETTINGS]
