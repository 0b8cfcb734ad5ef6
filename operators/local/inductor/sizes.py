"""Sizes of a program's launches as named constants of its module: an edit changes one in one place.

What a kernel documents of its argument `SHAPE` names its parts: `SHAPE is (rows, columns, depth)`
gives `MATMUL_ROWS`, `MATMUL_COLUMNS` and `MATMUL_DEPTH`. Other counts of elements in a grid are
called `NUMEL`; equal ones share a name.
"""

import ast
import copy
import re
from collections.abc import Mapping

from operators.local.inductor.kernels import Kernel
from operators.local.inductor.names import free_name

_FLAT = "NUMEL"
_FLAT_COMMENT = "elements of a launch; in kernels too, as `xnumel` and so on"
_SHAPE = "SHAPE"
_ROLES = re.compile(r"SHAPE is \(([^)]+)\)")
_OF_ELEMENTS = ("XBLOCK", "YBLOCK", "ZBLOCK")  # of the compiler's kernels
_BY_BLOCK = {"BLOCK_M": 0, "BLOCK_N": 1}  # which part of SHAPE a grid divides by it


class Sizes:
    """The constants of one program.

    Args:
        taken: names that the program has already.

    Attributes:
        values: of the constants, by name, in the order of their first use.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self.values: dict[str, int] = {}
        self._comments: dict[str, str] = {}
        self._known: dict[tuple[str, int], str] = {}

    @property
    def text(self) -> str:
        """The statements that define them; empty if there are none."""
        found = self.values.items()
        return "\n".join(f"{name} = {value}  # {self._comments[name]}" for name, value in found)

    def named(
        self, kernel: Kernel, grid: ast.expr, options: Mapping[str, ast.expr]
    ) -> tuple[ast.expr, dict[str, ast.expr]]:
        """A launch's grid and options by name, with names in the place of sizes."""
        prefix = next(
            (_prefix(name, value) for name, value in options.items() if _is_own(value)), ""
        )
        shape = self._shape(kernel, options.get(_SHAPE), prefix)
        written = dict(options)
        if shape:
            written[_SHAPE] = ast.Tuple([part for part, _ in shape], ast.Load())
        return _Counts(self, shape).visit(copy.deepcopy(grid)), written

    def name(self, wanted: str, value: int, comment: str) -> str:
        """The constant of that value which was wanted under this name; the first comment stays."""
        if (wanted, value) not in self._known:
            name = free_name(wanted, self._taken)
            self._taken.add(name)
            self._known[wanted, value] = name
            self.values[name] = value
            self._comments[name] = comment
        return self._known[wanted, value]

    def _shape(
        self, kernel: Kernel, shape: ast.expr | None, prefix: str
    ) -> list[tuple[ast.expr, int]]:
        """The parts of SHAPE as they are written, with their values; empty if there is none."""
        found = _ROLES.search(kernel.definitions.get(kernel.name, ""))
        if not isinstance(shape, ast.Tuple) or found is None:
            return []
        values = [part.value for part in shape.elts if isinstance(part, ast.Constant)]
        roles = [" ".join(role.split()) for role in found[1].split(",")]
        if len(values) != len(shape.elts) or len(roles) != len(values):
            return []
        return [
            (self._part(prefix, role, value, kernel.name), value)
            for role, value in zip(roles, values, strict=True)
            if isinstance(value, int)
        ]

    def _part(self, prefix: str, role: str, value: int, kernel: str) -> ast.expr:
        if value == 1:
            return ast.Constant(value)
        name = self.name(f"{prefix}{_identifier(role)}", value, f"{role}, in SHAPE of {kernel}")
        return ast.Name(name, ast.Load())


def _identifier(role: str) -> str:
    """`PARTS_DEPTH` of `depth of the parts`."""
    words = [word for word in re.findall(r"\w+", role.upper()) if word != "THE"]
    first, of, rest = " ".join(words).partition(" OF ")
    return "_".join((f"{rest} {first}" if of else first).split())


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id.isupper()


def _prefix(option: str, value: ast.expr) -> str:
    """`MATMUL_` of `BLOCK_M=MATMUL_BLOCK_M`."""
    return value.id.removesuffix(option.upper()) if isinstance(value, ast.Name) else ""


class _Counts(ast.NodeTransformer):
    """Names of the sizes that a grid divides into blocks."""

    def __init__(self, sizes: Sizes, shape: list[tuple[ast.expr, int]]) -> None:
        self._sizes, self._shape = sizes, shape

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="cdiv"),
                args=[ast.Constant(value=int() as value), ast.Name(id=block)],
            ):
                return ast.Call(node.func, [self._count(value, block), node.args[1]], [])
        self.generic_visit(node)
        return node

    def _count(self, value: int, block: str) -> ast.expr:
        place = next((at for end, at in _BY_BLOCK.items() if block.endswith(end)), None)
        if place is not None and place < len(self._shape) and self._shape[place][1] == value:
            return copy.deepcopy(self._shape[place][0])
        if value > 1 and block.endswith(_OF_ELEMENTS):
            return ast.Name(self._sizes.name(_FLAT, value, _FLAT_COMMENT), ast.Load())
        return ast.Constant(value)
