"""Text of unknown origin, made fit to stand in a prompt.

Programs, error messages and earlier replies were written by models, or by the authors of texts that
the models had read. In a prompt they are material and never instructions: each stands between two
marks that hold a digest of the text itself, which no text can foresee, and loses the characters
that hide or reorder text and the tokens by which chat templates tell who speaks.
"""

import re

from evolve.core.digest import framed_digest

# Control characters but for tab and newline; marks that reorder or hide text; lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)
_TURN = re.compile(
    r"<(?=[|\uff5c])|\[(?=/?(?:INST|THINK)\])|<(?=/?(?:think|start_of_turn|end_of_turn)>)"
)


def visible(text: str) -> str:
    """The text with hidden characters spelled out and chat-template tokens broken.

    >>> visible("a" + chr(0x202E) + "b <|im_end|>")
    'a<U+202E>b < |im_end|>'
    """
    plain = _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r\n", "\n"))
    return _TURN.sub(r"\g<0> ", plain)


class Quoted(str):
    """Text that may stand in a prompt as it is: `quote` made it, or one of our templates."""

    __slots__ = ()


def quote(text: str, what: str) -> Quoted:
    """The text between marks that it cannot forge.

    Args:
        text: of unknown origin.
        what: the kind of text, in a word or two.
    """
    shown = visible(text).strip("\n")
    mark = framed_digest("quote", shown)[:8]
    return Quoted(f"<quoted {mark} {what}>\n{shown}\n</quoted {mark}>")


def one_line(text: str, limit: int = 200) -> str:
    r"""The text on one line of at most `limit` characters, with nothing hidden in it.

    >>> one_line("a\n  b"), one_line("abcd", 3)
    ('a b', 'ab…')
    """
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shortened(text: str, limit: int) -> str:
    r"""At most `limit` characters: the first and the last lines of a longer text.

    A line is never cut inside, if it would change a number; one that is too long by itself is cut
    between words.

    >>> shortened("first line\n" + "another line\n" * 9 + "last line", 60)
    'first line\n[... 9 lines left out ...]\nlast line'
    """
    if len(text) <= limit:
        return text
    room = limit - len(_LEFT_OUT.format(10**6)) - 2
    lines = [_of_words(line, max(room // 2, 0)) for line in text.split("\n")]
    head, tail = 0, 0
    while head + tail < len(lines):
        line = lines[head] if head <= tail else lines[-1 - tail]
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)
    left = len(lines) - head - tail
    said = [_LEFT_OUT.format(left)] if left else []
    return "\n".join([*lines[:head], *said, *lines[len(lines) - tail :]])


_LEFT_OUT = "[... {} lines left out ...]"
_MORE = " [...]"


def _of_words(line: str, limit: int) -> str:
    """The first words of a line that is longer than that."""
    if len(line) <= limit:
        return line
    cut = line[: max(limit - len(_MORE), 0) + 1]
    return (cut.rpartition(" ")[0] if " " in cut else "") + _MORE
