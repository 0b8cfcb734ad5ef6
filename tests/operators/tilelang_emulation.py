"""The functions of TileLang that programs of this project use, as those of torch on the CPU.

Blocks of a grid run one after another. A parallel loop runs once, with all its indices as tensors;
a statement under a condition is one whose elements stay as they are where that is false.
"""

import ast
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_place: list[int] = []
_grid: list[tuple[int, ...]] = []


def _kind(name: str) -> torch.dtype:
    return getattr(torch, name)


def _outside(dtype: torch.dtype) -> torch.Tensor:
    number = torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max
    return torch.tensor(number, dtype=dtype)


class Declared(NamedTuple):
    """A tensor as a kernel declares it: TMA takes no stride of 0, and a batch of one has any."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    kind: str

    def fits(self, tensor: torch.Tensor) -> bool:
        pairs = zip(tensor.shape, tensor.stride(), self.stride, strict=True)
        alike = all(size == 1 or given in (declared, 0) for size, given, declared in pairs)
        return tensor.shape == self.shape and alike


class Memory:
    """A tensor of a launch; reads outside give NaN, or a large number, which a mask has to hide."""

    def __init__(self, tensor: torch.Tensor, declared: Declared | None) -> None:
        assert declared is None or declared.fits(tensor), (declared, tensor.shape, tensor.stride())
        self.tensor, self.declared = tensor, declared

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, tuple) and all(isinstance(one, int) for one in at):
            assert self.declared is None or all(self.declared.stride), self.declared
            return _Region(self.tensor, at)
        places = [torch.as_tensor(one).long() for one in (at if isinstance(at, tuple) else (at,))]
        pairs = [*zip(places, self.tensor.shape, strict=True)]
        found = self.tensor[tuple(place.clamp(0, size - 1) for place, size in pairs)]
        for place, size in pairs:
            found = torch.where((place < 0) | (place >= size), _outside(found.dtype), found)
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        self.store(at, value, torch.tensor(True))

    def store(self, at: Any, value: Any, inside: Any) -> None:
        places = torch.as_tensor(at)
        shape = torch.broadcast_shapes(places.shape, inside.shape, torch.as_tensor(value).shape)
        given = (torch.as_tensor(one).broadcast_to(shape) for one in (inside, places, value))
        chosen, where, what = given
        assert not where[chosen].numel() or int(where[chosen].max()) < self.tensor.numel()
        self.tensor[where[chosen].long()] = what[chosen].to(self.tensor.dtype)


class _Region:
    """A part of a matrix of a batch, from a corner on."""

    def __init__(self, tensor: torch.Tensor, corner: tuple[int, ...]) -> None:
        matrix, row, column = corner
        self.part = tensor[matrix, row:, column:]


class _Fragment:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, at: Any) -> torch.Tensor:
        return self.tensor[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.tensor[at] = torch.as_tensor(value).to(self.tensor.dtype)

    def store(self, at: Any, value: Any, inside: Any) -> None:
        self[at] = torch.where(torch.as_tensor(inside), torch.as_tensor(value), self[at])


class _Kernel:
    def __init__(self, *grid: int, threads: int) -> None:
        _grid.append(grid)

    def __enter__(self) -> Any:
        return _place[0] if len(_place) == 1 else tuple(_place)

    def __exit__(self, *_: Any) -> None:
        pass


def _parallel(*sizes: int) -> Iterator[Any]:
    if len(sizes) == 1:
        yield torch.arange(sizes[0])
    else:
        yield torch.arange(sizes[0])[:, None], torch.arange(sizes[1])[None, :]


def _copy(source: Any, target: Any) -> None:
    if isinstance(source, _Region):
        target.tensor.zero_()
        rows, columns = (
            min(pair) for pair in zip(source.part.shape, target.tensor.shape, strict=True)
        )
        target.tensor[:rows, :columns] = source.part[:rows, :columns]
    else:
        rows, columns = (
            min(pair) for pair in zip(source.tensor.shape, target.part.shape, strict=True)
        )
        target.part[:rows, :columns] = source.tensor[:rows, :columns].to(target.part.dtype)


def _gemm(a: _Fragment, b: _Fragment, total: _Fragment) -> None:
    total.tensor += a.tensor.float() @ b.tensor.float()


def _chosen(condition: Any, one: Any, other: Any) -> torch.Tensor:
    return torch.where(torch.as_tensor(condition), torch.as_tensor(one), torch.as_tensor(other))


def _reduced(reduce: Callable[..., torch.Tensor]) -> Callable[..., None]:
    def run(source: _Fragment, target: _Fragment, dim: int) -> None:
        target.tensor.copy_(reduce(source.tensor, dim))

    return run


def _most(value: torch.Tensor, dim: int) -> torch.Tensor:
    """Without NaN, as TileLang's."""
    return value.nan_to_num(-torch.inf, torch.inf, -torch.inf).amax(dim)


