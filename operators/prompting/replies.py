"""From a model's reply to a program, with a closed status.

Nothing here guesses: a program is taken as it stands in the reply, or not at all.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.model import ReplyStatus
from evolve.core.source.pytext import Module, read
from evolve.core.source.scopes import bound_names
from evolve.core.source.thoughts import split_thought
from evolve.languages.registry import languages
from operators.prompting.fences import Block, Blocks
from operators.quoting import one_line

MAX_REPLY_CHARS = 400_000
MAX_PROSE_CHARS = 300

_PYTHON = frozenset({"", "python", "py", "python3"}).union(
    *(one.fences for one in languages().values())
)
_PATCH = frozenset({"diff", "patch"})
_MODEL = re.compile(r"^(?:class[ \t]+ModelNew\b|ModelNew[ \t]*[:=])", re.MULTILINE)
_DIFF = re.compile(r"^(?:@@ -\d|--- a/|\+\+\+ b/|<{5,9} ?(?:SEARCH|FUNCTION)\b)", re.MULTILINE)
_PROSE_END = re.compile(
    r"^[ \t]*(?:`{3}|~{3}|<{5,9} ?(?:SEARCH|FUNCTION)\b|class[ \t]+ModelNew\b)", re.MULTILINE
)
_PART = re.compile(r"^#+[ \t]*(analysis|design|code)\b[^\n]*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a reply that was to hold one whole program.

    Attributes:
        status: `PROGRAM`, or why there is none.
        source: the program; where there is none, the draft that failed, if any.
        note: an oddity, or the fault, as a phrase.
    """

    status: ReplyStatus
    source: str = ""
    note: str = ""


def read_program(reply: str, *, cut: bool = False) -> Found:
    """The program in a reply.

    Args:
        reply: the text, reasoning between marks included.
        cut: whether the reply ended at its token limit. A whole prefix of a program parses too, so
            that only a block with a closing fence is taken from it.
    """
    if len(reply) > MAX_REPLY_CHARS:
        return Found(ReplyStatus.NO_CODE, note=f"a reply of {len(reply)} characters is not read")
    text = without_thought(reply.replace("\r\n", "\n"))
    if not text.strip():
        return Found(ReplyStatus.TRUNCATED if cut else ReplyStatus.EMPTY, note="no text")
    blocks = list(Blocks(text, parses))
    python = [block for block in blocks if block.language in _PYTHON]
    models = [block for block in python if _MODEL.search(block.text)]
    whole = [block.text for block in models if block.closed and parses(block.text)]
    if whole:
        return _program(whole, python)
    if models:
        return _broken(models[-1], cut)
    return _without_model(text, blocks, cut)


def _program(whole: Sequence[str], blocks: Sequence[Block]) -> Found:
    """The last whole program, unless it needs definitions of other blocks."""
    source = whole[-1]
    elsewhere: set[str] = set()
    for block in blocks:
        if block.text not in whole and parses(block.text):
            elsewhere |= bound_names(read(block.text).tree.body)
    if missing := sorted(_undefined(read(source)) & elsewhere):
        note = f"ModelNew's block needs what others define: {', '.join(missing[:5])}"
        return Found(ReplyStatus.SEVERAL_BLOCKS, source, note)
    count = len(dict.fromkeys(whole))
    note = f"the last of {count} programs in the reply" if count > 1 else ""
    return Found(ReplyStatus.PROGRAM, source, note)


def _undefined(module: Module) -> set[str]:
    """Names that a module reads and binds nowhere."""
    loaded: set[str] = set()
    stored = bound_names(module.tree.body)
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                loaded.add(name)
            case (
                ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):  # fmt: skip
                stored.add(name)
    return loaded - stored


def _broken(block: Block, cut: bool) -> Found:
    """A block that was to be the program, and is not closed or does not parse."""
    fault = fault_of(block.text)
    if block.closed:
        return Found(ReplyStatus.SYNTAX_ERROR, block.text, fault)
    if cut or fault:
        return Found(ReplyStatus.TRUNCATED, block.text, fault or "the last block does not end")
    return Found(ReplyStatus.PROGRAM, block.text, "taken without its closing fence")


def _without_model(text: str, blocks: Sequence[Block], cut: bool) -> Found:
    if cut:
        return Found(ReplyStatus.TRUNCATED, note="it ended before the program")
    if _DIFF.search(text) or any(block.language in _PATCH for block in blocks):
        return Found(ReplyStatus.DIFF, note="changes to a program instead of a program")
    if blocks:
        return Found(ReplyStatus.NO_MODEL, note="no block defines ModelNew")
    if not _MODEL.search(text):
        return Found(ReplyStatus.NO_CODE, note="no code block")
    if fault := fault_of(text):
        return Found(ReplyStatus.NO_CODE, note=f"code without a fence, and {fault}")
    return Found(ReplyStatus.PROGRAM, text, "taken without any fence")


def read_prose(reply: str) -> str:
    """The text of a reply before its first block or edit, as one short line: for the lineage."""
    return one_line(prose_of(reply), MAX_PROSE_CHARS)


def prose_of(reply: str) -> str:
    """All that a reply says before its first block or edit, its thought left out."""
    return _PROSE_END.split(without_thought(reply), maxsplit=1)[0].strip()


def thought_of(reply: str) -> str:
    """The reasoning that a model wrote before its reply, between marks; empty for none."""
    return split_thought(reply)[0]


def three_parts(reply: str) -> dict[str, str]:
    """The parts of an answer by name (`analysis`, `design`, `code`); those that are there."""
    text = without_thought(reply)
    heads = list(_PART.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {
        head[1].lower(): text[head.end() : end].strip()
        for head, end in zip(heads, ends, strict=False)  # without heads there is one end too many
    }


def without_thought(reply: str) -> str:
    """The reply after the reasoning that some models write before it, between marks."""
    return split_thought(reply)[1]


def parses(source: str) -> bool:
    """Whether a text is Python that can be stored."""
    return not fault_of(source)


def fault_of(source: str) -> str:
    """Why a text is no Python; empty where it is."""
    try:
        Module(source)
    except UsageError as error:
        return str(error)
    return ""
