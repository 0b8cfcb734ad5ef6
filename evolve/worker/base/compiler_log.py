"""The first error in a compiler's log, and the candidate's own line that it is about.

Formats: g++ and clang (`main.cpp:9:18: error: ...`, also MLIR's with a Python file), nvcc
(`cuda.cu(12): error: ...`), ptxas, the linker, Triton's `CompilationError` (`at 10:11:` with an
excerpt of the kernel), and Python's own syntax errors as the runner words them (`line 3: ...`).
C++ lines count in a file that the build has written, so they are found in the candidate by the
text that the compiler quotes, or by counting within the string that holds the C++ source.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.source import cpptext
from evolve.core.source.pytext import Module, Text

PREAMBLE_LINES = 6
"""Lines that `tvm_ffi.cpp` puts before a source (five includes and a blank one)."""

CANDIDATE, KERNEL = "candidate.py", "the kernel"

_PLACED = re.compile(
    r"^(?P<file>[^\s:()][^:()]*):(?P<line>\d+):(?:\d+:)?\s*(?:fatal )?error:\s*(?P<what>.*)"
)
_NVCC = re.compile(
    r"^(?P<file>[^\s()][^()]*)\((?P<line>\d+)\):\s*(?:catastrophic )?error(?:\s*#[\w-]+)?\s*:"
    r"\s*(?P<what>.*)"
)
_UNPLACED = re.compile(
    r"(?P<what>ptxas.*?\b(?:error|fatal)\s*:.*|.*undefined (?:reference|symbol).*"
    r"|(?:nvcc|ld|collect2|clang|cc1plus).*\b(?:error|fatal)\s*:.*)"
)
_TRITON = re.compile(r"(?:^|\s)at (?P<line>\d+):\d+:\s*$")
_FRAME = re.compile(r"^line (?P<line>\d+)(?: in [^:]+)?: (?P<text>.*)")
_QUOTED = re.compile(r"^\s*\d+ \|(?P<text>.*)")
_CARET = re.compile(r"^[\s|]*\^[\s~^-]*$")
_REQUIRED = re.compile(r"^(?P<file>[^\s:()][^:()]*):(?P<line>\d+):\d+:\s+required from")
_OURS = re.compile(r"(?:^|/)(?:main\.cpp|cuda\.cu|candidate\.py|[\w.-]+\.(?:cu|cpp))$")


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error as the tool words it. `line` counts from 1 in `file`; 0 if it names none.

    `excerpt` is the tool's quotation of the source, the complained-of line last.
    """

    what: str
    file: str = ""
    line: int = 0
    excerpt: tuple[str, ...] = ()


def complaints(log: str) -> Iterator[Complaint]:
    """Every error of a log, in its order."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if match := _PLACED.match(line) or _NVCC.match(line):
            yield _placed(lines, number, match)
        elif match := _TRITON.search(line):
            yield _triton(lines, number, int(match["line"]))
        elif match := _UNPLACED.match(line):
            yield Complaint(match["what"].strip())


def _placed(lines: Sequence[str], number: int, match: re.Match[str]) -> Complaint:
    file, line, what = match["file"], int(match["line"]), match["what"].strip()
    if not _OURS.search(file):  # in a header: the including line stands above
        for earlier in reversed(lines[max(0, number - 40) : number]):
            if (asked := _REQUIRED.match(earlier)) and _OURS.search(asked["file"]):
                return Complaint(what, asked["file"].rpartition("/")[2], int(asked["line"]))
        return Complaint(f"{what} (in {file.rpartition('/')[2]})")
    return Complaint(what, file.rpartition("/")[2], line, _quoted(lines[number + 1 : number + 4]))


def _quoted(after: Sequence[str]) -> tuple[str, ...]:
    """The source line that stands under a complaint, with or without its number."""
    if after and (match := _QUOTED.match(after[0])):
        return (match["text"],)
    if len(after) > 1 and after[0].strip() and _CARET.match(after[1]):
        return (after[0],)
    return ()


def _triton(lines: Sequence[str], number: int, line: int) -> Complaint:
    """Triton prints the kernel up to the line, a caret, and the error."""
    after = range(number + 1, len(lines))
    caret = next((at for at in after if _CARET.match(lines[at])), number)
    said = [text.strip() for text in lines[caret + 1 : caret + 4] if text.strip()]
    what = " ".join(said) or "Triton cannot compile this line"
    return Complaint(what, KERNEL, line, tuple(lines[number + 1 : caret]))


def _python(log: str) -> Complaint | None:
    """An error that Python raised: the last frame in the candidate, and the error's own line."""
    lines = log.splitlines()
    frames = [(at, match) for at, text in enumerate(lines) if (match := _FRAME.match(text))]
    if not frames:
        return None
    at, frame = frames[-1]
    what = " ".join(text.strip() for text in lines[at + 1 : at + 4] if text.strip())
    return Complaint(what or "an error", CANDIDATE, int(frame["line"]), (frame["text"],))


def first_complaint(log: str) -> tuple[Complaint | None, int]:
    """The first error, and how many more there are."""
    found = list(complaints(log))
    return (found[0], len(found) - 1) if found else (_python(log), 0)


def line_in_candidate(complaint: Complaint, source: str) -> int:
    """The line of the candidate's file that a complaint is about, from 1; 0 if none is sure."""
    lines = source.splitlines()
    if complaint.file == CANDIDATE:
        return complaint.line if complaint.line <= len(lines) else 0
    if complaint.file == KERNEL:
        return _end_of_excerpt(complaint.excerpt, lines)
    return _line_in_string(complaint, source) if complaint.line else 0


def _end_of_excerpt(excerpt: Sequence[str], lines: Sequence[str]) -> int:
    """Where the lines of the excerpt stand in the file, one after the other; its last line."""
    wanted = [text.strip() for text in excerpt]
    if not wanted:
        return 0
    found = [
        at
        for at in range(len(wanted), len(lines) + 1)
        if [text.strip() for text in lines[at - len(wanted) : at]] == wanted
    ]
    return found[0] if len(found) == 1 else 0


def _line_in_string(complaint: Complaint, source: str) -> int:
    """By the quoted text if there is one, and the count of lines if that is not enough."""
    quoted = complaint.excerpt[-1].strip() if complaint.excerpt else ""
    places: dict[int, int] = {}  # line of the candidate: lines that the build put before
    for text in _cpp_texts(source):
        for at, line in enumerate(text.value.split("\n"), 1):
            if line.strip() == quoted if quoted else at + PREAMBLE_LINES == complaint.line:
                offset = sum(len(earlier) + 1 for earlier in text.value.split("\n")[: at - 1])
                place = source.count("\n", 0, text.offsets[offset]) + 1
                places[place] = complaint.line - at
    by_count = [place for place, before in places.items() if before == PREAMBLE_LINES]
    for sure in (places, by_count):
        if len(sure) == 1:
            return next(iter(sure))
    return 0


def _cpp_texts(source: str) -> Sequence[Text]:
    try:
        return [text for text in Module(source).texts if cpptext.is_code(text.value)]
    except UsageError:
        return ()
