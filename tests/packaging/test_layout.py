"""The size of modules and functions of the product; `test_imports` has that of folders."""

import ast
from pathlib import Path

from tests.benchmarks.code_metrics import PRODUCT, ROOT, Function

MAX_LINES = 500
MAX_FUNCTION = 60  # lines, where the signature, the docstring and kernels do not count
FILES = [path for name in PRODUCT for path in sorted((ROOT / name).rglob("*.py"))]


def body_lines(function: Function) -> int:
    """Lines of a function's statements, without its docstring and the functions in it."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    inner = [node for node in ast.walk(function) if isinstance(node, Function)][1:]
    total = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)
    return total - sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in inner)


def is_kernel(path: Path, function: Function) -> bool:
    return "kernels" in path.parts or any(
        "jit" in ast.unparse(decorator) for decorator in function.decorator_list
    )


def test_no_module_is_longer_than_five_hundred_lines():
    lengths = {str(path): path.read_text().count("\n") for path in FILES}
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}


def test_no_function_is_longer_than_sixty_lines():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function) and not is_kernel(path, node)
        if body_lines(node) > MAX_FUNCTION
    ]
    assert long == []
