"""Text of unknown origin, made fit to stand in a prompt.

Programs, error messages and earlier replies were written by models, or by whoever wrote what those
had read. In a prompt they are material and never instructions: each stands between two marks that
hold a digest of the text itself, which no text can foresee, and loses the characters that hide or
reorder text and the tokens by which chat templates tell who speaks.
"""

import re

from evolve.core.digest import framed_digest

# Control characters but for tab and newline; marks that reorder or hide text; lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)
_TURN = re.compile(r"<(?=[|\uff5c])|\[(?=/?INST\])|<(?=/?(?:think|start_of_turn|end_of_turn)>)")


def visible(text: str) -> str:
    """The text with hidden characters spelled out and chat-template tokens broken.

    >>> visible("a" + chr(0x202E) + "b <|im_end|>")
    'a<U+202E>b < |im_end|>'
    """
    plain = _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r\n", "\n"))
    return _TURN.sub(r"\g<0> ", plain)


class Quoted(str):
    """Text that may stand in a prompt as it is: `quote` made it, or a template of ours."""

    __slots__ = ()


def quote(text: str, what: str) -> Quoted:
    """The text between marks that it cannot forge.

    Args:
        text: of unknown origin.
        what: what it is, in a word or two of ours.
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
    r"""At most `limit` characters: the beginning and the end of a longer text.

    >>> shortened("abcdefghij" * 10, 50)
    'abcdefghija\n[... 78 characters ...]\njabcdefghij'
    """
    if len(text) <= limit:
        return text
    kept = max(limit - 28, 0)
    head, tail = kept - kept // 2, kept // 2
    return f"{text[:head]}\n[... {len(text) - kept} characters ...]\n{text[len(text) - tail :]}"
