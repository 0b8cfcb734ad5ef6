"""Edits of a program: read from a reply, and made or refused as a whole.

There are two forms. Search/replace is that of Aider, AlphaEvolve and OpenEvolve: a search part that
must stand in the program, a line of `=`, and what takes its place. The other one names a function
or class, which is replaced as a whole, or deleted, without being quoted.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from operators.prompting.definitions import definitions, named
from operators.prompting.replies import MAX_REPLY_CHARS, parses, without_thought

MAX_EDITS = 64

_MARKERS = {
    "SEARCH": re.compile(r"^[ \t]*<{5,9} ?SEARCH[ \t]*$"),
    "FUNCTION": re.compile(r"^[ \t]*<{5,9} ?FUNCTION[ \t]+`?([^\W\d][\w.]*)(?:\(\))?`?[ \t]*$"),
    "=======": re.compile(r"^[ \t]*={5,9}[ \t]*$"),
    "REPLACE": re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t]*$"),
}
_NEXT = {
    "REPLACE": ("SEARCH", "FUNCTION"),
    "SEARCH": ("=======",),
    "FUNCTION": ("REPLACE",),
    "=======": ("REPLACE",),
}
_MAX_NAMED = 12  # definitions, in a refusal


class EditFault(StrEnum):
    """Why none of a reply's edits was made."""

    NO_EDITS = "no_edits"
    MALFORMED = "malformed"  # a marker is missing, doubled or out of order
    EMPTY_SEARCH = "empty_search"
    MISSING = "missing"  # the search part is not in the program
    AMBIGUOUS = "ambiguous"  # it is there more than once
    OVERLAPPING = "overlapping"
    NO_OP = "no_op"
    INDENTATION = "indentation"  # found at another indentation, which the new lines do not share
    SYNTAX = "syntax"  # the edited program does not parse


@dataclass(frozen=True, slots=True)
class Replacement:
    """Whole lines to find, and the lines to put in their place (none: a deletion)."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Redefinition:
    """A function or class by its name, and the lines in its place (none: a deletion)."""

    name: str
    lines: tuple[str, ...]


AnyEdit = Replacement | Redefinition


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the edits were not made; `detail` names the edit and what is wrong, in words."""

    fault: EditFault
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start` to `end` of a program give way to `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]
    number: int


def read_edits(reply: str) -> tuple[AnyEdit, ...] | Refusal:
    """The edits in a reply, in order; prose and fences around them do not matter."""
    if len(reply) > MAX_REPLY_CHARS:
        return Refusal(EditFault.MALFORMED, f"a reply of {len(reply)} characters")
    lines = without_thought(reply.replace("\r\n", "\n")).split("\n")
    marks: list[tuple[str, int]] = []  # markers and their lines; each edit ends with REPLACE
    last = "REPLACE"
    for number, line in enumerate(lines):
        marker = _marker(line)
        outside = last == "REPLACE" and marker == "======="  # underlines a heading of prose
        if marker in _NEXT[last]:
            marks.append((marker, number))
            last = marker
        elif marker and not outside:
            due = " or ".join(_NEXT[last])
            wrong = f"line {number + 1} of the answer: {marker} where {due} is due"
            return Refusal(EditFault.MALFORMED, wrong)
    if last != "REPLACE":
        return Refusal(EditFault.MALFORMED, "the last edit does not end")
    found = list(_between(lines, marks))
    if len(found) > MAX_EDITS:
        return Refusal(EditFault.MALFORMED, f"{len(found)} edits; {MAX_EDITS} at most")
    return tuple(found) or Refusal(EditFault.NO_EDITS, "no edit")


def _marker(line: str) -> str:
    """Which marker a line is; empty where it is none."""
    return next((name for name, form in _MARKERS.items() if form.match(line)), "")


def _between(lines: Sequence[str], marks: Sequence[tuple[str, int]]) -> Iterator[AnyEdit]:
    """The edits that the markers enclose."""
    for (kind, start), (_, end) in pairwise(marks):
        if kind == "SEARCH":
            search = tuple(lines[start + 1 : end])
        elif kind == "=======":
            yield Replacement(search, tuple(lines[start + 1 : end]))
        elif name := _MARKERS["FUNCTION"].match(lines[start]):
            yield Redefinition(name[1], tuple(lines[start + 1 : end]))


def apply_edits(source: str, edits: Sequence[AnyEdit]) -> str | Refusal:
    """The source with every edit made, or why none of them is.

    Every search part is looked for in the source as given, by whole lines: exactly, and where that
    finds nothing, without regard to trailing blanks and to the indentation of the part as a whole.
    Definitions are looked up in the source as given too.
    """
    lines = source.split("\n")
    changes: list[Change] = []
    for number, edit in enumerate(edits, 1):
        if isinstance(edit, Redefinition):
            change = _redefined(source, lines, edit, number)
        else:
            change = _change(lines, edit, number)
        if isinstance(change, Refusal):
            return change
        changes.append(change)
    changes.sort(key=lambda change: change.start)
    for before, after in pairwise(changes):
        if after.start < before.end:
            both = f"edits {before.number} and {after.number} change the same lines"
            return Refusal(EditFault.OVERLAPPING, both)
    for change in reversed(changes):
        lines[change.start : change.end] = change.lines
    edited = "\n".join(lines)
    if not parses(edited):
        return Refusal(EditFault.SYNTAX, "the edited program does not parse")
    return edited


