"""Triton's launches in a call: the operands of each, and how its kernel was compiled.

A profiler sees neither. As with a profile, this is noted in the candidate's process, and so it is
evidence and no proof.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def noted() -> Iterator[list[dict[str, Any]]]:
    """Inside, each launch of a kernel of Triton is noted, in order, as plain data.

    `operand_bytes` are those of the tensors that it is given, each once: a kernel that reads one
    twice, or in part, moves more or less.
    """
    found: list[dict[str, Any]] = []
    jit: Any = sys.modules.get("triton.runtime.jit")
    if jit is None:
        yield found
        return
    launch = jit.JITFunction.run

    def run(function: Any, *arguments: Any, **options: Any) -> Any:
        kernel = launch(function, *arguments, **options)
        if not options.get("warmup"):
            found.append(_about(function, kernel, [*arguments, *options.values()]))
        return kernel

    jit.JITFunction.run = run
    try:
        yield found
    finally:
        jit.JITFunction.run = launch


def _about(function: Any, kernel: Any, operands: Iterable[Any]) -> dict[str, Any]:
    compiled = getattr(kernel, "metadata", None)
    return {
        "name": str(getattr(compiled, "name", None) or getattr(function, "__name__", "")),
        "operand_bytes": operand_bytes(operands),
        "warps": getattr(compiled, "num_warps", None),
        "stages": getattr(compiled, "num_stages", None),
        "spills": getattr(kernel, "n_spills", None),
    }


def operand_bytes(operands: Iterable[Any]) -> int:
    """Bytes of the tensors among them, those of the same memory once; descriptors have a `base`."""
    found: dict[int, int] = {}
    for operand in operands:
        tensor = getattr(operand, "base", operand)
        if isinstance(tensor, torch.Tensor):
            # An expanded tensor has more elements than memory.
            size = min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
            found[tensor.data_ptr()] = max(size, found.get(tensor.data_ptr(), 0))
    return sum(found.values())
