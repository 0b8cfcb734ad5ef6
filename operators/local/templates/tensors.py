"""Shapes and strides of the tensors that output code of Inductor names."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evolve.core.compiled import Argument
from operators.local.inductor.reading import Statement

FLOAT32 = "torch.float32"
HALF = ("ieee",)
"""The precisions of `tl.dot` for float16 and bfloat16, which it multiplies unchanged."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a call takes or gives.

    Attributes:
        pointer: an expression whose first element is the tensor's.
        shape: of the tensor, stride in elements; both may differ from those of `pointer`.
        dtype: as in `torch.float32`; empty if the code does not say.
    """

    pointer: ast.expr
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str = ""

    def fits_32_bits(self, first: int = 0) -> bool:
        """Whether elements that differ in axes from `first` on lie less than 2**31 apart."""
        places = zip(self.shape[first:], self.stride[first:], strict=True)
        return sum((size - 1) * stride for size, stride in places) < 2**31


def pointer_of(tensor: Tensor | None) -> ast.expr:
    """Its first element, or None if there is no tensor."""
    return tensor.pointer if tensor else ast.Constant(None)


class Tensors:
    """Facts about the tensors of output code.

    Args:
        arguments: of the code.
        statements: of the code. Every name is assigned once.
    """

    def __init__(self, arguments: Iterable[Argument], statements: Iterable[Statement]) -> None:
        self._known: dict[str, Tensor] = {}
        self._same: dict[str, str] = {}  # the older of two names
        self._storages: dict[str, str] = {}
        for argument in arguments:
            name = ast.Name(argument.name, ast.Load())
            self._known[argument.name] = Tensor(
                name, argument.shape, argument.stride, argument.dtype
            )
        for statement in statements:
            self._learn(statement.node)

    def __getitem__(self, node: ast.expr) -> Tensor | None:
        """The tensor that an expression stands for; None if its shape is not known."""
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[base, *place]):
                shape, stride, offset = map(ast.literal_eval, place)
                known = self[base]
                pointer = known.pointer if known and offset == 0 else node
                return Tensor(pointer, shape, stride, known.dtype if known else "")
        return None

    def storage(self, node: ast.expr) -> str:
        """The oldest name for the memory that an expression stands for, in any shape."""
        match node:
            case ast.Name(id=name):
                return self._storages.get(name, name)
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[base, *_]):
                return self.storage(base)
        return ast.unparse(node)

    @property
    def dtype(self) -> str:
        """Of the first tensor of floating point; that of most tasks if there is none."""
        dtypes = (tensor.dtype for tensor in self._known.values())
        return next((dtype for dtype in dtypes if "float" in dtype), FLOAT32)

    def _learn(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id=function), args=[size, step, dtype]),
            ) if function.startswith("empty_strided_"):
                self._add(name, size, step, ast.unparse(dtype))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Name):
                    self._same[name] = value.id
                if is_view(value):
                    self._storages[name] = self.storage(value)
                if (tensor := self[value]) is not None:
                    own = ast.Name(name, ast.Load())
                    self._known[name] = Tensor(own, tensor.shape, tensor.stride, tensor.dtype)
            case ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="assert_size_stride"),
                    args=[ast.Name(id=name), size, step, *_],
                )
            ):
                known = self._known.get(name)
                self._add(name, size, step, known.dtype if known else "")

    def _add(self, name: str, size: ast.expr, step: ast.expr, dtype: str) -> None:
        shape, stride = ast.literal_eval(size), ast.literal_eval(step)
        self._known[name] = Tensor(ast.Name(name, ast.Load()), shape, stride, dtype)
        if (other := self._same.get(name)) and other not in self._known:
            self._known[other] = Tensor(ast.Name(other, ast.Load()), shape, stride, dtype)


def is_view(node: ast.expr) -> bool:
    """Whether an expression is another tensor, as it is or by another shape."""
    match node:
        case ast.Name() | ast.Call(func=ast.Name(id="reinterpret_tensor")):
            return True
    return False


def merged(tensor: Tensor, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and stride with ones and zeros in front, so that there are so many dimensions."""
    missing = dimensions - len(tensor.shape)
    return (1,) * missing + tensor.shape, (0,) * missing + tensor.stride


def keywords(call: ast.Call) -> Mapping[str, object]:
    """Arguments of a call that are literals, by name."""
    found = {}
    for keyword in call.keywords:
        if keyword.arg:
            try:
                found[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                continue
    return found
