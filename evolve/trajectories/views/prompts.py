"""The job of a prompt: its last sections, in the order of `operators.prompting.composition`."""

import re
from collections.abc import Sequence

from evolve.core.model import Message

_QUOTED = re.compile(r"<quoted (\w+) [^\n]*>\n.*?\n</quoted \1>", re.DOTALL)
_HEADING = re.compile(r"^# ", re.MULTILINE)
_JOB = re.compile(r"^# Your job$", re.MULTILINE)


def job_of(prompt: Sequence[Message]) -> str:
    """The job and the form of the answer; the whole message if it names no job."""
    text = _last(prompt)
    found = _JOB.search(_unquoted(text))
    return text[found.start() :] if found else text


def programs_and_job_of(prompt: Sequence[Message], program: str) -> str:
    """The same from the section on that shows a program to work on, named by its digest."""
    text = _last(prompt)
    bare = _unquoted(text)
    shown = bare.rfind(f"program {program[:8]}:\n")
    heads = [head.start() for head in _HEADING.finditer(bare) if head.start() < shown]
    return text[heads[-1] :] if heads else text


def _last(prompt: Sequence[Message]) -> str:
    return prompt[-1].content if prompt else ""


def _unquoted(text: str) -> str:
    """The text with quotations replaced by blanks, so that positions stay the same."""
    return _QUOTED.sub(lambda found: " " * len(found[0]), text)
