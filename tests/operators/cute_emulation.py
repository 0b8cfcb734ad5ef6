"""The functions of CuTe DSL that programs of this project use, as those of torch on the CPU.

Threads of a block run together: a number of a thread is a tensor of all of them. Blocks run one
after another. Functions with branches are replaced: `load`, `store`, `where` and `reduce_lanes`.
"""

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_block: list[int] = [0, 0, 0]
_threads: list[int] = [0]


class _Kind:
    """A type of numbers, which converts."""

    width = 32

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value).to(self.dtype)


_KINDS = {
    "Float32": _Kind(torch.float32),
    "Float16": _Kind(torch.float16),
    "BFloat16": _Kind(torch.bfloat16),
    "Int32": _Kind(torch.int32),
    "Int64": _Kind(torch.int64),
    "Boolean": _Kind(torch.bool),
}
_OF = {kind.dtype: kind for kind in _KINDS.values()}


class _Tensor:
    """A tensor with a type of these."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape = data, tuple(data.shape)
        self.element_type = _OF[data.dtype]
        self.iterator, self.layout = self, None

    def __getitem__(self, at: Any) -> Any:
        return self if None in (at if isinstance(at, tuple) else ()) else self.data[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.data[at] = value


def load(pointer: _Tensor, at: Any, inside: Any, other: Any) -> torch.Tensor:
    """An element for each thread."""
    places, chosen = torch.broadcast_tensors(torch.as_tensor(at), torch.as_tensor(inside))
    assert not places[chosen].numel() or int(places[chosen].max()) < pointer.data.numel()
    found = pointer.data[torch.where(chosen, places, 0).long()]
    found = found.float() if found.dtype in (torch.float16, torch.bfloat16) else found
    return torch.where(chosen, found, torch.as_tensor(other, dtype=found.dtype))


def store(pointer: _Tensor, at: Any, value: Any, inside: Any) -> None:
    """An element of each thread."""
    given = (torch.as_tensor(one) for one in (at, value, inside))
    places, what, chosen = torch.broadcast_tensors(*given)
    pointer.data[places[chosen].long()] = what[chosen].to(pointer.data.dtype)


def where(condition: Any, one: Any, other: Any) -> torch.Tensor:
    """As the language's `select_`."""
    return torch.where(torch.as_tensor(condition), one, other)


def reduce_lanes(
    value: Any, combine: Callable[..., Any], rows: int, lanes: int, in_rows: bool
) -> Any:
    """One number of all lanes, in each of them."""
    values = torch.as_tensor(value).broadcast_to((_threads[0],))
    by_row = values.view(rows, lanes) if in_rows else values.view(lanes, rows).T
    found = by_row[:, 0]
    for lane in range(1, lanes):
        found = combine(found, by_row[:, lane])
    spread = found[:, None].broadcast_to((rows, lanes))
    return (spread if in_rows else spread.T).reshape(-1)


class _Launch:
    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.run, self.arguments = function, arguments

    def launch(self, grid: list[Any], block: list[int], stream: Any) -> None:
        _threads[0] = block[0]
        for place in itertools.product(*(range(int(size)) for size in grid)):
            _block[:] = place
            self.run(*self.arguments)


def _compile(function: Callable[..., None], *_: Any, **__: Any) -> Callable[..., None]:
    names = {"load": load, "store": store, "where": where, "reduce_lanes": reduce_lanes}

    def launch(*given: Any) -> None:
        own = function.__globals__  # type: ignore[attr-defined]
        own.update({name: one for name, one in names.items() if name in own})
        tensors = (_Tensor(one) if isinstance(one, torch.Tensor) else one for one in given)
        function(*tensors, None)

    return launch


class _Mma:
    """A product of whole tiles; each thread has every so manieth element of the sum."""

    def get_slice(self, _: Any) -> "_Mma":
        return self

    def partition_A(self, tile: _Tensor) -> _Tensor:
        return tile

    partition_B = partition_C = partition_A

    def make_fragment_A(self, tile: _Tensor) -> _Tensor:
        return _Tensor(tile.data.clone())

    make_fragment_B = make_fragment_A


class _Spots:
    """Rows and columns of the elements of a sum."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        self.width = sizes[1]
        self.shape = (sizes[0] * sizes[1] // _threads[0], _threads[0])

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = number * _threads[0] + torch.arange(_threads[0])
        return at // self.width, at % self.width


class _Sums(_Tensor):
    def fill(self, value: float) -> None:
        self.data.fill_(value)


def _gemm(_: Any, total: _Sums, a: _Tensor, b: _Tensor, __: Any) -> None:
    total.data += (a.data.float() @ b.data.float().T).reshape(total.data.shape)


def _size(tensor: _Tensor, mode: Any = None) -> int:
    return 1 if mode else tensor.shape[0]


class _Allocator:
    def allocate_tensor(self, kind: _Kind, sizes: tuple[int, int], _: int) -> _Tensor:
        return _Tensor(torch.zeros(sizes, dtype=kind.dtype))


def _module(name: str, **contents: Any) -> Any:
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    return module


def prepare() -> None:
    """Let `from cutlass import cute` find these functions."""
    functions = ("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sin", "cos")
    math = types.SimpleNamespace(**{name: getattr(torch, name) for name in functions})
    cute = _module(
        "cutlass.cute",
        jit=lambda function: function,
        kernel=lambda function: lambda *given: _Launch(function, given),
        compile=_compile,
        math=math,
        arch=types.SimpleNamespace(
            block_idx=lambda: tuple(_block),
            thread_idx=lambda: (torch.arange(_threads[0]), 0, 0),
            sync_threads=lambda: None,
        ),
        Tensor=_Tensor,
        TiledMma=_Mma,
        sym_int=int,
        make_layout=lambda sizes, stride=None: sizes,
        make_tiled_mma=lambda *_: _Mma(),
        make_identity_tensor=_Spots,
        make_rmem_tensor=lambda shape, kind: _Sums(torch.zeros(shape, dtype=kind.dtype)),
        make_tensor=lambda tile, _: _Tensor(tile.data.T),
        select=lambda *_: None,
        autovec_copy=lambda source, target: target.data.copy_(source.data),
        gemm=_gemm,
        size=_size,
    )
    _module(
        "cutlass",
        cute=cute,
        Constexpr=Any,
        const_expr=lambda value: value,
        range_constexpr=range,
        min=lambda a, b: min(a, b),
        **_KINDS,
    )
    warp = types.SimpleNamespace(MmaF16BF16Op=lambda *_: None)
    _module("cutlass.cute.nvgpu", warp=warp)
    nothing = {name: lambda *_, **__: None for name in ("make_fake_stream",)}
    _module("cutlass.cute.runtime", make_fake_compact_tensor=lambda *_: None, **nothing)
    _module("cutlass.memory", SmemAllocator=_Allocator)
    _module("cuda")
    _module("cuda.bindings")
    driver = _module("cuda.bindings.driver", CUstream=None)
    sys.modules["cuda"].bindings = sys.modules["cuda.bindings"]  # type: ignore[attr-defined]
    sys.modules["cuda.bindings"].driver = driver  # type: ignore[attr-defined]
