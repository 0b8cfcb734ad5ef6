"""A common form of sources that differ in layout, comments or tunable values only."""

import ast
from functools import lru_cache
from typing import Any

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.source import cpptext
from evolve.core.source.parsing import parse
from evolve.core.source.pytext import Edit, Module, apply, read, write_literal
from evolve.core.source.tunable_sites import Site, declaration, find_sites

_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Block = Any  # a statement, a handler of exceptions or a case: a node with statements


@lru_cache(maxsize=256)  # a template is asked about again for each of its instances
def normalised_digest(source: str) -> str:
    """A digest that is equal for sources which are the same program to a searcher.

    Comments, docstrings and layout do not count, in Python or in C++ source that a module-level
    string holds. The value of a tunable does not count, its choices do. A source that does not
    parse, or that declares its tunables wrongly, is told apart by its text.
    """
    found = _normalised(source)
    if found is None:
        return framed_digest("unreadable", source)
    tree, domains = found
    return framed_digest("normalised", _shape(tree), domains)


@lru_cache(maxsize=256)
def normalised_text(source: str) -> str:
    """The text by which `normalised_digest` compares programs, without the choices of tunables."""
    found = _normalised(source)
    try:
        return source if found is None else ast.unparse(_undocumented(found[0]))
    except (ValueError, RecursionError):  # an integer too long to be written, a tree too deep
        return source


def normalised_length(source: str) -> float:
    """Characters without comments and layout."""
    return float(len(normalised_text(source)))


def _normalised(source: str) -> tuple[ast.Module, str] | None:
    """A tree without values, not to be changed, and domains; None if it cannot be read."""
    try:
        module = read(source)
        sites = find_sites(module)
        bare = read(_without_values(module, sites))
        tree = _parsed(bare, _cpp_edits(bare))
    except (UsageError, RecursionError):
        return None
    return tree, canonical_json({site.name: sorted(map(repr, site.written)) for site in sites})


def _shape(tree: ast.Module) -> str:
    """A text that only trees have which differ in docstrings; quicker than `ast.unparse`."""
    said: list[str] = []
    stack: list[object] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):  # every third node
            said += ("Name", f"id={node.id!r}")
            continue
        if not isinstance(node, ast.AST):
            said.append(repr(node))  # a name, or None between nodes
            continue
        kind = type(node)
        said.append(kind.__name__)
        for name in kind._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                if name == "body" and isinstance(node, _SCOPES):
                    value = _bare(node, value)
                said.append(f"{name}*{len(value)}")
                stack += value
            elif isinstance(value, ast.AST):
                if not isinstance(value, ast.expr_context):
                    said.append(name)
                    stack.append(value)
            elif value is not None or kind is ast.Constant:
                said.append(f"{name}={hex(value) if type(value) is int else repr(value)}")
    return "\0".join(said)


def _without_values(module: Module, sites: list[Site]) -> str:
    """The text with one and the same value at every tunable's place, and no declaration."""
    edits = [
        Edit(site.start, site.end, "[]" if site.name.endswith(".config") else "0") for site in sites
    ]
    found = declaration(module)
    if found is not None:
        edits.append(Edit(*module.span(found.statement), "pass"))
    return apply(module.source, edits)


def _cpp_edits(module: Module) -> list[Edit]:
    return [
        Edit(text.start, text.end, write_literal(cpptext.normalise(text.value)))
        for text in module.texts
        if cpptext.is_code(text.value)
    ]


def _parsed(module: Module, edits: list[Edit]) -> ast.Module:
    """The tree of an edited module; its own, which is not to be changed, if there is no edit."""
    return parse(apply(module.source, edits)) if edits else module.tree


def _undocumented(module: ast.Module) -> ast.Module:
    """A copy without docstrings, and without `pass` at module level."""
    return ast.Module([_copied(each) for each in _bare(module, module.body)], [])


def _copied(statement: Block) -> Block:
    """The statement, a copy if it holds others, for the definitions among these."""
    blocks = {
        name: [_copied(each) for each in getattr(statement, name)]
        for name in ("body", "orelse", "finalbody", "handlers", "cases")
        if hasattr(statement, name)
    }
    if not blocks:
        return statement
    if isinstance(statement, _SCOPES):
        blocks["body"] = _bare(statement, blocks["body"])
    return type(statement)(**vars(statement) | blocks)


def _bare(scope: ast.AST, body: list[Block]) -> list[Block]:
    """The statements of a scope without its docstring; of a module also without `pass`."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            body = [*rest] or [ast.Pass()]
    if isinstance(scope, ast.Module):
        return [each for each in body if not isinstance(each, ast.Pass)]
    return body
