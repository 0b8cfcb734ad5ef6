"""Whole definitions that can move from one program into another."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolve.core.source import cpptext
from evolve.core.source.cpptext import Function
from evolve.core.source.pytext import Edit, Module, Text, apply, write_literal
from evolve.core.source.scopes import bound_names

_HINT = re.compile(r"^[ \t]*#[ \t]*(?:include|pragma)\b.*$", re.MULTILINE)
_CLAUSE = re.compile(r"^[ \t]*#[ \t]*pragma\b.*$", re.MULTILINE)
_CLAUSE_WORD = re.compile(r"\b\w+(?=\s*\()|\b(?:omp|parallel|for|simd|static|dynamic|max|min)\b")

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Transplant:
    """A definition of the receiver that the donor has in another form.

    `text` is the string constant of the receiver that a C++ function stands in, None for a Python
    definition; `edit` counts its offsets from the start of that string's value, else of the module.
    """

    name: str
    edit: Edit
    text: Text | None = None
    includes: tuple[str, ...] = ()


@lru_cache(maxsize=32)  # a search asks for the same few pairs again while its archive stands
def transplants(receiver: Module, donor: Module) -> tuple[Transplant, ...]:
    """Definitions with one name and signature in both, but different bodies, that would fit.

    A definition fits where everything that it uses of the donor's module exists in the receiver.
    """
    return (*_python_genes(receiver, donor), *_cpp_genes(receiver, donor))


def splice(receiver: Module, chosen: Sequence[Transplant]) -> str:
    """The receiver's text with the chosen transplants in place of its own definitions."""
    edits = [transplant.edit for transplant in chosen if transplant.text is None]
    texts = {
        transplant.text.start: transplant.text
        for transplant in chosen
        if transplant.text is not None
    }
    for text in texts.values():
        own = [
            transplant
            for transplant in chosen
            if transplant.text is not None and transplant.text.start == text.start
        ]
        value = apply(text.value, [transplant.edit for transplant in own])
        present = cpptext.includes(value)
        wanted = dict.fromkeys(name for transplant in own for name in transplant.includes)
        head = "".join(f"#include {name}\n" for name in wanted if name not in present)
        edits.append(Edit(text.start, text.end, write_literal(_under_first_line(value, head))))
    return apply(receiver.source, edits)


def _under_first_line(value: str, head: str) -> str:
    """Adds lines at the top, below the line break that a triple-quoted text begins with."""
    return f"\n{head}{value[1:]}" if value.startswith("\n") else head + value


def _definitions(module: Module) -> dict[str, Definition]:
    return {
        node.name: node
        for node in module.tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


def _python_genes(receiver: Module, donor: Module) -> Iterator[Transplant]:
    theirs = _definitions(donor)
    missing = bound_names(donor.tree.body) - bound_names(receiver.tree.body)
    for name, mine in _definitions(receiver).items():
        other = theirs.get(name)
        if other is None or _signature(mine) != _signature(other):
            continue
        used = {node.id for node in ast.walk(other) if isinstance(node, ast.Name)}
        if ast.dump(mine) != ast.dump(other) and not used & missing:
            start, end = receiver.definition_span(mine)
            text = donor.source[slice(*donor.definition_span(other))]
            yield Transplant(name, Edit(start, end, text))


def _signature(node: Definition) -> object:
    """The interface for callers: a function's arguments, or those of a class's methods."""
    if isinstance(node, ast.FunctionDef):
        return ast.unparse(node.args)
    bases = [ast.unparse(base) for base in node.bases]
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    return bases, {method.name: ast.unparse(method.args) for method in methods}


def _cpp_genes(receiver: Module, donor: Module) -> Iterator[Transplant]:
    donors = [text for text in donor.texts if cpptext.is_code(text.value)]
    theirs = {
        header: (function, text)
        for text in donors
        for header, function in cpptext.functions(text.value).items()
    }
    known = set().union(*(cpptext.names(text.value) for text in receiver.texts))
    for text in receiver.texts:
        for header, mine in cpptext.functions(text.value).items():
            if header not in theirs:
                continue
            other, source = theirs[header]
            if cpptext.normalise(mine.text) == cpptext.normalise(other.text):
                continue
            if _needs(other, source) <= known:
                edit = Edit(mine.start, mine.end, other.text)
                yield Transplant(header, edit, text, tuple(cpptext.includes(source.value)))


def _needs(function: Function, source: Text) -> set[str]:
    """Names that a function shares with the rest of its source: it may depend on them."""
    rest = source.value[: function.start] + source.value[function.end :]
    own = _CLAUSE.sub(lambda line: _CLAUSE_WORD.sub("", line[0]), function.text)
    # Words of includes and pragmas (`reduction`, `max`) are no names.
    return cpptext.names(own) & cpptext.names(_HINT.sub("", rest))
