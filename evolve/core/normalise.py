"""What two sources have in common that differ in layout, comments or tunable values only."""

import ast
from functools import lru_cache

from evolve.core import cpptext
from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.pytext import Edit, Module, apply, read, write_literal
from evolve.core.tunable_sites import Site, declaration, find_sites


def normalised_digest(source: str) -> str:
    """A digest that is equal for sources which are the same program to a searcher.

    Comments, docstrings and layout do not count, in Python or in C++ source that a module-level
    string holds. The value of a tunable does not count, its choices do. A source that does not
    parse, or that declares its tunables wrongly, is told apart by its text.
    """
    found = _normalised(source)
    if found is None:
        return framed_digest("unreadable", source)
    text, domains = found
    return framed_digest("normalised", text, domains)


def normalised_text(source: str) -> str:
    """What `normalised_digest` tells programs apart by, the choices of tunables left out."""
    found = _normalised(source)
    return source if found is None else found[0]


@lru_cache(maxsize=256)  # a template is asked about again for each of its instances
def _normalised(source: str) -> tuple[str, str] | None:
    """Text and domains of tunables; None where the source cannot be read."""
    try:
        module = read(source)
        sites = find_sites(module)
        bare = read(_without_values(module, sites))
        text = _normalised_python(apply(bare.source, _cpp_edits(bare)))
    except (UsageError, RecursionError):
        return None
    return text, canonical_json({site.name: sorted(map(repr, site.written)) for site in sites})


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


def _normalised_python(source: str) -> str:
    tree = ast.parse(source)
    tree.body = [statement for statement in tree.body if not isinstance(statement, ast.Pass)]
    _drop_docstrings(tree)
    return ast.unparse(tree)


def _drop_docstrings(scope: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
    """Of the scope and the functions and classes in it; statements only, which is what is quick."""
    scope.body = _without_docstring(scope.body)
    nested: list[ast.stmt] = list(scope.body)
    while nested:
        match nested.pop():
            case (ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef()) as inner:
                inner.body = _without_docstring(inner.body)
                nested += inner.body
            case statement:
                for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                    nested += getattr(statement, name, [])


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return [*rest] or [ast.Pass()]
    return body
