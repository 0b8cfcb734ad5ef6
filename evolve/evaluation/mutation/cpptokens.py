"""Tokens of C++ and CUDA text with what mutants need to know about each: statement, nesting, role.

No parser: enough structure for code that is laid out as usual, and a mutant that does not compile
costs no more than that it is counted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from evolve.core.source import cpptext

_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|[^\n])*", re.MULTILINE)
_TOKEN = re.compile(
    r"""0[xX][0-9a-fA-F']+[uUlL]*
      | (?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*
      | [A-Za-z_]\w*
      | <<=|>>=|<<|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|->|::|\S""",
    re.VERBOSE,
)
_CONTROL = {"for", "if", "while", "else", "do", "switch", "return"}
_FIXED = {"constexpr", "using", "typedef", "template", "static_assert", "namespace",
          "TVM_FFI_ICHECK", "TORCH_CHECK", "__builtin_prefetch", "__attribute__"}  # fmt: skip
_INTEGER = r"\b(?:int|long|unsigned|size_t|u?int(?:8|16|32|64)_t|uintptr_t)\b\s+(\w+)"
_POINTER = (
    r"\b(?:float|double|half|__half|int|u?int\d+_t|T|vec)\s*(?:const\s*)?\*\s*"
    r"(?:const\s+|__restrict__\s+)*(\w+)"
)
_FLOATING = r"\b(?:float|double|half|vec)\b\s+(\w+)"
_ARGUMENTS = 12  # tokens that template arguments may be long
_MORE = r"[^;(){}]*?,\s*\*?\s*(\w+)\s*(?=[=;,])"


@dataclass(slots=True)
class Token:
    """A token at `start` to `end` of the text.

    `place` says which brackets it stands in, outermost first; `clause` which part of a `for (`
    header (0, 1, 2; None outside one); `fixed` that its statement is not for mutants: declarations
    of constants and types, headers of functions, checks, hints.
    """

    text: str
    start: int
    end: int
    place: str = ""
    clause: int | None = None
    fixed: bool = False
    statement: int = 0

    @property
    def is_name(self) -> bool:
        return self.text[0].isalpha() or self.text[0] == "_"

    @property
    def is_number(self) -> bool:
        return self.text[0].isdigit() or (self.text[0] == "." and len(self.text) > 1)

    @property
    def is_float(self) -> bool:
        hexadecimal = self.text[:2] in ("0x", "0X")
        return self.is_number and not hexadecimal and bool(re.search(r"[.eEfF]", self.text))

    @property
    def ends_operand(self) -> bool:
        return self.is_number or self.is_name or self.text in (")", "]")


@dataclass(frozen=True)
class Code:
    """The tokens of a text, comments, literals and preprocessor lines left out."""

    text: str
    tokens: list[Token] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", [Token(m[0], *m.span()) for m in self._matches()])
        _nest(self.tokens)
        _divide(self.tokens)
        for index, token in enumerate(self.tokens):
            if token.text == "<" and index and self.tokens[index - 1].is_name:
                self._fix_template(index)

    def _fix_template(self, opening: int) -> None:
        """Template arguments are no expression to change: a recursion over them may never end."""
        if not self.spaced(opening):
            for at in range(opening + 1, min(opening + _ARGUMENTS, len(self.tokens))):
                if self.tokens[at].text == ">" and not self.spaced(at):
                    for token in self.tokens[opening : at + 1]:
                        token.fixed = True
                    return

    def _matches(self) -> Iterator[re.Match[str]]:
        return _TOKEN.finditer(self.bare)

    @cached_property
    def bare(self) -> str:
        return _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), cpptext.mask(self.text))

    @cached_property
    def pragmas(self) -> list[re.Match[str]]:
        return [m for m in _DIRECTIVE.finditer(cpptext.mask(self.text)) if "pragma" in m[0]]

    @cached_property
    def integers(self) -> set[str]:
        return self._declared(_INTEGER)

    @cached_property
    def floats(self) -> set[str]:
        return self._declared(_FLOATING)

    @cached_property
    def pointers(self) -> set[str]:
        return set(re.findall(_POINTER, self.bare))

    def _declared(self, pattern: str) -> set[str]:
        found: set[str] = set()
        for match in re.finditer(pattern, self.bare):
            found.add(match[1])
            end = self.bare.find(";", match.end())
            found.update(re.findall(_MORE, self.bare[match.end() : end]))
        return found

    def spaced(self, index: int) -> bool:
        """Whether blanks stand on both sides of a token, as around a binary operator."""
        token = self.tokens[index]
        around = self.bare[token.start - 1] + self.bare[token.end : token.end + 1]
        return len(around) == 2 and around.isspace()

    def closing(self, index: int) -> int | None:
        """Index of the bracket that closes the one at `index`."""
        depth = 0
        for at in range(index, len(self.tokens)):
            depth += self.tokens[at].text in "([{"
            depth -= self.tokens[at].text in ")]}"
            if depth == 0:
                return at
        return None

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """First and last token of each argument of the call whose `(` is at `opening`."""
        closing = self.closing(opening)
        if closing is None or closing == opening + 1:
            return []
        depth = len(self.tokens[opening].place) + 1
        commas = [
            at
            for at in range(opening + 1, closing)
            if self.tokens[at].text == "," and len(self.tokens[at].place) == depth
        ]
        starts = [opening + 1, *(at + 1 for at in commas)]
        ends = [*(at - 1 for at in commas), closing - 1]
        return list(zip(starts, ends, strict=True))

    def between(self, first: int, last: int) -> str:
        """The text from one token to another."""
        return self.text[self.tokens[first].start : self.tokens[last].end]


def _nest(tokens: list[Token]) -> None:
    """Sets `place` and `clause`."""
    open_: list[tuple[str, bool]] = []
    clauses: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in (")", "]", "}") and open_ and open_.pop()[1]:
            clauses.pop()
        token.place = "".join(bracket for bracket, _ in open_)
        if open_ and open_[-1][1]:
            token.clause = clauses[-1]
            clauses[-1] += token.text == ";"
        if token.text in ("(", "[", "{"):
            of_loop = token.text == "(" and index > 0 and tokens[index - 1].text == "for"
            open_.append((token.text, of_loop))
            if of_loop:
                clauses.append(0)
        elif open_ and any(of_loop for _, of_loop in open_) and token.clause is None:
            token.clause = clauses[-1]


def _divide(tokens: list[Token]) -> None:
    """Sets `statement` and `fixed`."""
    start = number = 0
    for index, token in enumerate(tokens):
        outside = "(" not in token.place and "[" not in token.place
        if token.text in (";", "{", "}") and outside:
            words = {t.text for t in tokens[start : index + 1]}
            first = tokens[start].text
            header = token.text == "{" and first not in _CONTROL and "=" not in words
            for t in tokens[start : index + 1]:
                t.fixed = t.fixed or header or bool(words & _FIXED)
                t.statement = number
            start, number = index + 1, number + 1
