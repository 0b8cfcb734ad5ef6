"""What statements at the top level of a module do besides binding names."""

import ast
import sys
from collections.abc import Iterable, Iterator

from evolve.core.source.scopes import bound_names

PACKAGE = "evolve"
OF_THE_JUDGE = frozenset(("SIZES", "PRECISION", "ACCUMULATION", "TIMING", "MODE", "NAN"))
"""Names that the judge reads in a task's file; a reference in another module needs none."""

_INPUTS = frozenset(("get_inputs", "get_init_inputs"))
_QUIET = sys.stdlib_module_names | {"torch", "numpy", PACKAGE}  # to import them does nothing else
_PURE = frozenset(
    (
        *("abs", "bool", "bytes", "complex", "dict", "enumerate", "float", "frozenset", "int"),
        *("isinstance", "len", "list", "max", "min", "pow", "range", "reversed", "round", "set"),
        *("sorted", "str", "sum", "tuple", "zip"),
    )
)
_DISPLAYS = ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp
_Compound = ast.If | ast.For | ast.While | ast.With | ast.Try


class TopLevelEffects:
    """The effects of a module's statements.

    Args:
        tree: of the module.
        set_by_cases: constants that a case may set: to compute them has no effect.
    """

    def __init__(self, tree: ast.Module, set_by_cases: Iterable[str]) -> None:
        self._set_by_cases = {*set_by_cases}
        statements = [part for node in tree.body for part in simple_statements(node)]
        self._defined = {name for node in tree.body for name in bound_names([node])}
        fresh = {name for node in statements for name in _fresh(node)}
        others = {name for node in statements for name in bound_names([node]) - {*_fresh(node)}}
        self._containers = fresh - others | OF_THE_JUDGE

    def has(self, node: ast.stmt) -> bool:
        """Whether a statement may do more than to bind names and to fill the module's containers.

        Those that fill a container are found by `changed_names`.
        """
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
            case ast.FunctionDef(name=name) if name in _INPUTS:
                return False
            case ast.FunctionDef(decorator_list=ways) | ast.ClassDef(decorator_list=ways):
                return bool(ways)
            case ast.Import() | ast.ImportFrom():
                return any(root not in _QUIET for root in roots(node))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                return False
            case ast.Delete() | ast.Expr(value=ast.Call(func=ast.Attribute())):
                return not written_names(node) <= self._containers
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._assigns_elsewhere(node)
            case _ if isinstance(node, _Compound):
                return self._compound_has(node)
        return True

    def _assigns_elsewhere(self, node: ast.stmt) -> bool:
        written = written_names(node)
        if not written <= self._containers:
            return True
        changed = written | bound_names([node])
        is_spared = changed <= OF_THE_JUDGE or bool(changed & self._set_by_cases)
        return self._calls(node) and not is_spared

    def _compound_has(self, node: ast.stmt) -> bool:
        inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
        inner += [part for each in getattr(node, "handlers", ()) for part in each.body]
        if any(self.has(part) for part in inner):
            return True
        written = set().union(*map(changed_names, simple_statements(node)))
        if written & OF_THE_JUDGE:
            return False
        bodies = ast.stmt | ast.ExceptHandler
        headers = (part for part in ast.iter_child_nodes(node) if not isinstance(part, bodies))
        return any(map(self._calls, headers))

    def _calls(self, node: ast.AST) -> bool:
        """Whether something is called that may have an effect."""
        calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
        return any(not self._is_pure(one.func) for one in calls)

    def _is_pure(self, function: ast.expr) -> bool:
        name = function.id if isinstance(function, ast.Name) else ""
        return name in _PURE and name not in self._defined


def changed_names(node: ast.stmt) -> set[str]:
    """Names that a statement binds, and those of the values that it writes into."""
    return bound_names([node]) | written_names(node)


def written_names(node: ast.stmt) -> set[str]:
    """Names of which a statement assigns or deletes attributes or items, or calls methods.

    A method is one that is called for its effect, as a statement: `SIZES.update(gpu=...)`. What has
    no name is `""`.
    """
    found = set()
    for simple in simple_statements(node):
        if isinstance(simple, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ast.walk(simple):
            if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(
                part.ctx, ast.Load
            ):
                found.add(_root(part))
        match simple:
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                found.add(_root(method))
    return found


def simple_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements in a compound one; itself if it is none."""
    if not isinstance(node, _Compound):
        yield node
        return
    for part in ast.iter_child_nodes(node):
        for inner in part.body if isinstance(part, ast.ExceptHandler) else [part]:
            if isinstance(inner, ast.stmt):
                yield from simple_statements(inner)


def roots(node: ast.stmt) -> Iterator[str]:
    """The packages that a statement imports from; empty for a relative import."""
    for part in ast.walk(node):
        match part:
            case ast.Import(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=module, level=level):
                yield "" if level else (module or "").partition(".")[0]
            case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(name))]):
                yield name.partition(".")[0]


def _root(node: ast.expr) -> str:
    """The name that an attribute, item or method's outcome is of."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _fresh(node: ast.stmt) -> list[str]:
    """The name that a statement binds to a container that it makes."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            pass
        case ast.AugAssign(target=ast.Name(id=name)):
            return [name]  # it stays what it is
        case _:
            return []
    is_made = isinstance(value, _DISPLAYS) or (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("dict", "list", "set")
    )
    return [name] if is_made else []
