"""Python's parser, for one thread at a time.

CPython before 3.13 counts the depth of trees for all threads together: of two that parse at the
same time one was seen to end with a SystemError (`AST constructor recursion depth mismatch`).
"""

import ast
import threading
from typing import Any

_PARSING = threading.Lock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse` of a module, with its errors."""
    with _PARSING:
        return ast.parse(source, filename)


def literal_value(text: str) -> Any:
    """`ast.literal_eval` of a text, with its errors."""
    with _PARSING:
        return ast.literal_eval(text)
