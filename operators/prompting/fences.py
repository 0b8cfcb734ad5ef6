"""Fenced code blocks of a model's reply, after CommonMark and with models' variants of them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_LANGUAGE = re.compile(r"\w[\w+#]*")
_WRAPPERS = frozenset({"markdown", "md"})  # a fence around a whole answer: what counts is inside
_LOOKAHEAD = 64  # fences looked at to find the end of a block
_MAX_CLOSERS = 8  # closing fences tried for one block
_MAX_CLOSER_INDENT = 3  # beyond that of the opening fence, as in CommonMark


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language in lower case ("" where untagged), and its text.

    `closed` is False where no fence ends the block.
    """

    language: str
    text: str
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Fence:
    """A line of at least three backticks or tildes, and the text after them."""

    line: int
    indent: str
    mark: str
    info: str

    @property
    def language(self) -> str:
        match = _LANGUAGE.search(self.info)
        return match[0].lower() if match else ""

    @property
    def opens(self) -> bool:
        """Whether a block may begin here: backticks after backticks are code within a line."""
        inline = self.mark[0] == "`" and "`" in self.info
        return not inline and self.language not in _WRAPPERS

    def closes(self, opener: "Fence") -> bool:
        same = self.mark[0] == opener.mark[0] and len(self.mark) >= len(opener.mark)
        near = len(self.indent) <= len(opener.indent) + _MAX_CLOSER_INDENT
        return same and near and not self.info


class Blocks:
    """The blocks of a reply, in order.

    A block ends at its first closing fence, except where only a later one makes it whole (a
    program may have fences of its own in a docstring), and except where it is no whole without
    the next tagged fence: then its own closing fence was forgotten.

    Args:
        reply: the reply's text.
        is_whole: whether a block's text is complete.
    """

    def __init__(self, reply: str, is_whole: Callable[[str], bool]) -> None:
        self._lines = reply.split("\n")
        self._is_whole = is_whole
        self._fences = [f for n, line in enumerate(self._lines) if (f := _fence(n, line))]

    def __iter__(self) -> Iterator[Block]:
        position = 0
        for index, opener in enumerate(self._fences):
            if opener.line >= position and opener.opens:
                end, closed = self._end(index)
                block = Block(opener.language, self._text(opener, end), closed)
                position = end + 1 if closed else end
                if closed or block.text.strip():
                    yield block

    def _end(self, index: int) -> tuple[int, bool]:
        """The line at which the block of a fence ends, and whether a fence closes it there."""
        opener, later = self._fences[index], self._fences[index + 1 : index + 1 + _LOOKAHEAD]
        closers = [fence.line for fence in later if fence.closes(opener)][:_MAX_CLOSERS]
        for line in closers:
            if self._is_whole(self._text(opener, line)):
                return line, True
        last = len(self._lines)
        tagged = next((fence.line for fence in later if fence.language and fence.opens), last)
        first = next(iter(closers), last)
        return min(first, tagged), first < tagged

    def _text(self, opener: Fence, end: int) -> str:
        """The lines up to `end`, without the indentation of a fence that stands in a list."""
        lines = self._lines[opener.line + 1 : end]
        return "".join(f"{line.removeprefix(opener.indent)}\n" for line in lines)


def _fence(number: int, line: str) -> Fence | None:
    match = _FENCE.match(line)
    return Fence(number, match["indent"], match["mark"], match["info"].strip()) if match else None
