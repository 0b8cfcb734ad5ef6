"""Calls of vendors' libraries in output code, and the launches that may stand for them."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from evolve.core.compiled import convolution_key
from operators.local.inductor.products import PRECISIONS
from operators.local.inductor.reading import Statement
from operators.local.templates import whole
from operators.local.templates.launch import Launch
from operators.local.templates.operations import (
    attention,
    conv_packed,
    conv_wide,
    convolution,
    matmul,
    pooling,
)
from operators.local.templates.operations.matrices import How
from operators.local.templates.tensors import FLOAT32, HALF, Tensor, Tensors, keywords

_LIBRARY = "extern_kernels"
_MATRICES = {"mm": 3, "addmm": 4, "bmm": 3, "baddbmm": 4}  # tensors: operands and the result
_POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
_MAXIMA = ("max_pool2d_with_indices", "max_pool3d_with_indices")

_HALVES = {"torch.float16", "torch.bfloat16"}

SETTINGS = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
"""Of a convolution, in the order in which `aten::convolution` takes them."""

CALLS = (
    *(f"{_LIBRARY}.{name}(" for name in (*_MATRICES, "convolution")),
    *(f"torch.ops.aten.{name}.default(" for name in (*_POOLS, *_MAXIMA, *attention.CAUSAL_AT)),
    whole.PREFIX,
)
"""How calls begin that a template may do."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a statement: an output buffer, launches, and releases of arguments."""

    launches: tuple[Launch, ...] = ()
    before: tuple[ast.stmt, ...] = ()
    after: tuple[ast.stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How calls are replaced.

    Attributes:
        precisions: for float32, of those that `tl.dot` takes, the first to begin with.
        convolutions: the same for convolutions, if it is something else.
        exact: keys of convolutions for which it is not (`convolution_key`).
        how: Products are computed so, if they are large enough (`How`); or a function that makes
            their launches.
        multiprocessors: of the device.
    """

    precisions: Sequence[str] = PRECISIONS
    _: KW_ONLY
    convolutions: Sequence[str] = ()
    exact: Collection[str] = ()
    how: matmul.Way = How.PLAIN
    multiprocessors: int = 132


class Calls:
    """The calls of output code.

    Args:
        statements: of the code.
        tensors: of the code.
        settings: for their replacements.
        losses: numbers of the texts of losses, to which new ones are added.
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        tensors: Tensors,
        settings: Settings,
        losses: dict[str, int],
    ) -> None:
        self._settings = settings
        self._losses = losses
        self._tensors = tensors
        self._firsts = {
            name: out
            for statement in statements
            for name, call in _tuple(statement.node)
            if (out := _first(name, statements)) and self._several(out, call)
        }

    def replacement(self, node: ast.stmt) -> Replacement | None:
        """For a statement that a template can do; None if it is none, or of something else."""
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner)) as f) as call
            ):
                if owner == _LIBRARY and f.attr in _MATRICES:
                    return self._matrices(f.attr, call)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                name in self._firsts
            ):
                return self._several(self._firsts[name], call)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript()) if (
                name in self._firsts.values()
            ):
                return Replacement()
            case ast.Assign(targets=[ast.Name(id=out)], value=ast.Call() as call):
                return self._call(out, call)
            case ast.Delete(targets=targets):
                kept = [one for one in targets if ast.unparse(one) not in self._firsts]
                if len(kept) < len(targets):
                    return Replacement(before=(ast.Delete(kept),) if kept else ())
        return None

    def _call(self, name: str, call: ast.Call) -> Replacement | None:
        """For one that returns a tensor."""
        function = ast.unparse(call.func)
        if function == f"{_LIBRARY}.convolution":
            return self._convolution(name, call)
        if _aten(call) in _POOLS:
            return self._pool(name, call)
        return self._whole(name, call) if function.startswith(whole.PREFIX) else None

    def _arithmetic(self, *tensors: Tensor) -> Sequence[str]:
        """The precisions in which `tl.dot` may multiply these; nothing if none is exact enough."""
        return self._known(tensors, self._settings.precisions)

    def _known(self, tensors: Sequence[Tensor], precisions: Sequence[str]) -> Sequence[str]:
        dtypes = {tensor.dtype for tensor in tensors if tensor.dtype} or {self._tensors.dtype}
        if dtypes == {FLOAT32}:
            return precisions
        return HALF if len(dtypes) == 1 and dtypes <= _HALVES else ()

    def _several(self, out: str, call: ast.Call) -> Replacement | None:
        """For a call of whose results only the first is used."""
        return self._pool(out, call) or self._attention(out, call)

    def _matrices(self, name: str, call: ast.Call) -> Replacement | None:
        given = keywords(call)
        if given.get("alpha", 1) != 1 or given.get("beta", 1) != 1:
            return None
        targets = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
        operands = [self._tensors[node] for node in (*call.args, *targets)]
        known = [tensor for tensor in operands if tensor is not None]
        if len(known) < len(operands) or len(known) != _MATRICES[name]:
            return None
        *bias, a, b, out = known
        if not (precisions := self._arithmetic(*known)):
            return None
        added = bias[0] if bias else None
        about = precisions, self._settings.multiprocessors, self._settings.how
        return Replacement(matmul.launches(a, b, added, out, *about))

    def _convolution(self, name: str, call: ast.Call) -> Replacement | None:
        biases = [*call.args[2:], *(k.value for k in call.keywords if k.arg == "bias")]
        bias = next((self._tensors[node] for node in biases), None)
        has_bias = any(ast.unparse(node) != "None" for node in biases)
        x, weight = (self._tensors[node] for node in call.args[:2])
        out = self._result(name)
        if x is None or weight is None or out is None or (has_bias and bias is None):
            return None
        given: Mapping[str, Any] = keywords(call)
        key = convolution_key(x.shape, weight.shape, [given[name] for name in SETTINGS])
        usual = key in self._settings.exact or not self._settings.convolutions
        wanted = self._settings.precisions if usual else self._settings.convolutions
        precisions = self._known((x, weight), wanted)
        if not precisions or not weight.fits_32_bits():
            return None
        if not (x.fits_32_bits(1) and out.fits_32_bits(1)):
            return None
        read = convolution.Settings.read(given, len(weight.shape) - 2)
        multiprocessors, how = self._settings.multiprocessors, self._settings.how
        asked = convolution.Convolution(x, weight, bias, out, read, precisions, multiprocessors)
        cut = conv_wide.launches(asked) if how is How.WIDE else None
        if cut is None and isinstance(how, How) and how.is_packed:
            cut = conv_packed.launches(asked, how)
        return Replacement(cut or (convolution.launch(asked),), tuple(_room(name, out, x)))

    def _pool(self, name: str, call: ast.Call) -> Replacement | None:
        x, out = self._tensors[call.args[0]], self._result(name)
        if _aten(call) not in (*_POOLS, *_MAXIMA) or x is None or out is None:
            return None
        if not (self._arithmetic(x) and x.fits_32_bits(1) and out.fits_32_bits(1)):
            return None
        given = [ast.literal_eval(node) for node in call.args[1:]]
        return Replacement(
            (pooling.launch(_aten(call), x, out, given),), tuple(_room(name, out, x))
        )

    def _attention(self, name: str, call: ast.Call) -> Replacement | None:
        function, given = _aten(call), keywords(call)
        operands = [self._tensors[node] for node in call.args[:3]]
        out = self._result(name)
        known = [tensor for tensor in (*operands, out) if tensor is not None]
        if function not in attention.CAUSAL_AT or len(known) < 4:
            return None
        precisions = self._arithmetic(*known[:3])
        if not precisions or not all(tensor.fits_32_bits(2) for tensor in known):
            return None
        others = dict(enumerate(map(ast.unparse, call.args)))
        causal_at = attention.CAUSAL_AT[function]
        bias = others.get(attention.BIAS_AT.get(function, -1), "None")
        dropout = others.get(causal_at - 1, "0.0")
        if bias != "None" or given.get("attn_mask") or float(dropout) != 0:
            return None
        scale = given.get("scale")
        launch = attention.launch(
            *known,
            causal=others.get(causal_at) == "True",
            scale=float(str(scale)) if scale else None,
            precisions=precisions,
        )
        if launch is None:
            return None
        return Replacement((launch,), tuple(_room(name, known[3], known[0])))

    def _whole(self, name: str, call: ast.Call) -> Replacement | None:
        """For one of our operators, which nothing else implements."""
        out = self._result(name)
        found = None
        if out is not None:
            about = self._settings.precisions, self._settings.multiprocessors, self._losses
            found = whole.launches(call, out, self._tensors, *about)
        if out is None or found is None:
            return None
        like = self._tensors[call.args[0]]
        assert like is not None
        return Replacement(found, tuple(_room(name, out, like)))

    def _result(self, name: str) -> Tensor | None:
        return self._tensors[ast.Name(name, ast.Load())]


