"""Sizes in C++ of Inductor as named constants: an edit changes one in one place.

What a loop runs up to is a size, and so is the same number elsewhere: a stride, or where a loop's
vectors end. Smaller numbers are left as they are, for many are the width of a vector.
"""

import re
from collections.abc import Iterator
from itertools import count

_LOOP = re.compile(r"for\(int64_t \w+=0; \w+<(\d+); ")
_LEAST = 64


def named(functions: str) -> tuple[str, str]:
    """The constants, and the text of functions with their names in the place of sizes."""
    sizes = dict.fromkeys(int(bound) for bound in _LOOP.findall(functions))
    names = _free_names(set(re.findall(r"\w+", functions)))
    constants = ""
    for size in sizes:
        if size >= _LEAST:
            name = next(names)
            constants += f"constexpr int64_t {name} = {size};\n"
            functions = re.sub(rf"(?<![\w.]){size}L?(?![\w.])", name, functions)
    return constants, functions


def _free_names(taken: set[str]) -> Iterator[str]:
    return (name for name in (f"N{number}" for number in count()) if name not in taken)
