"""The text of a dispatch set: several programs in one module, each under names of its own."""

import ast
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.core.source.pytext import Module
from evolve.core.source.renaming import defined, renamed, without_future

REFERENCE = "reference"
"""The name of the task's reference among the parts of a set."""

_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\Z")
_NAMESPACE = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT|_IMPL)?\s*\(\s*(\w+)")
_LINE = "# ---- the same in each set ----\n"  # in selection.py
_OWN = {"torch": "torch"}  # imported by the text below


def registered(source: str) -> set[str]:
    """Operators and namespaces that a module may register with PyTorch, for the whole process."""
    texts = [
        node.value
        for node in ast.walk(Module(source).tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    found = {text for text in texts if _OPERATOR.match(text)}
    return found | {f"{name}::" for text in texts for name in _NAMESPACE.findall(text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: the signature of calls, the program for them, and a remark."""

    signature: str
    program: int
    remark: str


def set_text(
    header: Sequence[str],
    programs: Sequence[str],
    rows: Sequence[Row],
    fallback: str,
) -> str:
    """The module of a set; its `ModelNew` has the first program's parameters.

    Args:
        header: lines on where it comes from.
        programs: modules with `ModelNew`, without open tunables.
        rows: by which of them calls are served.
        fallback: a module with `Model` for all other calls; empty: those raise ValueError.
    """
    parts = {f"{number}": text for number, text in enumerate(programs, 1)}
    if fallback:
        parts[REFERENCE] = fallback
    merged, has_future = _merged(parts)
    others = [f"ModelNew{merged[f'{number}'].suffix}" for number in range(2, len(programs) + 1)]
    if fallback:
        others.append(f"Model{merged[REFERENCE].suffix}")
    table = "".join(f"    {row.signature}: {row.program},  # {row.remark}\n" for row in rows)
    texts = [
        "\n".join(f"# {line}".rstrip() for line in header),
        *(["from __future__ import annotations"] if has_future else []),
        "import torch",
        *(f"# ---- {_title(name)} ----\n\n{part.text.strip()}" for name, part in merged.items()),
        "# ---- the choice ----",
        "\n".join(
            (
                f"_PROGRAM_FOR = {{\n{table}}}",
                f"_FALLBACK = {len(programs) if fallback else None}",
                f"_First = ModelNew{merged['1'].suffix}",
                f"_OTHERS = ({''.join(f'{name}, ' for name in others).strip()})",
            )
        ),
        _selection(),
    ]
    return "\n\n\n".join(texts) + "\n"


def _selection() -> str:
    file = importlib.resources.files("evolve.app.dispatch") / "selection.py"
    return file.read_text(encoding="utf-8").partition(_LINE)[2].strip()


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    suffix: str


def _title(name: str) -> str:
    return "the task's reference" if name == REFERENCE else f"program {name}"


def _merged(parts: Mapping[str, str]) -> tuple[dict[str, _Part], bool]:
    """Parts under names that no other has; imports that mean the same everywhere stay."""
    stripped = {name: without_future(text) for name, text in parts.items()}
    texts = {name: text for name, (text, _) in stripped.items()}
    names = {name: defined(text) for name, text in texts.items()}
    everywhere: dict[str, set[str]] = {name: {full} for name, full in _OWN.items()}
    for found in names.values():
        for name, full in found.items():
            everywhere.setdefault(name, set()).add(full)
    merged = {}
    for part, text in texts.items():
        suffix = _suffix(part, [*texts.values()])
        own = {
            name: name + suffix
            for name in names[part]
            if len(everywhere[name]) > 1 or "" in everywhere[name]
        }
        merged[part] = _Part(renamed(text, own), suffix)
    return merged, any(has for _, has in stripped.values())


def _suffix(name: str, texts: Sequence[str]) -> str:
    """An end of names that no name has yet."""
    suffix = f"_{name}"
    while any(re.search(rf"\w{suffix}\b", text) for text in texts):
        suffix = f"_{suffix}"
    return suffix
