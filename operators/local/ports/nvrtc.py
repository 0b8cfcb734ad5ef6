"""Programs of the compiler, which are Triton, in CUDA C++ for NVRTC.

Kernels become one text in C++, compiled when the program is imported, with tunables as parameters
of templates. A launch has as many threads as in Triton.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolve.core.compiled import Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.layout import MAX_LINE, call_text
from operators.local.ports import nvrtc_product
from operators.local.ports.base import Port
from operators.local.ports.cuda_kernel import TYPES, CudaKernel
from operators.local.ports.library import with_library
from operators.local.ports.programs import (
    PARAGRAPH,
    KernelCall,
    Kernels,
    after_tunables,
    counts,
    kernels_of,
    lanes,
    option,
    with_lines,
    without_triton,
)

_TEXT = "CUDA_SOURCE"
_COMPILER = "torch.cuda._compile_kernel"
_WIDTH = MAX_LINE - 8


def rewritten(source: str, compiled: Compiled) -> str:
    """The program with its kernels in CUDA C++.

    Raises:
        NotConvertible: a kernel has an operation, a type or a shape that is not known here.
    """
    found = kernels_of(source, compiled)
    kernels = dict(_kernels(found))
    made = _named(found.calls, kernels)
    texts = {
        one.node.lineno: (one.node, _launch_text(one, *made[one.node.lineno]))
        for one in found.calls
    }
    return _with_text(with_lines(source, texts), kernels, made)


def _kernels(found: Kernels) -> Iterator[tuple[str, CudaKernel | str]]:
    """By name; of products of matrices the text."""
    for name, kinds in found.types.items():
        if nvrtc_product.is_product(name):
            kind, *others = {*kinds.values()}
            if others:
                raise NotConvertible("a product of several types")
            yield name, nvrtc_product.text(TYPES[kind])
        else:
            yield name, CudaKernel(found.functions[name], kinds)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """An instance of a kernel in a program.

    Attributes:
        kernel: its name in C++.
        before: statements that choose sizes for it.
        parameters: of the template, expressions.
        threads: of a block, an expression.
        arguments: of the launch.
        shared: bytes of dynamic shared memory, an expression; empty for none.
    """

    kernel: str
    before: tuple[str, ...]
    parameters: tuple[str, ...]
    threads: str
    arguments: tuple[str, ...]
    shared: str = ""

    @property
    def named(self) -> str:
        """The instance, with fields of a format string."""
        fields = [each if each.isdigit() else f"{{{each}}}" for each in self.parameters]
        return f"{self.kernel}<{', '.join(fields)}>"


def _instance(call: KernelCall, kernel: CudaKernel | str) -> _Compiled:
    if isinstance(kernel, CudaKernel):
        return _of_blocks(call, kernel)
    return _Compiled(
        call.kernel,
        (),
        tuple(nvrtc_product.template(call.options, call.arguments)),
        f"32 * {ast.unparse(call.options['num_warps'])}",
        tuple(nvrtc_product.arguments(call.arguments)),
        nvrtc_product.shared_memory(call.options),
    )


def _of_blocks(call: KernelCall, kernel: CudaKernel) -> _Compiled:
    rows, columns = (option(call, name) for name in kernel.block[:2])
    warps = ast.unparse(call.options["num_warps"])
    width = f"{call.kernel.removesuffix('_kernel').upper()}_LANES"
    values = [width if name == "LANES" else option(call, name) for name in kernel.parameters]
    return _Compiled(
        call.kernel,
        (f"{width} = {lanes(rows, columns, warps)}  # threads of a row",),
        tuple(values),
        width if rows == "1" else f"{rows} * {width}",
        tuple(map(ast.unparse, call.arguments)),
    )


# --- text -----------------------------------------------------------------------------------------


def _launch_text(call: KernelCall, name: str, instance: _Compiled) -> str:
    numbers = counts(call) + ["1"] * (3 - len(counts(call)))
    arguments = [
        f"grid=({', '.join(numbers)})",
        f"block=({instance.threads}, 1, 1)",
        f"args=[{', '.join(instance.arguments)}]",
        *([f"shared_mem={_bytes(name)}"] if instance.shared else []),
    ]
    return call_text(f"{name}(", arguments, _WIDTH)


def _bytes(name: str) -> str:
    return f"{name.upper()}_BYTES"


def _named(
    calls: list[KernelCall], kernels: Mapping[str, CudaKernel | str]
) -> dict[int, tuple[str, _Compiled]]:
    """Instances with the names of their objects, by lines of launches; equal ones share one."""
    found: dict[int, tuple[str, _Compiled]] = {}
    names: dict[str, str] = {}
    for call in calls:
        instance = _instance(call, kernels[call.kernel])
        if instance.named not in names:
            number = sum(name.startswith(f"{call.kernel}<") for name in names) + 1
            names[instance.named] = call.kernel + (f"_{number}" if number > 1 else "")
        found[call.node.lineno] = names[instance.named], instance
    return found


def _with_text(
    source: str,
    kernels: Mapping[str, CudaKernel | str],
    made: Mapping[int, tuple[str, _Compiled]],
) -> str:
    """The source with C++ and its compilation in the place of functions of Triton."""
    texts = [each.text if isinstance(each, CudaKernel) else each for each in kernels.values()]
    text = f'{_TEXT} = r"""\n{with_library(PARAGRAPH.join(texts))}\n"""'
    compiled = dict.fromkeys(line for pair in made.values() for line in _compilation(*pair))
    return after_tunables(without_triton(source), text, "\n".join(compiled))


def _compilation(name: str, instance: _Compiled) -> Iterator[str]:
    yield from instance.before
    yield call_text(f"{name} = {_COMPILER}(", [_TEXT, f'f"{instance.named}"'], MAX_LINE)
    if instance.shared:
        yield f"{_bytes(name)} = {instance.shared}"
        yield f"{name}.set_shared_memory_config({_bytes(name)})"


NVRTC = Port("nvrtc", nvrtc_product.products, rewritten, products_on=range(8, 100))
