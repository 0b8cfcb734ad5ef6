"""Other names for all that a module defines, so that several modules can stand in one file."""

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.core.source.pytext import Edit, Module, apply
from evolve.core.source.scopes import (
    Comprehension,
    Definition,
    Function,
    bound_names,
    defined_names,
    global_names,
    local_names,
    outside,
    parameters_of_type,
)

_FUTURE = "__future__"


def defined(source: str) -> dict[str, str]:
    """The `defined_names` of a module's text.

    Raises:
        UsageError: the source is not valid Python.
    """
    return defined_names(Module(source).tree)


def renamed(source: str, names: Mapping[str, str]) -> str:
    """The module with other names for some that it binds at its top level.

    Local names, parameters, attributes and keywords of the same spelling stay. Names in strings
    (`globals()["x"]`) are not seen, unless the string is an annotation.

    Args:
        source: a module.
        names: the new name by the present one.

    Raises:
        UsageError: the source is not valid Python.
    """
    module, seen = Module(source), frozenset(names)
    return apply(source, _edits(module.tree, _Scope(module, names, seen, seen)))


def without_future(source: str) -> tuple[str, bool]:
    """The module without imports of future features, which stand first in a file; if it had any."""
    module = Module(source)
    found = [
        node
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and node.module == _FUTURE
    ]
    return apply(source, [Edit(*module.span(node), "") for node in found]), bool(found)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean at a place.

    Args:
        module: whose text is changed.
        names: the new name by the present one.
        seen: names that mean those of the module here.
        nested: those of them in functions below: they do not see the names of a class.
        own: names that a class binds, so that they are attributes.
        before: those of them that it has bound so far: until then it reads the module's.
    """

    module: Module
    names: Mapping[str, str]
    seen: frozenset[str]
    nested: frozenset[str]
    own: frozenset[str] = frozenset()
    before: set[str] = field(default_factory=set)

    def is_read(self, name: str) -> bool:
        """Whether a name that is read here is the module's."""
        return name in self.seen and name not in self.before

    def is_bound(self, name: str) -> bool:
        """Whether a name that is bound here is the module's; a class knows it from now on."""
        if name in self.own:
            self.before.add(name)
            return False
        return name in self.seen

    def without(self, local: set[str]) -> "_Scope":
        return replace(self, seen=self.seen - local, nested=self.nested - local)

    def function(self, local: set[str], declared: set[str]) -> "_Scope":
        inside = (self.nested - local) | (declared & self.names.keys())
        return _Scope(self.module, self.names, inside, inside)

    def class_body(self, body: Iterable[ast.stmt]) -> "_Scope":
        declared = global_names(body)
        own = bound_names(body) - declared
        seen = self.nested | ((own | declared) & self.names.keys())
        return _Scope(self.module, self.names, seen, self.nested, frozenset(own))


def _edits(node: ast.AST, scope: _Scope) -> Iterator[Edit]:
    """The changes below a node, which is not changed itself."""
    for child in ast.iter_child_nodes(node):
        yield from _edit(child, scope)


def _all_edits(nodes: Iterable[ast.AST | None], scope: _Scope) -> Iterator[Edit]:
    for node in nodes:
        if node:
            yield from _edit(node, scope)


@singledispatch
def _edit(node: ast.AST, scope: _Scope) -> Iterator[Edit]:
    """The changes of a node and below it, in the order in which Python computes its parts."""
    yield from _edits(node, scope)


@_edit.register
def _(node: ast.Name, scope: _Scope) -> Iterator[Edit]:
    is_load = isinstance(node.ctx, ast.Load)
    if scope.is_read(node.id) if is_load else scope.is_bound(node.id):
        yield Edit(*scope.module.span(node), scope.names[node.id])


@_edit.register
def _(node: ast.Global, scope: _Scope) -> Iterator[Edit]:
    if scope.names.keys() & {*node.names}:
        said = ", ".join(scope.names.get(name, name) for name in node.names)
        yield Edit(*scope.module.span(node), f"global {said}")


@_edit.register(ast.Assign)
@_edit.register(ast.AugAssign)
@_edit.register(ast.NamedExpr)
def _(node: ast.Assign | ast.AugAssign | ast.NamedExpr, scope: _Scope) -> Iterator[Edit]:
    yield from _edit(node.value, scope)
    yield from _all_edits(node.targets if isinstance(node, ast.Assign) else [node.target], scope)


@_edit.register
def _(node: ast.AnnAssign, scope: _Scope) -> Iterator[Edit]:
    yield from _annotation(node.annotation, scope)
    if node.value:
        yield from _edit(node.value, scope)
    binds = node.value or not isinstance(node.target, ast.Name)
    yield from _edit(node.target, scope if binds else replace(scope, before=set()))


@_edit.register(ast.For)
@_edit.register(ast.AsyncFor)
def _(node: ast.For | ast.AsyncFor, scope: _Scope) -> Iterator[Edit]:
    yield from _all_edits((node.iter, node.target, *node.body, *node.orelse), scope)


