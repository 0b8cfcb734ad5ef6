"""Triton's interpreter, with what our programs call that it lacks, and quicker."""

from functools import lru_cache
from typing import Any

import triton
import triton.language as tl
from triton.language.core import is_builtin
from triton.language.extra import libdevice
from triton.runtime import interpreter


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


def prepare() -> None:
    """For this process.

    Half of the interpreter's time goes into looking for integers that overflow, which sizes of
    tests are too small for, and a third into looking for what it has to replace in Triton, anew
    whenever a kernel calls a function.
    """
    libdevice.exp, libdevice.rsqrt, libdevice.tanh = exp, rsqrt, tanh
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
    interpreter._patch_builtin = _patch_builtin


def _patch_builtin(package: Any, builder: Any, scope: Any) -> None:
    for name in _builtins(package):
        if is_builtin(member := getattr(package, name)):
            interpreter._patch_attr(package, name, member, builder, scope)


@lru_cache
def _builtins(package: Any) -> list[str]:
    return [name for name in dir(package) if is_builtin(getattr(package, name, None))]
