"""Making a kernel's body readable: nothing dead, literals where they are used, fewer names.

Inductor gives every value a name of its own. A value that is used once, in the statement that
follows or by a name that is assigned once, can stand where it is used.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from operators.local.inductor.layout import MAX_LINE

_WIDTH = MAX_LINE - 4  # of lines of a kernel
_PURE = (ast.BinOp, ast.UnaryOp, ast.Compare)
_PURE_CALLS = frozenset(
    (
        *("abs", "broadcast_to", "cos", "erf", "exp", "exp2", "expm1", "floor", "log", "log1p"),
        *("log2", "maximum", "minimum", "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn", "tanh"),
        *("to", "where"),
    )
)


def tidy(body: list[ast.stmt]) -> list[ast.stmt]:
    """The body of a function with the same effect, shorter."""
    body = _until_stable(body, _without_dead)
    body = _until_stable(body, _with_literals)
    body = _until_stable(body, lambda body: _fold(body, _loads(body), _stores(body)))
    return _until_stable(body, _without_dead)


def _until_stable(
    body: list[ast.stmt], step: Callable[[list[ast.stmt]], list[ast.stmt]]
) -> list[ast.stmt]:
    text = _text(body)
    while True:
        body = step(body)
        before, text = text, _text(body)
        if text == before:
            return body


def _text(body: Iterable[ast.stmt]) -> str:
    return "\n".join(ast.unparse(node) for node in body)


def _loads(body: Iterable[ast.AST]) -> Counter[str]:
    return Counter(
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _stores(body: Iterable[ast.AST]) -> Counter[str]:
    return Counter(
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


# --- unread definitions ---------------------------------------------------------------------------


def _without_dead(body: list[ast.stmt]) -> list[ast.stmt]:
    read = set(_loads(body))
    return list(_alive(body, read))


def _alive(body: list[ast.stmt], read: set[str]) -> Iterator[ast.stmt]:
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name not in read:
                continue
            case ast.AnnAssign(target=ast.Name(id=name)) if name not in read:
                continue
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.For():
                if inner := list(_alive(node.body, read)):
                    yield _with_body(node, inner)
            case _:
                yield node


def _with_body(loop: ast.For, body: list[ast.stmt]) -> ast.For:
    return ast.copy_location(ast.For(loop.target, loop.iter, body, loop.orelse), loop)


# --- literals -------------------------------------------------------------------------------------


def _with_literals(body: list[ast.stmt]) -> list[ast.stmt]:
    """`x * 0.5` for `half = tl.full([1, 1], 0.5, tl.float32)` and `x * half`."""
    stores = _stores(body)
    values: dict[str, ast.expr] = {}
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(
                        func=ast.Attribute(attr="full"),
                        args=[shape, value, ast.Attribute(attr="float32")],
                    ),
                ) if stores[name] == 1 and _is_one(shape) and _is_number(value):
                    values[name] = value
    uses = _Literals(values)
    uses.count(body)
    return [uses.visit(statement) for statement in body] if uses.fitting else body


def _is_one(shape: ast.expr) -> bool:
    return isinstance(shape, ast.List) and all(ast.unparse(size) == "1" for size in shape.elts)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


class _Literals(ast.NodeTransformer):
    """Replaces names of constants that only meet other operands."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values
        self.fitting: set[str] = set()

    def count(self, body: Iterable[ast.stmt]) -> None:
        """Take note of the constants that every place which reads them can take as a literal."""
        good = Counter[str]()
        for node in (node for statement in body for node in ast.walk(statement)):
            operands = _operands(node)
            names = [n.id for n in operands if isinstance(n, ast.Name) and n.id in self._values]
            if len(names) == 1 and len(operands) > 1:
                good[names[0]] += 1
        loads = _loads(body)
        self.fitting |= {name for name in self._values if good[name] == loads[name] > 0}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.fitting:
            return self._values[node.id]
        return node


def _operands(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(func=ast.Name(id="maximum" | "minimum"), args=[left, right]):
            return [left, right]
    return []


# --- names that are used once ---------------------------------------------------------------------


def _fold(body: list[ast.stmt], loads: Counter[str], stores: Counter[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    waiting = list(body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.For):
            node = _with_body(node, _fold(node.body, loads, stores))
        name, value = _assigned(node)
        if value is not None and loads[name] == 1 and stores[name] == 1 and _is_pure(value):
            at = _place(name, value, waiting, stores)
            if at is not None:
                folded = _Substitution(name, value).visit(_copy(waiting[at]))
                if len(ast.unparse(folded)) <= _WIDTH:
                    waiting[at] = folded
                    continue
        kept.append(node)
    return kept


def _assigned(node: ast.stmt) -> tuple[str, ast.expr | None]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
    return "", None


def _place(name: str, value: ast.expr, later: list[ast.stmt], stores: Counter[str]) -> int | None:
    """Which later statement of the same block reads the name, if the value is still the same."""
    for at, node in enumerate(later):
        if name in _loads([node]):
            fixed = all(stores[other] <= 1 for other in _loads([value]))
            return at if not isinstance(node, ast.For) and (at == 0 or fixed) else None
    return None


def _is_pure(value: ast.expr) -> bool:
    """Whether it may be computed later; a load may not, for a store may come before."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else (node.func.id if isinstance(node.func, ast.Name) else "")
            )
            if called not in _PURE_CALLS:
                return False
    return isinstance(value, (*_PURE, ast.Call, ast.Name, ast.Subscript))


def _copy(node: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(node)).body[0]


class _Substitution(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self._name = name
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self._name and isinstance(node.ctx, ast.Load):
            return self._value
        return node
