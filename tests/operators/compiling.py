"""Launches of programs, compiled for a GPU that need not be there."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.compiler import compile as triton_compile
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.jit import JITFunction

from operators.local.tuning import Limits
from tests.operators.inductor_running import imported

HOPPER = GPUTarget("cuda", 90, 32)
_TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
Launch = tuple[JITFunction, Mapping[str, Any]]


def launches(source: str, inputs: Sequence[torch.Tensor]) -> list[Launch]:
    """Kernels that a program launches, with what they are given by name; inputs are on `meta`."""
    found: list[Launch] = []

    def noted(kernel: JITFunction, _grid: object) -> Any:
        def launch(*given: object, **named: object) -> None:
            names = [parameter.name for parameter in kernel.params]
            found.append((kernel, dict(zip(names, given, strict=False)) | named))

        return launch

    usual = JITFunction.__getitem__
    JITFunction.__getitem__ = noted
    try:
        with torch.device("meta"):
            imported(source).ModelNew()(*inputs)
    finally:
        JITFunction.__getitem__ = usual
    return found


def compiled(launch: Launch) -> Mapping[str, Any]:
    """What Triton makes of a launch, by stage of its compiler: `ttgir`, `ptx` and others.

    It fails if a block would need more shared memory than there is.
    """
    made = compiled_kernel(launch)
    shared, room = made.metadata.shared, Limits().shared_memory
    assert shared <= room, f"{launch[0].__name__}: {shared} bytes of shared memory, {launch[1]}"
    return made.asm


def compiled_kernel(launch: Launch) -> CompiledKernel:
    """The same with what the kernel needs, `metadata`."""
    kernel, given = launch
    options = {name: given[name] for name in ("num_warps", "num_stages") if name in given}
    signature, constants, attributes = {}, {}, {}
    for at, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[(at,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = _TYPES[value.dtype]
            attributes[(at,)] = [["tt.divisibility", 16]]
        elif isinstance(value, TensorDescriptor):
            kind = _TYPES[value.base.dtype].removeprefix("*")
            signature[parameter.name] = f"tensordesc<{kind}{value.block_shape},{value.layout!r}>"
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
    kind = GluonASTSource if kernel.is_gluon() else ASTSource
    source = kind(kernel, signature, constants, attributes)
    return triton_compile(source, target=HOPPER, options=options)


def accesses(ttgir: str, *operations: str) -> Iterator[int]:
    """Of each access to a block of two axes: the one along which neighbouring threads have it."""
    layouts = dict(re.findall(r"^(#\w+) = #ttg\.blocked<.*order = \[(\d), \d\]", ttgir, re.M))
    for line in ttgir.splitlines():
        if any(operation in line for operation in operations):
            layout = re.search(r"tensor<\d+x\d+x!tt\.ptr<\w+>, (#\w+)>", line)
            if layout and layout[1] in layouts:
                yield int(layouts[layout[1]])


STORES = ("tt.store",)
LOADS = ("tt.load", "ttg.async_copy_global_to_local")
