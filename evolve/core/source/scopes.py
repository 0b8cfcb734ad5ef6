"""Names that the statements of a scope bind, as Python's compiler finds them."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class _Bound(NamedTuple):
    """A name; the full name of the import that it stands for, or empty; whether it is assigned."""

    name: str
    full: str = ""
    is_assigned: bool = True


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements bind in the scope that they stand in, deleted ones too."""
    return {each.name for each in _bound(nodes)}


def assigned_names(nodes: Iterable[ast.AST]) -> set[str]:
    """`bound_names` without those of definitions and imports."""
    return {each.name for each in _bound(nodes) if each.is_assigned}


def defined_names(tree: ast.Module) -> dict[str, str]:
    """Names that a module has at its top level, those that a function declares `global` too.

    Returns:
        By name the full name of the import that it stands for, empty if the module binds the name
        in any other way, or to several things.
    """
    found: dict[str, str] = {}
    for name, full, _ in _bound(tree.body):
        found[name] = full if found.get(name, full) == full else ""
    declared = (node for node in ast.walk(tree) if isinstance(node, ast.Global))
    return found | {name: "" for node in declared for name in node.names}


def local_names(node: Function | Comprehension) -> set[str]:
    """Names that belong to a function or a comprehension."""
    if isinstance(node, Comprehension):
        return bound_names(part.target for part in node.generators)
    arguments = node.args
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    more = (arguments.vararg, arguments.kwarg)
    names = {each.arg for each in (*given, *more) if each}
    if isinstance(node, ast.Lambda):
        return names | bound_names([node.body])
    return (names | bound_names(node.body)) - global_names(node.body)


def global_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements declare `global`, without those in functions and classes below."""
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Global):
            found |= {*node.names}
        elif not isinstance(node, Function | ast.ClassDef):
            found |= global_names(ast.iter_child_nodes(node))
    return found


def parameters_of_type(node: ast.AST) -> Iterable[ast.AST]:
    """The `K` of `def f[K]()`: Python 3.12 has them."""
    found: Iterable[ast.AST] = getattr(node, "type_params", ())
    return found


def outside(node: Function | ast.ClassDef) -> list[ast.expr]:
    """What is computed before a function or class is there: decorators, defaults and arguments."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    if isinstance(node, ast.ClassDef):
        return [*decorators, *node.bases, *(each.value for each in node.keywords)]
    optional = (each for each in node.args.kw_defaults if each)
    return [*decorators, *node.args.defaults, *optional]


def _bound(nodes: Iterable[ast.AST]) -> Iterator[_Bound]:
    for node in nodes:
        yield from _bound_here(node)
        if isinstance(node, Function | ast.ClassDef):
            yield from _bound(outside(node))
        elif isinstance(node, Comprehension):
            yield from _bound(_walruses(node))
        else:
            yield from _bound(ast.iter_child_nodes(node))


def _bound_here(node: ast.AST) -> Iterator[_Bound]:
    """The names of a node itself."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield _Bound(name, is_assigned=False)
        case ast.Import(names=aliases):
            yield from (_imported(alias) for alias in aliases)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            start = "." * level + (module or "")
            named = (each for each in aliases if each.name != "*")
            yield from (_Bound(a.asname or a.name, f"{start}.{a.name}", False) for a in named)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield _Bound(name)
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield _Bound(name)


def _imported(alias: ast.alias) -> _Bound:
    """`import a.b` binds `a`."""
    root = alias.name.partition(".")[0]
    return _Bound(alias.asname or root, alias.name if alias.asname else root, is_assigned=False)


def _walruses(node: ast.AST) -> Iterator[ast.Name]:
    """Targets of assignment expressions in a comprehension: they belong to the scope around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.NamedExpr):
            yield child.target
        if not isinstance(child, ast.Lambda):
            yield from _walruses(child)
