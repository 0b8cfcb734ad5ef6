"""Text of the functions that programs get copies of."""

import ast
import importlib.resources
import re
from functools import cache

from operators.local.ports.blocks import names_in

_STRUCT = re.compile(r"^struct (\w+)", re.M)
_FUNCTION = re.compile(r"^__device__ .*?(\w+)\(", re.M)
_WORD = re.compile(r"\w+")
_HEADERS = {"__half": "#include <cuda_fp16.h>", "__nv_bfloat16": "#include <cuda_bf16.h>"}
"""Of fp16 and bf16, by their types."""


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
    headers = "\n".join(line for kind, line in _HEADERS.items() if kind in text)
    own = [known[at][1] for at in sorted(found)]
    return "\n\n".join(part for part in (headers, *own, text) if part)


def _is_of_another_type(body: str, text: str) -> bool:
    """Whether it is the overload for fp16 or bf16, and a text does not have that type."""
    return any(kind in body and kind not in text for kind in _HEADERS)


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
        used = known.keys() & names_in(ast.parse(waiting.pop()))
        waiting += [known[name] for name in used - found]
        found |= used
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
