"""Kernels of a large program are compiled side by side, before the first of them is launched.

Triton compiles a kernel when it is first launched, one after the other, which takes a network of
hundreds of kernels minutes. So a model is called once with nothing launched, Triton's compilations
are noted, and several threads do that; its cache has it then. Nothing that such a call computes is
of use, so model and module are made for it, and not called again.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from evolve.worker.base.dispatch import DispatchMode

KERNELS = 16  # functions in a program's text, roughly, for which a call in vain pays
_KERNEL = "@triton.jit"
_TUNER = "autotune"  # would measure nothing, and might keep the result
_CORES_EACH = 4  # others compile too
_UNWRITTEN = ("empty", "empty_strided", "empty_like", "empty_permuted", "new_empty",
              "new_empty_strided")  # fmt: skip
_OF_VALUES = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique",
              "index", "_unsafe_index", "gather", "scatter", "embedding", "take", "multinomial",
              "_assert")  # fmt: skip


def is_worth_it(source: str) -> bool:
    """Whether a program has so many kernels, and none that tunes itself."""
    return source.count(_KERNEL) >= KERNELS and _TUNER not in source


class _Later(Future[Any]):
    """The result of a compilation; a request before the end does not wait."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            raise RuntimeError("it has not been compiled yet")
        return super().result(timeout)

    def follow(self, done: "Future[Any]") -> None:
        """Take over another's."""
        if error := done.exception():
            self.set_exception(error)
        else:
            self.set_result(done.result())


class Noted(Executor):
    """The compilations of a call; `is_all` once the call has ended."""

    def __init__(self) -> None:
        self._waiting: list[tuple[_Later, Callable[[], object]]] = []
        self.is_all = False

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Note it."""
        later = _Later()
        self._waiting.append((later, partial(function, *arguments, **options)))
        return later

    def compile(self) -> None:
        """Compile it all; failures come again in the first call, which reports them."""
        threads = max(2, len(os.sched_getaffinity(0)) // _CORES_EACH)
        try:
            with ThreadPoolExecutor(threads) as pool:
                for later, work in self._waiting:
                    pool.submit(work).add_done_callback(later.follow)
        except RuntimeError:  # no thread can be started
            self.is_all = False


def noted(call: Callable[[], object]) -> Noted:
    """Triton's compilations for a call, as far as it comes; nothing for an old Triton."""
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
    """Kernels' outputs are zero.

    A computation that depends on values ends the call: a loop could wait for one that never comes,
    and zero need not be an index, which on a GPU would cost the process its device.
    """

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        name = operation.overloadpacket.__name__
        if name.startswith(_OF_VALUES):
            raise RuntimeError("nothing has been computed")
        outcome = operation(*arguments, **options)
        if _is_on(outcome, cpu=True) and any(_is_on(one, cpu=False) for one in arguments):
            raise RuntimeError("nothing has been computed that could be read")
        return outcome.zero_() if name in _UNWRITTEN else outcome


def _is_on(value: object, *, cpu: bool) -> bool:
    return isinstance(value, torch.Tensor) and (value.device.type == "cpu") is cpu