def _aten(call: ast.Call) -> str:
    """`avg_pool3d` for a call of `torch.ops.aten.avg_pool3d.default`."""
    name = ast.unparse(call.func)
    start, end = "torch.ops.aten.", ".default"
    return name[len(start) : -len(end)] if name.startswith(start) and name.endswith(end) else ""


def _tuple(node: ast.stmt) -> Iterator[tuple[str, ast.Call]]:
    """A call that returns several tensors, with the name for them."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
            if _aten(call) in (*_MAXIMA, *attention.CAUSAL_AT):
                yield name, call


def _first(several: str, statements: Iterable[Statement]) -> str:
    """The name of the first of several tensors; empty if anything else is made of them."""
    found: list[str] = []
    for node in (statement.node for statement in statements):
        match node:
            case ast.Delete():
                continue
            case ast.Assign(
                targets=[ast.Name(id=out)],
                value=ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=0)),
            ) if name == several:
                found.append(out)
            case _ if any(
                isinstance(n, ast.Name) and n.id == several and isinstance(n.ctx, ast.Load)
                for n in ast.walk(node)
            ):
                return ""
    return found[0] if len(found) == 1 else ""


def _room(name: str, out: Tensor, like: Tensor) -> Iterator[ast.stmt]:
    other = ast.unparse(like.pointer)
    place = f"device={other}.device, dtype={other}.dtype"
    yield from ast.parse(f"{name} = torch.empty_strided({out.shape}, {out.stride}, {place})").body