@_edit.register
def _(node: ast.ExceptHandler, scope: _Scope) -> Iterator[Edit]:
    yield from _all_edits([node.type], scope)
    if node.type and node.name:
        yield from _word(node.name, scope.module.span(node.type)[1], scope)
    yield from _all_edits(node.body, scope)


@_edit.register(ast.MatchAs)
@_edit.register(ast.MatchStar)
@_edit.register(ast.MatchMapping)
def _(node: ast.MatchAs | ast.MatchStar | ast.MatchMapping, scope: _Scope) -> Iterator[Edit]:
    yield from _edits(node, scope)
    name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.pattern)]
    if name:
        span = scope.module.span
        yield from _word(name, span(parts[-1])[1] if parts else span(node)[0], scope)


@_edit.register
def _(node: ast.JoinedStr, scope: _Scope) -> Iterator[Edit]:
    """Places inside of it are not to be relied on before Python 3.12, so it is written anew."""
    changed = copy.deepcopy(node)
    for part in ast.walk(changed):
        if isinstance(part, ast.FormattedValue) and not isinstance(part.value, ast.JoinedStr):
            text = _renamed_expression(ast.unparse(part.value), scope)
            (statement,) = parse(text).body
            assert isinstance(statement, ast.Expr)
            part.value = statement.value
    if ast.dump(changed) != ast.dump(node):
        yield Edit(*scope.module.span(node), ast.unparse(changed))


@_edit.register
def _(node: ast.ClassDef, scope: _Scope) -> Iterator[Edit]:
    yield from _all_edits(node.decorator_list, scope)
    typed = _typed(node, scope)
    yield from _all_edits((*parameters_of_type(node), *node.bases, *node.keywords), typed)
    yield from _all_edits(node.body, typed.class_body(node.body))
    yield from _name(node, scope)


@_edit.register(ast.FunctionDef)
@_edit.register(ast.AsyncFunctionDef)
@_edit.register(ast.Lambda)
def _(node: Function, scope: _Scope) -> Iterator[Edit]:
    """Defaults, decorators and annotations belong to the scope outside."""
    yield from _all_edits(outside(node), scope)
    typed = _typed(node, scope)
    yield from _all_edits(parameters_of_type(node), typed)
    yield from _all_edits((a for a in ast.walk(node.args) if isinstance(a, ast.arg)), typed)
    body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
    if not isinstance(node, ast.Lambda):
        yield from _annotation(node.returns, typed)
        yield from _name(node, scope)
    yield from _all_edits(body, typed.function(local_names(node), global_names(body)))


@_edit.register
def _(node: ast.arg, scope: _Scope) -> Iterator[Edit]:
    yield from _annotation(node.annotation, scope)


@_edit.register(ast.ListComp)
@_edit.register(ast.SetComp)
@_edit.register(ast.DictComp)
@_edit.register(ast.GeneratorExp)
def _(node: Comprehension, scope: _Scope) -> Iterator[Edit]:
    first = node.generators[0]
    yield from _edit(first.iter, scope)  # is computed outside
    inside = scope.function(local_names(node), set())
    others = (child for child in ast.iter_child_nodes(node) if child is not first)
    yield from _all_edits((first.target, *first.ifs, *others), inside)


@_edit.register(ast.Import)
@_edit.register(ast.ImportFrom)
def _(node: ast.Import | ast.ImportFrom, scope: _Scope) -> Iterator[Edit]:
    module, names = scope.module, scope.names
    for alias in node.names:
        bound = alias.asname or alias.name
        root, dot, _ = bound.partition(".")
        if not scope.is_bound(root):
            continue
        if dot:  # `import a.b` cannot give `a` another name
            end = module.span(node)[1]
            yield Edit(end, end, f"; {names[root]} = {root}")
        else:
            yield Edit(*module.span(alias), f"{alias.name} as {names[bound]}")


def _typed(node: ast.AST, scope: _Scope) -> _Scope:
    """The scope of a definition's type parameters."""
    return scope.without({str(each.name) for each in parameters_of_type(node)})  # type: ignore[attr-defined]


def _annotation(node: ast.expr | None, scope: _Scope) -> Iterator[Edit]:
    """Text in quotation marks is an annotation too: `typing.get_type_hints` computes it."""
    match node:
        case ast.Constant(value=str(text)):
            try:
                said = _renamed_expression(text, scope)
            except UsageError:
                return  # any text may stand there
            if said != text:
                yield Edit(*scope.module.span(node), repr(said))
        case ast.expr():
            yield from _edit(node, scope)


def _renamed_expression(text: str, scope: _Scope) -> str:
    module = Module(text)
    return apply(text, _edits(module.tree, replace(scope, module=module)))


def _name(node: Definition, scope: _Scope) -> Iterator[Edit]:
    yield from _word(node.name, scope.module.span(node)[0], scope)


def _word(name: str, start: int, scope: _Scope) -> Iterator[Edit]:
    """The change of a name that is bound without a node of its own: the first from there on.

    Only keywords and punctuation stand before it.
    """
    if not scope.is_bound(name):
        return
    found = re.compile(rf"\b{name}\b").search(scope.module.source, start)
    if found is None:
        raise UsageError(f"name {name!r} is spelt otherwise in the source; write it as Python does")
    yield Edit(*found.span(), scope.names[name])
