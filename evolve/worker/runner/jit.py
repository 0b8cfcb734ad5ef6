"""Kernels that Triton compiles when they are first launched: meanwhile others may be timed."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Compiling:
    """Triton's compilations in this process, and their listeners.

    A kernel keeps the function that it was first compiled by, so there is one for good.
    """

    def __init__(self) -> None:
        self._compile: Callable[..., Any] | None = None  # Triton's own
        self._thread = 0, 0  # the process and its thread that talk to the judge
        self._talk: tuple[Callable[[], None], Callable[[], None]] | None = None

    @contextmanager
    def told(self, tell: Callable[[], None], come_back: Callable[[], None]) -> Iterator[None]:
        """Inside, `tell` is called before a kernel is compiled, and `come_back` after it.

        Not for compilations of other threads or children, since both talk to the judge, nor while a
        CUDA graph is recorded, if the device cannot be waited for.
        """
        self._install()
        self._thread = _this_thread()
        self._talk = tell, come_back
        try:
            yield
        finally:
            self._talk = None

    def _install(self) -> None:
        """Stand in for Triton's function, where kernels and where PyTorch's compiler find it."""
        compiler: Any = sys.modules.get("triton.compiler")
        if compiler is not None and self._compile is None:
            self._compile = compiler.compile
            compiler.compile = self._compile_aside
            package: Any = sys.modules["triton"]
            package.compile = self._compile_aside

    def _compile_aside(self, *arguments: Any, **options: Any) -> Any:
        assert self._compile is not None
        if self._thread != _this_thread() or self._talk is None or _is_recording():
            return self._compile(*arguments, **options)
        talk, self._talk = self._talk, None  # nested compilations are part of it
        tell, come_back = talk
        tell()
        try:
            return self._compile(*arguments, **options)
        finally:
            come_back()
            self._talk = talk


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _is_recording() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
