"""Failure rules: repeated failures with their frequency, and fixes that worked."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evolve.core.evaluation import Status
from evolve.core.protocols import Attempt
from evolve.core.recalled import Kind, Recalled
from evolve.core.run_store import RunStore
from operators.memory.past import Past, language_of

MAX_RULES = 8
MAX_CHARS = 300  # of a message, and of a note

_NO_PROGRAM = "no program"
_SAY_NOTHING = (None, Status.CORRECT, Status.INFRA, Status.TIMING_UNBOUNDED, Status.HACK)
_PLACE = re.compile(r"^(?:\S+ )?line \d+(?: \([^)]*\)| in [^:]+)?: ")
_FRAME = re.compile(r"^line \d+(?: in [^:]+)?: ")
_QUOTED = re.compile(r"^\| ")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LOOKED_AT = 4  # failed programs of a rule whose children are searched for a fix


class _Class(NamedTuple):
    """The common subject of failures of one rule."""

    status: str
    language: str
    message: str  # without places and numbers


class _Seen(NamedTuple):
    past: Past
    attempt: Attempt


def rules(store: RunStore, pasts: Sequence[Past], least: int) -> Iterator[Recalled]:
    """Rules for failures that occurred at least `least` times, the most frequent first."""
    found: dict[_Class, list[_Seen]] = {}
    for past in pasts:
        for attempt in past.attempts:
            if known := _class_of(store, attempt):
                found.setdefault(known, []).append(_Seen(past, attempt))
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for known, seen in ranked[:MAX_RULES]:
        if len(seen) >= least:
            yield _rule(store, known, seen, pasts)


def _class_of(store: RunStore, attempt: Attempt) -> _Class | None:
    if attempt.program is None:
        message = message_of(attempt.failure)
        return _Class(_NO_PROGRAM, "", _NUMBER.sub("N", message)) if message else None
    if attempt.status is None or attempt.status in _SAY_NOTHING:
        return None
    language = language_of(store, attempt.program)
    message = _NUMBER.sub("N", message_of(attempt.feedback))
    return _Class(attempt.status.value, language, message)


def message_of(feedback: str) -> str:
    r"""The judge's sentence about the fault, without the place in the program.

    >>> message_of("line 3 in forward: y = f(x)\nNameError: name 'f' is not defined")
    "NameError: name 'f' is not defined"
    >>> message_of("candidate.py line 7: at 3:4: BLOCK is no power of 2\n| >    7 tl.arange(0, 3)")
    'at 3:4: BLOCK is no power of 2'
    """
    lines = [line for line in feedback.splitlines() if line.strip() and not _QUOTED.match(line)]
    said = [line for line in lines if not _FRAME.match(line)] or lines
    return _PLACE.sub("", said[0]).strip()[:MAX_CHARS] if said else ""


def _rule(store: RunStore, known: _Class, seen: Sequence[_Seen], pasts: Sequence[Past]) -> Recalled:
    runs = {each.past.run.name: each.past.run.task.revision for each in seen}
    devices = dict.fromkeys(each.past.device for each in seen)
    looked_at = sum(len(past.attempts) for past in pasts if past.run.name in runs)
    _, newest = seen[0]
    words = message_of(newest.failure if newest.program is None else newest.feedback)
    if note := _remedy(store, seen):
        words = f"{words}\nThe correct program that was made of one of them: {note}"
    return Recalled(
        kind=Kind.RULE,
        about=(
            f"{known.status.replace('_', ' ')}, {len(seen)} of {looked_at} attempts in "
            f"{'runs' if len(runs) > 1 else 'run'} {', '.join(runs)}, {', '.join(devices)}"
        ),
        words=words,
        language=known.language,
        runs=runs,
    )


def _remedy(store: RunStore, seen: Sequence[_Seen]) -> str:
    """The note of a correct child of a failed program; empty if there is none."""
    for past, attempt in seen[:_LOOKED_AT]:
        if attempt.program is None:
            continue
        for child in store.children(past.run.id, attempt.program, _LOOKED_AT):
            if child.status is Status.CORRECT and child.custom is not False and child.note:
                return " ".join(child.note.split())[:MAX_CHARS]
    return ""
