"""What the names of a written program mean: each something, and no two things one name."""

import ast
import builtins
from collections.abc import Iterable

from operators.inductor.reading import NotConvertible
from operators.inductor.reference import Reference, bound


def require_known_names(source: str) -> None:
    """What is left of Inductor's run time would fail when it runs: better now.

    Raises:
        NotConvertible: the program reads a name that nothing binds.
    """
    tree = ast.parse(source)
    known = set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                known.add(name)
            case ast.arg(arg=name):
                known.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known |= {(a.asname or a.name).split(".")[0] for a in names}
    unknown = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in known
    }
    if unknown:
        raise NotConvertible(f"it uses {', '.join(sorted(unknown))}")


def require_unequal_names(source: str, reference: Reference) -> None:
    """What the reference's own text binds has to stay what it is, and so have our names.

    Raises:
        NotConvertible: a name stands for something of the reference and for something of ours.
    """
    theirs = reference.bound | frozenset(reference.names)
    ours = set().union(*(bound(node) for node in _own(ast.parse(source).body, reference)))
    if twice := ours & theirs:
        raise NotConvertible(f"the reference uses {', '.join(sorted(twice))} for something else")


def _own(body: Iterable[ast.stmt], reference: Reference) -> Iterable[ast.stmt]:
    """Statements of the module that are not the reference's, whose text stands there unchanged."""
    theirs = {ast.unparse(ast.parse(text)) for text in (*reference.imports, *reference.definitions)}
    return (node for node in body if ast.unparse(node) not in theirs)
