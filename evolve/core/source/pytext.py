"""Edits of Python text by exact spans, so that comments and formatting survive."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from evolve.core.errors import UsageError
from evolve.core.source.parsing import literal_value, parse

_LINE_END = re.compile(r"\r\n|\r|\n")
_LITERAL = re.compile(
    r"""(?P<comment>\#[^\r\n]*)
      | (?P<prefix>[rRuU]?)(?P<quote>'{3}|"{3}|'|")(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT = re.compile(r"[ \t]*#[^\r\n]*")
_PIECE = re.compile(
    r"\\(?:\r\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)"
    r"|\r\n|\r|[^\\\r]+",
    re.DOTALL,
)
_MARKS = (ast.expr_context, ast.operator, ast.cmpop)
_LEAVES = frozenset(
    (
        ast.Name,
        ast.Constant,
        str,
        type(None),
        *(leaf for of in _MARKS for leaf in of.__subclasses__()),
    )
)
_ESCAPED = frozenset("\n\r\\'\"abfnrtvxuUN01234567")


MAX_DEPTH = 150
"""Nesting of syntax nodes that the recursive functions of `ast` bear with room to spare."""


Placed = ast.expr | ast.stmt | ast.pattern | ast.alias
"""Nodes that have a place in the text."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters `start` to `end` (offsets into the text) by `text`."""

    start: int
    end: int
    text: str


def apply(source: str, edits: Iterable[Edit]) -> str:
    """The source with all edits made. Raises ValueError if two of them overlap."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < position:
            raise ValueError(f"edits overlap at offset {edit.start}")
        parts += source[position : edit.start], edit.text
        position = edit.end
    return "".join(parts) + source[position:]


@dataclass(frozen=True, slots=True)
class Text:
    """A string constant of a module: its value, and the place of each character in the source.

    `offsets[i]` is the offset in the module's text of the character that `value[i]` comes from;
    a last entry marks the end.
    """

    value: str
    start: int
    end: int
    offsets: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class Module:
    """A parsed Python module that knows where its nodes stand in the text.

    Raises:
        UsageError: the text is not valid Python, or nested more than `MAX_DEPTH` deep.
    """

    source: str

    def __post_init__(self) -> None:
        _ = self.tree

    @cached_property
    def tree(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # e.g. of "\d" in a docstring of the candidate
                tree = parse(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f"line {line}: " if line else ""
            raise UsageError(
                f"{where}not valid Python ({getattr(error, 'msg', None) or error}); mend the source"
            ) from None
        if _depth(tree) > MAX_DEPTH:
            raise UsageError(f"the source is nested more than {MAX_DEPTH} deep; split it up")
        return tree

    @cached_property
    def _lines(self) -> list[tuple[int, str]]:
        """Offset and text of every line, split where Python's own parser splits."""
        starts = [0, *(match.end() for match in _LINE_END.finditer(self.source))]
        return [
            (start, self.source[start:end])
            for start, end in zip(starts, [*starts[1:], len(self.source)], strict=True)
        ]

    def _offset(self, line: int, column: int) -> int:
        start, text = self._lines[line - 1]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode())

    def span(self, node: Placed) -> tuple[int, int]:
        """Offsets of the first character of a node and of the one after its last."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("the node was not parsed from a text")
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def segment(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def definition_span(self, node: ast.FunctionDef | ast.ClassDef) -> tuple[int, int]:
        """The span of a definition with its decorators and the comment at its last line's end."""
        start, end = self.span(node)
        comment = _COMMENT.match(self.source, end)
        end = comment.end() if comment else end
        if node.decorator_list:
            start = self.source.rindex("@", 0, self.span(node.decorator_list[0])[0])
        return start, end

    @cached_property
    def texts(self) -> tuple[Text, ...]:
        """String constants in module-level statements, docstrings and definitions left out."""
        found: list[Text] = []
        for statement in self.tree.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            found += self._texts_under(statement)
        return tuple(found)

    def _texts_under(self, node: ast.AST) -> Iterator[Text]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = self._text(node, node.value)
            if text is not None:
                yield text
        for child in ast.iter_child_nodes(node):
            yield from self._texts_under(child)

    def _text(self, node: ast.Constant, value: str) -> Text | None:
        start, end = self.span(node)
        said: list[str] = []
        offsets: list[int] = []
        for literal in _LITERAL.finditer(self.source, start, end):
            if literal["comment"] is not None:
                continue
            for piece, places in _pieces(literal):
                said.append(piece)
                offsets += places
        if "".join(said) != value:
            return None
        return Text(value, start, end, (*offsets, end), node.lineno)


@lru_cache(maxsize=8)  # trees are large, and walked by every full collection of garbage
def read(source: str) -> Module:
    """The module of a text; parsed once for all that ask about a program while it is new."""
    return Module(source)


def _depth(tree: ast.AST) -> int:
    """How deep nodes are nested, contexts left out. Called for every program: the loop is tight."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        below: list[ast.AST] = []
        for node in level:
            if type(node) in _LEAVES:
                continue
            for name in node._fields:
                value = getattr(node, name)
                if isinstance(value, list):
                    below += value
                elif isinstance(value, ast.AST):
                    below.append(value)
        level = below
        depth += 1
    return depth


def _pieces(literal: re.Match[str]) -> Iterator[tuple[str, Sequence[int]]]:
    """The text of the runs and escapes in a string literal's body, with an offset per character."""
    raw = literal["prefix"] in ("r", "R")
    for match in _PIECE.finditer(literal.string, *literal.span("body")):
        written, start = match[0], match.start()
        if written.startswith("\\"):
            said = _LINE_END.sub("\n", written) if raw else _unescape(written)
        else:
            said = "\n" if written.startswith("\r") else written
        if said == written:
            yield said, range(start, match.end())
        else:
            yield said, [start] * len(said)


@lru_cache
def _unescape(written: str) -> str:
    """The value of an escape sequence; one that Python does not know stands for itself."""
    if written[1] not in _ESCAPED:
        return written
    return str(literal_value(f'"""{written}"""'))


def first_line(node: ast.stmt) -> int:
    """The line (from 1) at which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def write_literal(value: str) -> str:
    """A literal that says `value`, raw and readable if that can be.

    >>> print(write_literal("int x;"))
    r\"\"\"int x;\"\"\"
    """
    for quote in ('"""', "'''"):
        plain = quote not in value and not value.endswith(("\\", quote[0]))
        if plain and "\r" not in value and "\0" not in value:
            return f"r{quote}{value}{quote}"
    return repr(value)
