"""The numbers that the judge goes by, and their digest, which is part of its version.

They are read from the text of the worker's modules, so that a constant counts from the moment it is
written, and those of a device that is not here count too. Numbers within the body of a function
have no name and are not among them: a change of them, or of the code's behaviour, is counted by
hand in `JUDGE_VERSION`.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from evolve.core.digest import framed_digest
from evolve.core.source.parsing import parse

PACKAGE = Path(__file__).resolve().parents[2]
ROOMS = (
    *("base", "build", "correctness", "devices", "evidence", "ipc", "judge", "processes"),
    *("reference", "runner", "sandbox", "session", "timing"),
)
"""Packages of the worker whose constants may change a verdict or a time: all but `service`."""


@functools.lru_cache
def rules_digest(package: Path = PACKAGE) -> str:
    """Digest of every rule's name and value; comments, order and layout do not count."""
    found = rules(package)
    return framed_digest(*(f"{name}={found[name]}" for name in sorted(found)))


def rules(package: Path = PACKAGE) -> dict[str, str]:
    """Named numbers of the judge: constants of modules and classes, and defaults of parameters.

    Args:
        package: the folder of the package `evolve`.

    Returns:
        The expression by dotted name, as `worker.correctness.tolerance.KAPPA`.
    """
    files = [path for room in ROOMS for path in sorted((package / "worker" / room).rglob("*.py"))]
    found: dict[str, str] = {}
    for path in [*files, package / "core" / "measurement.py"]:
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        tree = parse(path.read_text(encoding="utf-8"), str(path))
        found |= {f"{module}.{name}": ast.unparse(value) for name, value in _constants(tree)}
    return found


def _constants(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in scope.body:
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                if _has_number(value):
                    yield ast.unparse(target), value
            case ast.ClassDef():
                yield from ((f"{node.name}.{name}", value) for name, value in _constants(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from ((f"{node.name}.{name}", value) for name, value in _defaults(node.args))


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    by_place = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(by_place), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    yield from ((name.arg, value) for name, value in pairs if value and _has_number(value))


def _has_number(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        for node in ast.walk(value)
    )
