"""Text of the functions that programs get copies of."""

import ast
import importlib.resources
import re
from functools import cache

_STRUCT = re.compile(r"^struct (\w+)", re.M)
_FUNCTION = re.compile(r"^__device__ .*?(\w+)\(", re.M)
_WORD = re.compile(r"\w+")
HALVES = {"__half": "#include <cuda_fp16.h>", "__nv_bfloat16": "#include <cuda_bf16.h>"}
"""Types of 16 bits, and the headers that define them."""


def with_library(text: str) -> str:
    """CUDA C++ below all that it needs: headers, and definitions of this project's."""
    known = _definitions()
    found: set[int] = set()
    waiting = [text]
    while waiting:
        words = set(_WORD.findall(waiting.pop()))
        for at, (name, body) in enumerate(known):
            if at not in found and name in words and not _is_of_another_type(body, text):
                found.add(at)
                waiting.append(body)
    headers = "\n".join(line for kind, line in HALVES.items() if kind in text)
    own = [known[at][1] for at in sorted(found)]
    return "\n\n".join(part for part in (headers, *own, text) if part)


def _is_of_another_type(body: str, text: str) -> bool:
    """Whether it is the overload for a type of 16 bits that a text has not."""
    return any(kind in body and kind not in text for kind in HALVES)


@cache
def functions_of(module: str) -> dict[str, str]:
    """Text of a module's functions, with their decorators, by name and in order."""
    file = importlib.resources.files("operators.local.ports.kernels") / f"{module}.py"
    text = file.read_text(encoding="utf-8")
    return {
        node.name: "\n".join(
            [f"@{ast.unparse(one)}" for one in node.decorator_list]
            + [ast.get_source_segment(text, node) or ""]
        )
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def with_functions(module: str, texts: list[str]) -> list[str]:
    """Texts below those of a module's functions that they need, directly or not."""
    known = functions_of(module)
    found: set[str] = set()
    waiting = [*texts]
    while waiting:
        words = known.keys() & set(_WORD.findall(waiting.pop()))
        waiting += [known[name] for name in words - found]
        found |= words
    return [*(text for name, text in known.items() if name in found), *texts]


@cache
def _definitions() -> tuple[tuple[str, str], ...]:
    """Each with its name, in the order of the file."""
    file = importlib.resources.files("operators.local.ports.kernels") / "blocks.cu"
    parts = re.split(r"\n\n(?=//|template|struct|__device__)", file.read_text("utf-8").strip())
    return tuple((_name(part), part) for part in parts)


def _name(part: str) -> str:
    found = _STRUCT.search(part) or _FUNCTION.search(part)
    assert found is not None
    return found[1]