def _change(lines: list[str], edit: Replacement, number: int) -> Change | Refusal:
    if not "".join(edit.search).strip():
        return Refusal(EditFault.EMPTY_SEARCH, f"edit {number} searches for nothing")
    size = len(edit.search)
    exact = [
        at for at in _places(lines, edit.search) if tuple(lines[at : at + size]) == edit.search
    ]
    found = [(at, edit) for at in exact]
    if not exact:
        bare = Replacement(_without_blank_ends(edit.search), _without_blank_ends(edit.replace))
        found = [(at, bare) for at in _places(lines, bare.search) if _alike(lines, at, bare.search)]
    if not found:
        return Refusal(EditFault.MISSING, f"edit {number} is not in the program: {_first(edit)}")
    if len(found) > 1:
        places = ", ".join(str(at + 1) for at, _ in found[:4])
        return Refusal(EditFault.AMBIGUOUS, f"edit {number} fits at lines {places}: {_first(edit)}")
    at, edit = found[0]
    old = tuple(lines[at : at + len(edit.search)])
    new = edit.replace if exact else _moved(edit, old)
    if new is None:
        return Refusal(EditFault.INDENTATION, f"edit {number}: its new lines are less indented")
    if new == old:
        return Refusal(EditFault.NO_OP, f"edit {number} changes nothing")
    return Change(at, at + len(old), new, number)


def _redefined(
    source: str, lines: Sequence[str], edit: Redefinition, number: int
) -> Change | Refusal:
    known = definitions(source)
    found = named(known, edit.name)
    if not found:
        names = ", ".join(each.name for each in known[:_MAX_NAMED]) or "none"
        wrong = f"edit {number}: no function {edit.name} in the program; it has {names}"
        return Refusal(EditFault.MISSING, wrong)
    if len(found) > 1:
        places = ", ".join(str(each.start + 1) for each in found[:4])
        return Refusal(EditFault.AMBIGUOUS, f"edit {number}: {edit.name} is at lines {places}")
    old = tuple(lines[found[0].start : found[0].end])
    new: tuple[str, ...] | None = _without_blank_ends(edit.lines)
    if new and _indent(new[:1]) != _indent(old[:1]):
        new = _moved(Replacement(new[:1], new), old[:1])
    if new is None:
        wrong = f"edit {number}: lines are less indented than its first one"
        return Refusal(EditFault.INDENTATION, wrong)
    if new == old:
        return Refusal(EditFault.NO_OP, f"edit {number} changes nothing")
    return Change(found[0].start, found[0].end, new, number)


def _places(lines: Sequence[str], search: Sequence[str]) -> Iterator[int]:
    """Where the lines stand, blanks at both ends of a line apart."""
    wanted = [line.strip() for line in search]
    bare = [line.strip() for line in lines]
    for at in range(len(bare) - len(wanted) + 1):
        if bare[at] == wanted[0] and bare[at : at + len(wanted)] == wanted:
            yield at


def _alike(lines: Sequence[str], at: int, search: Sequence[str]) -> bool:
    """Whether the lines at a place differ from the search part in their common indentation only."""
    there = lines[at : at + len(search)]
    return _bare(there, _indent(there)) == _bare(search, _indent(search))


def _bare(lines: Sequence[str], indent: str) -> list[str]:
    return [line.removeprefix(indent).rstrip() if line.strip() else "" for line in lines]


def _indent(lines: Sequence[str]) -> str:
    """The indentation that all lines share, empty ones apart."""
    own = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    shared = min(own, key=len, default="")
    while not all(indent.startswith(shared) for indent in own):
        shared = shared[:-1]
    return shared


def _moved(edit: Replacement, old: Sequence[str]) -> tuple[str, ...] | None:
    """The new lines at the indentation of the old ones; None where one has not as much to give."""
    given, wanted = _indent(edit.search), _indent(old)
    if any(line.strip() and not line.startswith(given) for line in edit.replace):
        return None
    return tuple(
        wanted + line.removeprefix(given) if line.strip() else line for line in edit.replace
    )


def _without_blank_ends(lines: Sequence[str]) -> tuple[str, ...]:
    full = [number for number, line in enumerate(lines) if line.strip()]
    return tuple(lines[full[0] : full[-1] + 1]) if full else ()


def _first(edit: Replacement) -> str:
    """The first line of the search part that says something, shortened."""
    return next(line.strip() for line in edit.search if line.strip())[:80]
