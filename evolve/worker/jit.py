"""Kernels that Triton compiles when they are first launched: meanwhile others may be timed."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def compiled_aside(tell: Callable[[], None], come_back: Callable[[], None]) -> Iterator[None]:
    """Inside, `tell` is called before Triton compiles a kernel, and `come_back` after it.

    Not for what other threads than this compile, since both talk to the referee, nor while a CUDA
    graph is recorded, where the device cannot be waited for.
    """
    compiler: Any = sys.modules.get("triton.compiler")
    if compiler is None:
        yield
        return
    thread, compile_now = threading.get_ident(), compiler.compile
    is_over = False

    def compile_aside(*arguments: Any, **options: Any) -> Any:
        # A kernel keeps the function that it was first compiled by.
        if is_over or threading.get_ident() != thread or _is_recording():
            return compile_now(*arguments, **options)
        tell()
        try:
            return compile_now(*arguments, **options)
        finally:
            come_back()

    compiler.compile = compile_aside
    try:
        yield
    finally:
        compiler.compile = compile_now
        is_over = True


def _is_recording() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
