"""The meaning of names of a written program: each names one thing, and no two share a name."""

import ast
import builtins
from collections.abc import Container

from operators.local.inductor.reading import NotConvertible
from operators.local.inductor.reference import Reference, bound


def free_name(wanted: str, taken: Container[str], suffix: str = "") -> str:
    """The first name that is not taken: `sum` with the suffix, else `sum_2` with it, and so on."""
    number, name = 1, f"{wanted}{suffix}"
    while name in taken:
        number += 1
        name = f"{wanted}_{number}{suffix}"
    return name


def require_good_names(source: str, reference: Reference, task: str) -> None:
    """Leftovers of Inductor's run time would fail later: raise now.

    Names bound in the reference's own text must keep their meaning, and so must our names. Names
    that nothing binds in the task's text belong to code that is never run (KernelBench 3/29).

    Raises:
        NotConvertible: the program reads a name that nothing binds, or a name stands for something
            of the reference and for one of our definitions.
    """
    tree = ast.parse(source)
    if unknown := _unknown(tree) - _unbound(ast.parse(task)):
        raise NotConvertible(f"it uses {', '.join(sorted(unknown))}")
    if twice := _bound_twice(tree, reference):
        raise NotConvertible(f"the reference uses {', '.join(sorted(twice))} for something else")


def _unbound(task: ast.Module) -> set[str]:
    """Names that a task reads and nothing binds, as far as its text tells."""
    imported = (node for node in ast.walk(task) if isinstance(node, ast.ImportFrom))
    takes_all = any(alias.name == "*" for node in imported for alias in node.names)
    return set() if takes_all else _unknown(task)


def _unknown(tree: ast.Module) -> set[str]:
    read: set[str] = set()
    known = set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name):
                known.add(name)
            case ast.arg(arg=name):
                known.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known |= {(a.asname or a.name).split(".")[0] for a in names}
    return read - known


def _bound_twice(tree: ast.Module, reference: Reference) -> set[str]:
    """Of the reference's text, which stands there unchanged, no statement is generated."""
    names = reference.bound | frozenset(reference.names)
    texts = (*reference.imports, *reference.definitions)
    theirs = {ast.unparse(ast.parse(text)) for text in texts}
    twice: set[str] = set()
    for node in tree.body:
        found = bound(node) & names
        if found and ast.unparse(node) not in theirs:
            twice |= found
    return twice
