"""Just enough reading of C++ text to find constants and whole functions in it.

The text is a candidate's, so patterns take no longer than in proportion to it: a literal has at
most 500 characters, or an end would be looked for from every quote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n]){0,500}+"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|[^\n])*", re.MULTILINE)
_TOKEN = re.compile(r"""\w+|"(?:\\.|[^"\\\n]){0,500}+"|'(?:\\.|[^'\\\n])'|\S""")
_TRANSPARENT = re.compile(r"^(?:inline\s+)?(?:namespace\b[\w\s:]*|extern)$")
_NO_FUNCTION = re.compile(r"^(?:template\s*<[^{]*>\s*)?(?:struct|class|union|enum|typedef|using)\b")
_FUNCTION = re.compile(r"\w\s*\(.*\)[^()=]*$", re.DOTALL)
_MAX_HEADER = 4096  # characters examined before a brace
_BRACE = re.compile(r"[{}]")
_BOUNDARY = re.compile(r"[;{}]")
_CODE = re.compile(r"^[ \t]*\#[ \t]*\w|[;{}][ \t\r]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*\#[ \t]*include[ \t]*([<\"][^>\"\n]+[>\"])", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")


def is_code(text: str) -> bool:
    """Whether a string looks like C++ source: a directive, or a line that ends like a statement."""
    return bool(_CODE.search(text))


def includes(text: str) -> list[str]:
    """The includes of a text, with brackets or quotes, in order."""
    return _INCLUDE.findall(text)


def names(text: str) -> set[str]:
    """Identifiers and keywords outside comments and literals."""
    return set(_NAME.findall(mask(text)))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def mask(text: str) -> str:
    """The text with comments and literals blanked out, every other character at its place."""
    return _SKIPPED.sub(_blank, text)


def _drop_comment(match: re.Match[str]) -> str:
    return " " if match[0].startswith("/") else match[0]


def normalise(text: str) -> str:
    """The text without comments and layout: equal for texts that differ in nothing else.

    Preprocessor lines stay lines, because blanks have a meaning in them.
    """
    bare = _SKIPPED.sub(_drop_comment, text).replace("\\\n", " ")
    lines: list[str] = []
    code: list[str] = []
    for line in bare.splitlines():
        if line.lstrip().startswith("#"):
            lines += " ".join(code), " ".join(line.split())
            code = []
        else:
            code += _TOKEN.findall(line)
    return "\n".join(line for line in (*lines, " ".join(code)) if line)


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition: its normalised header, its whole text, and its place."""

    header: str
    start: int
    end: int
    text: str


def functions(text: str) -> Mapping[str, Function]:
    """Function definitions at file or namespace level by header; repeated headers left out."""
    masked = _DIRECTIVE.sub(_blank, mask(text))
    found: dict[str, Function] = {}
    twice: set[str] = set()
    for start, end, header_end in _definitions(masked):
        header = normalise(text[start:header_end])
        if header in found:
            twice.add(header)
        found[header] = Function(header, start, end, text[start:end])
    return {header: function for header, function in found.items() if header not in twice}


def _definitions(masked: str) -> list[tuple[int, int, int]]:
    """Start, end and end of the header of every function in a masked text."""
    spans: list[tuple[int, int, int]] = []
    position = start = 0
    while match := _BOUNDARY.search(masked, position):
        position = match.end()
        header = masked[start : match.start()]
        if match[0] == "{" and not _TRANSPARENT.match(header.strip()):
            position = _closing(masked, match.start())
            end = header.rstrip()[-_MAX_HEADER:]
            if _FUNCTION.search(end) and not _NO_FUNCTION.match(header.strip()):
                first = start + len(header) - len(header.lstrip())
                spans.append((first, position, match.start()))
            elif masked[position : position + 1] not in ("", "\n"):
                continue  # an initialiser or a class: its declaration goes on after the brace
        start = position
    return spans


def _closing(masked: str, opening: int) -> int:
    """The offset after the brace that closes the one at `opening`."""
    depth = 0
    for match in _BRACE.finditer(masked, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(masked)
