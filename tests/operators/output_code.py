"""Output code as Inductor writes it, of tensors on `meta`, and programs that are made of it."""

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from evolve.core.compiled import Argument, ArgumentKind, Compiled, CompiledCase
from evolve.core.program import TunableValue
from evolve.core.source import tunables
from operators.local.inductor import PRECISIONS, convert
from operators.local.templates import Products

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, {names}):
        ...
"""


def compiled(
    arguments: dict[str, torch.Tensor], lines: Sequence[str], out: str, kernels: str = ""
) -> Compiled:
    """As if Inductor had written the lines for a reference with these arguments."""
    body = "".join(f"    {line}\n" for line in lines)
    start = f"{kernels}\ndef call(args):\n    {', '.join(arguments)}, = args\n"
    code = f"{start}{body}    return ({out}, )\n"
    taken = tuple(
        Argument(name, ArgumentKind.INPUT, name, tuple(t.shape), t.stride(), str(t.dtype))
        for name, t in arguments.items()
    )
    case = CompiledCase("main", True, code, taken, (), "output[0]")
    return Compiled("default", "2.13", (case,))


def program(
    arguments: dict[str, torch.Tensor],
    lines: Sequence[str],
    out: str = "buf0",
    kernels: str = "",
    **options: Any,
) -> str:
    """Options are those of `Products`."""
    task = TASK.format(names=", ".join(arguments))
    found = compiled(arguments, lines, out, kernels)
    return convert(task, "t", found, Products(fused=bool(kernels), **options))


def instance(source: str, seed: object, precisions: Sequence[str] = PRECISIONS) -> str:
    """One with small blocks, drawn at random; Triton's interpreter takes no precision but ieee."""
    rng = random.Random(str(seed))
    chosen: dict[str, TunableValue] = {}
    for tunable in tunables.parse(source):
        if set(tunable.choices) <= set(PRECISIONS):
            chosen[tunable.name] = rng.choice(precisions)
        elif isinstance(tunable.choices[0], str):
            known = [c for c in tunable.choices if c in precisions]
            chosen[tunable.name] = rng.choice(known or tunable.choices[:1])
        else:
            small = [c for c in tunable.choices if int(c) <= 64] or tunable.choices[:1]
            chosen[tunable.name] = rng.choice(small[-2:])
    return tunables.render(source, chosen)


def quick(space: tunables.Space, rng: random.Random) -> dict[str, TunableValue]:
    """An assignment, of a few the one with the largest blocks: the interpreter likes them."""
    few = [space.sample(rng) for _ in range(4)]
    return max(few, key=lambda each: prod(int(v) for n, v in each.items() if "BLOCK" in n))


def room(name: str, tensor: torch.Tensor) -> str:
    shape, stride = tuple(tensor.shape), tensor.stride()
    return f"{name} = empty_strided_cpu({shape}, {stride}, {tensor.dtype})"


class Case(dict[str, Any]):
    """Its "source" is written when it is asked for: to collect tests writes none."""

    def __init__(self, written: Callable[[], str], **facts: Any) -> None:
        super().__init__(facts)
        self._written = written

    def __or__(self, others: Mapping[str, Any]) -> "Case":
        return Case(lambda: self["source"], **{**self, **others})

    def __missing__(self, key: str) -> str:
        if key != "source":
            raise KeyError(key)
        return self.setdefault(key, self._written())


def case(
    name: str,
    arguments: dict[str, torch.Tensor],
    lines: Sequence[str],
    reference: str,
    out: str = "buf0",
    kernels: str = "",
    **options: Any,
):
    def written() -> str:
        source = program(arguments, lines, out, kernels, **options)
        assert "_kernel[" in source
        assert "torch.ops" not in source
        return source

    views = [(max(extent(t), 1), (tuple(t.shape), t.stride())) for t in arguments.values()]
    return Case(
        written,
        name=name,
        names=list(arguments),
        tensors=views,
        dtypes=[str(tensor.dtype) for tensor in arguments.values()],
        reference=reference,
    )


def extent(tensor: torch.Tensor) -> int:
    return 1 + sum(
        (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def matrix(*shape: int, turned: bool = False) -> torch.Tensor:
    tensor = torch.empty(shape, device="meta")
    if turned:
        return torch.empty((*shape[:-2], shape[-1], shape[-2]), device="meta").transpose(-1, -2)
    return tensor


def image(*shape: int, last: bool = False) -> torch.Tensor:
    """Of a batch of images; with `last`, channels lie side by side."""
    tensor = torch.empty(shape, device="meta")
    if last:
        tensor = tensor.to(memory_format=torch.channels_last)
    return tensor


POINTWISE = """
triton_poi_fused_{name}_0 = async_compile.triton('triton_poi_fused_{name}_0', '''
import triton

@triton_heuristics.pointwise(
    size_hints={{'x': {size}}}, triton_meta={{}}, inductor_meta={{'grid_type': 'Grid1D'}}
)
@triton.jit
def triton_poi_fused_{name}_0({parameters}, xnumel, XBLOCK : tl.constexpr):
    xnumel = {size}
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
{body}''', device_str='cuda')
"""


def pointwise(name: str, size: int, parameters: str, body: Sequence[str]) -> str:
    """A kernel as Inductor writes it; its launch is `triton_poi_fused_{name}_0.run(...)`."""
    text = "".join(f"    {line}\n" for line in body)
    return POINTWISE.format(name=name, size=size, parameters=parameters, body=text)


RELU = ["tmp0 = tl.load(in_out_ptr0 + (x0), {mask})", "tmp1 = tl.full([1], 0.0, tl.float32)"]
RELU += ["tmp2 = triton_helpers.maximum(tmp0, tmp1)", "tl.store(in_out_ptr0 + (x0), tmp2, {mask})"]


def relu(size: int, mask: str = "xmask") -> str:
    lines = ["x0 = xindex", *(line.format(mask=mask) for line in RELU)]
    return pointwise("relu", size, "in_out_ptr0", lines)


ADD = ["tmp0 = tl.load(in_out_ptr0 + (x0), xmask)", "tmp1 = tl.load(in_ptr0 + (x0), xmask)"]
ADD += ["tmp2 = tmp0 + tmp1", "tl.store(in_out_ptr0 + (x0), tmp2, xmask)"]


def add(size: int) -> str:
    return pointwise("add", size, "in_out_ptr0, in_ptr0", ["x0 = xindex", *ADD])
