"""Runtime probes for what made an outcome: ATen compute trapped, custom kernels stubbed.

Both run inside the candidate's process around one forward call. They only label: a candidate can
defeat them, so the judge compares the outcomes of both runs with what it knows, and values are
decided elsewhere.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from evolve.core.evaluation import Label

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
    sym_storage_offset is_same_size
"""
ALLOWED = frozenset((_ALLOCATION + _MOVEMENT + _METADATA).split())


class AtenComputeTrapped(RuntimeError):
    """The candidate asked torch for a computation; `operation` is its name."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} is trapped: no torch computation in this run")
        self.operation = operation


class _Trap(TorchDispatchMode):
    """Raises on every operation but ATen views and those on the list."""

    def __init__(self) -> None:
        super().__init__()
        self.first: str | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch._dynamo, which takes 1.4 s

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        # What an operation of another namespace calls inside is out of a mode's sight.
        if func.namespace != "aten" or not (func.is_view or name in ALLOWED):
            operation = f"{func.namespace}::{name}"
            self.first = self.first or operation
            raise AtenComputeTrapped(operation)
        return func(*args, **(kwargs or {}))


@contextmanager
def trap_aten() -> Iterator[_Trap]:
    """Inside, ATen compute operations raise `AtenComputeTrapped`; data movement passes.

    Python threads started inside are watched too. A candidate that swallows the exception and goes
    another way gains nothing: it is raised again at the end. The value's `first` names the
    operation that was trapped first.
    """
    trap = _Trap()
    start = threading.Thread.start

    def watched_start(thread: threading.Thread) -> None:
        run = thread.run

        def watched_run() -> None:  # a dispatch mode sees its own thread only
            with _Trap() as mode, contextlib.suppress(AtenComputeTrapped):
                run()
            trap.first = trap.first or mode.first

        thread.run = watched_run  # type: ignore[method-assign]
        start(thread)

    with _replaced(threading.Thread, {"start": watched_start}), trap:
        yield trap
    if trap.first is not None:
        raise AtenComputeTrapped(trap.first)


@contextmanager
def stub_custom() -> Iterator[list[str]]:
    """Inside, functions of tvm_ffi modules and Triton launches do nothing.

    To be entered before the candidate is imported: a module keeps functions it has handed out.
    Outputs that a custom kernel should have written keep whatever their memory held. The value
    collects the names of what was skipped, in order.
    """
    skipped: list[str] = []
    with contextlib.ExitStack() as stack:
        for owner, attributes in (*_tvm_ffi_stubs(skipped), *_triton_stubs(skipped)):
            stack.enter_context(_replaced(owner, attributes))
        yield skipped


Stubs = list[tuple[type, dict[str, Any]]]


def _tvm_ffi_stubs(skipped: list[str]) -> Stubs:
    try:
        import tvm_ffi
    except ImportError:
        return []

    def get_function(module: Any, name: str, query_imports: bool = False) -> Callable[..., None]:
        def skip(*_: Any) -> None:
            skipped.append(name)

        return skip

    names = ("get_function", "__getattr__", "__getitem__")
    return [(tvm_ffi.Module, dict.fromkeys(names, get_function))]


def _triton_stubs(skipped: list[str]) -> Stubs:
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return []

    def run(kernel: Any, *_: Any, **__: Any) -> None:
        skipped.append(getattr(kernel, "__name__", "a Triton kernel"))

    return [(InterpretedFunction, {"run": run}), (JITFunction, {"run": run})]


@contextmanager
def _replaced(owner: type, attributes: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def custom_label(
    trap_ok: bool, trapped_op: str | None, stub_still_correct: bool
) -> tuple[bool, tuple[Label, ...]]:
    """Whether custom kernels made the outcome, from the judged outcomes of both probes.

    Args:
        trap_ok: The outcome was right with ATen compute trapped.
        trapped_op: The first operation that was trapped, if any.
        stub_still_correct: The outcome was right with custom kernels doing nothing.

    The work counts as custom only if it is right without ATen compute and wrong without the
    custom kernels.
    """
    labels: list[Label] = []
    if trapped_op is not None:
        labels.append(Label("aten_compute", f"{trapped_op} was called in forward"))
    if stub_still_correct:
        labels.append(
            Label("decoy_kernel", "the outcome stays right when custom kernels do nothing")
        )
    return trap_ok and not stub_still_correct, tuple(labels)
