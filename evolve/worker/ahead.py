"""Kernels of a large program are compiled side by side, before the first of them is launched.

Triton compiles a kernel when it is first launched, one after the other, which takes a network of
hundreds of kernels minutes. So a model is called once with nothing launched, what Triton would
compile is noted, and several threads do that; its cache has it then. Nothing that such a call
computes is of use, so model and module are made for it, and not called again.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import torch

from evolve.worker.dispatch import DispatchMode

KERNELS = 16  # functions in a program's text for which a call in vain pays
_KERNEL = "@triton.jit"
_CORES_EACH = 4  # others compile too
_ATEN = torch.ops.aten
_UNWRITTEN = {_ATEN.empty.memory_format, _ATEN.empty_strided.default, _ATEN.empty_like.default,
              _ATEN.new_empty.default, _ATEN.new_empty_strided.default}  # fmt: skip
_VALUES = {_ATEN._local_scalar_dense.default, _ATEN.nonzero.default, _ATEN.masked_select.default,
           _ATEN.equal.default, _ATEN.is_nonzero.default}  # fmt: skip


def is_worth_it(source: str) -> bool:
    """Whether a program has so many kernels."""
    return source.count(_KERNEL) >= KERNELS


class Noted(Executor):
    """What a call would have had compiled; `is_all` where the call came to its end."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []
        self.is_all = False

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Note it; the answer never comes."""
        self._waiting.append(lambda: function(*arguments, **options))
        return Future()

    def compile(self) -> None:
        """Compile it all; what fails will do so again where it counts."""
        with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) // _CORES_EACH)) as pool:
            for done in [pool.submit(work) for work in self._waiting]:
                done.exception()


def noted(call: Callable[[], object]) -> Noted:
    """What Triton would compile for a call; as far as it comes, and nothing for an old Triton."""
    found = Noted()
    try:
        from triton.runtime._async_compile import AsyncCompileMode
        from triton.runtime.jit import JITFunction
    except ImportError:
        return found
    mode = AsyncCompileMode(found)
    with contextlib.suppress(Exception), mode, _nothing_launched(JITFunction):
        try:
            with torch.no_grad(), _Unwritten():
                call()
            found.is_all = True
        finally:
            mode.raw_futures.clear()  # which would be waited for
    return found


@contextlib.contextmanager
def _nothing_launched(kernels: Any) -> Iterator[None]:
    run = kernels.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return run(self, *arguments, grid=grid, warmup=True, **options)

    kernels.run = compile_only
    try:
        yield
    finally:
        kernels.run = run


class _Unwritten(DispatchMode):
    """What kernels would have written is zero, which any index may be.

    What asks for values ends the call: it could wait for one that never comes.
    """

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation in _VALUES:
            raise RuntimeError("nothing has been computed")
        outcome = operation(*arguments, **options)
        return outcome.zero_() if operation in _UNWRITTEN else outcome