def _jit(function: Any = None, **_: Any) -> Any:
    """A function that gives `main`, which runs for each block of its grid."""
    if function is None:
        return _jit

    def made(*constants: Any) -> Callable[..., None]:
        main = function(*constants)

        def launch(*given: torch.Tensor) -> None:
            declared = list(main.__annotations__.values())
            tensors = [*map(Memory, given, declared)]
            axes = 1
            while True:  # how many axes there are, the first block says
                _place[:] = [0] * axes
                _grid.clear()
                try:
                    main(*tensors)
                    break
                except (TypeError, ValueError):
                    if axes == len(_grid[0]):
                        raise
                    axes = len(_grid[0])
            for place in [*itertools.product(*map(range, _grid[0]))][1:]:
                _place[:] = place
                main(*tensors)

        return launch

    return made


class _Conditions(ast.NodeTransformer):
    """`if inside: x[at] = value` as a call."""

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        match node.body:
            case [ast.Assign(targets=[ast.Subscript(value=to, slice=at)], value=value)]:
                text = f"{ast.unparse(to)}.store({ast.unparse(at)}, {ast.unparse(value)}, INSIDE)"
            case [ast.AugAssign(target=ast.Subscript(value=to, slice=at) as old, value=value)]:
                new = f"{ast.unparse(old)} + {ast.unparse(value)}"
                text = f"{ast.unparse(to)}.store(({ast.unparse(at)}), {new}, INSIDE)"
            case _:
                return node
        text = text.replace("INSIDE", ast.unparse(node.test))
        return ast.parse(text.replace(".store(i, j,", ".store((i, j),")).body[0]


def adapted(source: str) -> str:
    """A program whose conditions hold for some elements and not for others."""
    return ast.unparse(_Conditions().visit(ast.parse(source)))


def prepare() -> None:
    """Let `import tilelang` find these functions."""
    T: Any = types.ModuleType("tilelang.language")
    for name in ("abs", "exp", "log", "sqrt", "rsqrt", "erf", "tanh", "floor", "isnan"):
        function = getattr(torch, name)
        setattr(T, name, lambda x, of=function: of(torch.as_tensor(x)))
    T.StridedTensor = Declared
    for name in ("Tensor", "dynamic", "use_swizzle"):
        setattr(T, name, lambda *_, **__: None)
    T.Kernel, T.Parallel, T.serial = _Kernel, _parallel, range
    T.Pipelined = lambda count, num_stages: range(count)
    T.prim_func, T.ceildiv = (lambda function: function), (lambda a, b: -(-a // b))
    made = lambda shape, kind: _Fragment(torch.full(shape, 7, dtype=_kind(kind)))  # noqa: E731
    T.alloc_fragment = T.alloc_shared = made
    T.clear = lambda fragment: fragment.tensor.zero_()
    T.copy, T.gemm, T.if_then_else = _copy, _gemm, _chosen
    T.reduce_sum, T.reduce_max = _reduced(torch.sum), _reduced(_most)
    T.max = lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b))
    T.cast = lambda value, kind: torch.as_tensor(value).to(_kind(kind))
    T.Not = lambda value: torch.logical_not(torch.as_tensor(value))
    T.infinity = lambda _: torch.inf
    package: Any = types.ModuleType("tilelang")
    package.language, package.jit = T, _jit
    package.PassConfigKey = types.SimpleNamespace(TL_DISABLE_SAFE_MEMORY_ACCESS="")
    sys.modules |= {"tilelang": package, "tilelang.language": T}
