"""Text of the kernels that programs get copies of."""

import ast
import importlib.resources
from functools import lru_cache


def definitions(name: str) -> dict[str, str]:
    """A kernel and the functions that it calls, each with its text, the kernel last."""
    return dict(_definitions(name))


@lru_cache(maxsize=256)
def _definitions(name: str) -> tuple[tuple[str, str], ...]:
    own = known()
    wanted: dict[str, str] = {}

    def add(function: str) -> None:
        if function in own and function not in wanted:
            for called in names(own[function]):
                if called != function:
                    add(called)
            wanted[function] = own[function]

    add(name)
    return tuple(wanted.items())


@lru_cache(maxsize=1024)  # a program has the same few functions many times
def names(text: str) -> tuple[str, ...]:
    """Names that a text has, in the order of their first use."""
    found = [node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1)
def known() -> dict[str, str]:
    """All functions by their names, each with its text."""
    found = {}
    folder = importlib.resources.files("operators.local.templates") / "kernels"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            text = file.read_text(encoding="utf-8")
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef):
                    found[node.name] = f"@triton.jit\n{ast.get_source_segment(text, node)}"
    return found
