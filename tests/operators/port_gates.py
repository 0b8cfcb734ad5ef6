"""Programs in languages of their own packages, compiled for an NVIDIA H100 that is not there.

A program runs on tensors of the CPU with launches replaced: each kernel is compiled as its first
launch would compile it. Run by an interpreter that has the package.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from tests.languages.programs import loaded
from tests.operators.ports_running import moved


@contextlib.contextmanager
def _stream() -> Iterator[None]:
    with mock.patch.object(torch.cuda, "current_stream", lambda: None):
        yield


def run(source: str, task: str) -> None:
    """The program's `forward` with its task's inputs."""
    reference: dict[str, Any] = {}
    exec(task, reference)
    module = loaded(source).ModelNew(*reference["get_init_inputs"]()).eval()
    with torch.no_grad(), _stream():
        module(*moved(reference["get_inputs"](), "cpu"))


def forward(source: str, tensors: list[torch.Tensor]) -> Callable[[], None]:
    """A call of the program's `forward` with these."""

    def run() -> None:
        with torch.no_grad(), _stream():
            loaded(source).ModelNew()(*tensors)

    return run


def cutile(given: Callable[[], None]) -> list[bytes]:
    """Machine code of each kernel that is launched meanwhile."""
    import cuda.tile as ct
    from cuda.tile import _cext
    from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature

    kinds = {getattr(torch, n): getattr(ct, n) for n in ("float32", "float16", "bfloat16", "int64")}

    def constraint(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return ArrayConstraint(
            kinds[value.dtype],
            value.dim(),
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            stride_constant=tuple(1 if stride == 1 else None for stride in value.stride()),
            stride_divisible_by=tuple(math.gcd(16, stride) for stride in value.stride()),
            shape_divisible_by=tuple(math.gcd(16, size) for size in value.shape),
            base_addr_divisible_by=16,
        )

    found: list[bytes] = []

    def launch(_: Any, __: Any, kernel: Any, arguments: tuple[Any, ...]) -> None:
        parameters = [constraint(each) for each in arguments]
        signature = KernelSignature(parameters, CallingConvention.cutile_python_v1())
        found.append(bytes(kernel._compile(signature, _cext.default_tile_context, (9, 0))[0]))

    with mock.patch.object(ct, "launch", launch), _stream():
        given()
    return found


def tilelang(given: Callable[[], None]) -> list[str]:
    """CUDA C++ of each kernel that is launched meanwhile; nvcc has compiled it."""
    from tilelang.jit.kernel import JITKernel

    found: list[str] = []

    def launch(kernel: Any, *_: Any) -> None:
        found.append(kernel.get_kernel_source())

    with mock.patch.object(JITKernel, "__call__", launch):
        given()
    return found


def cute(given: Callable[[], None]) -> list[str]:
    """PTX of each kernel that a program compiles when it is imported."""
    from cutlass.base_dsl.jit_executor import JitCompiledFunction

    found: list[str] = []
    make = JitCompiledFunction.__init__

    def noted(function: Any, *arguments: Any, **options: Any) -> None:
        make(function, *arguments, **options)
        found.append(function.__ptx__)

    with mock.patch.object(JitCompiledFunction, "__init__", noted):
        given()
    return found
