"""Other names for all that a module defines, so that several modules can stand in one file."""

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch

from evolve.core.source.pytext import Edit, Module, apply

_DEFINED = re.compile(r"(?:async\s+)?(?:def|class)\s+")
_FUTURE = "__future__"

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def defined(source: str) -> dict[str, str]:
    """Names that a module binds at its top level.

    Returns:
        By name the full name of what it imports under it, empty if it binds the name in any other
        way, or to several things.
    """
    found: dict[str, str] = {}
    for name, full in _bound(Module(source).tree.body):
        found[name] = full if found.get(name, full) == full else ""
    return found


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements bind in the scope that they stand in."""
    return {name for name, _ in _bound(nodes)}


def renamed(source: str, names: Mapping[str, str]) -> str:
    """The module with other names for some that it binds at its top level.

    Local names, parameters, attributes and keywords of the same spelling stay. Names in strings
    (`globals()["x"]`) are not seen.

    Args:
        source: a module.
        names: the new name by the present one.

    Raises:
        UsageError: the source is not valid Python.
    """
    module = Module(source)
    return apply(source, _edits(module, module.tree, frozenset(names), names))


def without_future(source: str) -> tuple[str, bool]:
    """The module without imports of future features, which stand first in a file; if it had any."""
    module = Module(source)
    found = [
        node
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and node.module == _FUTURE
    ]
    return apply(source, [Edit(*module.span(node), "") for node in found]), bool(found)


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that statements bind in their own scope, with the full name of an import."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, ""
                continue
            case ast.ClassDef(name=name):
                yield name, ""
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                yield from (
                    (part.target.id, "")
                    for part in ast.walk(node)
                    if isinstance(part, ast.NamedExpr)
                )
                continue
            case ast.Import(names=aliases):
                yield from (_imported(alias) for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                start = "." * level + (module or "")
                yield from ((a.asname or a.name, f"{start}.{a.name}") for a in aliases)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name, ""
        yield from _bound(ast.iter_child_nodes(node))


def _imported(alias: ast.alias) -> tuple[str, str]:
    """`import a.b` binds `a`."""
    root = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (root, root)


def _locals(node: Function | Comprehension) -> set[str]:
    """Names that belong to a function or a comprehension."""
    if isinstance(node, Comprehension):
        return bound_names(part.target for part in node.generators)
    arguments = node.args
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    more = (arguments.vararg, arguments.kwarg)
    names = {each.arg for each in (*given, *more) if each}
    if isinstance(node, ast.Lambda):
        return names
    names |= bound_names(node.body)
    caught = (each.name for each in ast.walk(node) if isinstance(each, ast.ExceptHandler))
    names |= {name for name in caught if name}
    return names - {name for each in _own(node.body) for name in each.names}


def _own(body: Iterable[ast.AST]) -> Iterator[ast.Global]:
    """The `global` statements of a function, without those of functions in it."""
    for node in body:
        if isinstance(node, ast.Global):
            yield node
        elif not isinstance(node, Function | ast.ClassDef):
            yield from _own(ast.iter_child_nodes(node))


def _edits(
    module: Module, node: ast.AST, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    """The changes below a node.

    Args:
        module: whose text is changed.
        node: not changed itself.
        seen: names that mean those of the module here.
        names: the new name by the present one.
    """
    for child in ast.iter_child_nodes(node):
        yield from _edit(child, module, seen, names)


@singledispatch
def _edit(
    node: ast.AST, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    yield from _edits(module, node, seen, names)


@_edit.register
def _(
    node: ast.Name, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    if node.id in seen:
        yield Edit(*module.span(node), names[node.id])


@_edit.register
def _(
    node: ast.Global, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    if seen & {*node.names}:
        said = ", ".join(names.get(name, name) for name in node.names)
        yield Edit(*module.span(node), f"global {said}")


@_edit.register
def _(
    node: ast.JoinedStr, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    """Places inside of it are not to be relied on before Python 3.12, so it is written anew."""
    changed = copy.deepcopy(node)
    found = [n for n in ast.walk(changed) if isinstance(n, ast.Name) and n.id in seen]
    for each in found:
        each.id = names[each.id]
    if found:
        yield Edit(*module.span(node), ast.unparse(changed))


@_edit.register
def _(
    node: ast.ClassDef, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    """Methods do not see the names of their class; its own statements see those bound before."""
    yield from _name_edit(node, module, seen, names)
    for outside in (*node.decorator_list, *node.bases, *node.keywords):
        yield from _edit(outside, module, seen, names)
    before = set[str]()
    for part in node.body:
        is_method = isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        own = set(_attributes(module, part))
        changes = _edit(part, module, seen if is_method else seen - before, names)
        yield from (edit for edit in changes if edit.start not in own)
        before |= bound_names([part])


def _attributes(module: Module, statement: ast.stmt) -> Iterator[int]:
    """Where a statement of a class names what it binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield _name_span(module, statement)[0]
        return
    for part in ast.walk(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield module.span(part)[0]


@_edit.register(ast.FunctionDef)
@_edit.register(ast.AsyncFunctionDef)
@_edit.register(ast.Lambda)
def _(
    node: Function, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    """Defaults, decorators and annotations belong to the scope outside."""
    if not isinstance(node, ast.Lambda):
        yield from _name_edit(node, module, seen, names)
        outside = [*node.decorator_list, *([node.returns] if node.returns else [])]
        for each in outside:
            yield from _edit(each, module, seen, names)
    yield from _edits(module, node.args, seen, names)
    inside = seen - _locals(node)
    for part in node.body if isinstance(node.body, list) else [node.body]:
        yield from _edit(part, module, inside, names)


@_edit.register(ast.ListComp)
@_edit.register(ast.SetComp)
@_edit.register(ast.DictComp)
@_edit.register(ast.GeneratorExp)
def _(
    node: Comprehension, module: Module, seen: frozenset[str], names: Mapping[str, str]
) -> Iterator[Edit]:
    first = node.generators[0].iter  # is computed outside
    yield from _edit(first, module, seen, names)
    inside = seen - _locals(node)
    for child in ast.iter_child_nodes(node):
        if child is not node.generators[0]:
            yield from _edit(child, module, inside, names)
    for part in (node.generators[0].target, *node.generators[0].ifs):
        yield from _edit(part, module, inside, names)


@_edit.register(ast.Import)
@_edit.register(ast.ImportFrom)
def _(
    node: ast.Import | ast.ImportFrom,
    module: Module,
    seen: frozenset[str],
    names: Mapping[str, str],
) -> Iterator[Edit]:
    for alias in node.names:
        bound = alias.asname or alias.name
        root, dot, _ = bound.partition(".")
        if dot and root in seen:  # `import a.b` cannot give `a` another name
            end = module.span(node)[1]
            yield Edit(end, end, f"; {names[root]} = {root}")
        elif bound in seen:
            span = module.span(alias)  # type: ignore[arg-type]  # it has the same places
            yield Edit(*span, f"{alias.name} as {names[bound]}")


def _name_edit(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    module: Module,
    seen: frozenset[str],
    names: Mapping[str, str],
) -> Iterator[Edit]:
    if node.name in seen:
        yield Edit(*_name_span(module, node), names[node.name])


def _name_span(
    module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> tuple[int, int]:
    start, end = module.span(node)
    word = _DEFINED.match(module.source, start, end)
    assert word is not None
    return word.end(), word.end() + len(node.name)
