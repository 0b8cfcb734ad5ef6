"""The turns of an agent's transcript as they are shown: bounded, with verdicts of its programs."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.llm.programs.turns import Turn
from evolve.report.lineage import speedup
from evolve.report.text import printable, ratio_text, span_text

MAX_TEXT = 20_000  # characters of a text of a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The step of a program that an agent submitted."""

    sequence: int
    status: str
    speedup: str
    span: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """A turn with texts of bounded length; `cut` more characters are left out.

    `tried` is None if nothing was submitted, or the run has no such program.
    """

    kind: str
    tool: str
    text: str
    program: str
    result: str
    cut: int
    tried: Tried | None


def shown_turns(
    store: RunStore, run: RunRow, turns: Sequence[Turn], most: int = MAX_TEXT
) -> list[ShownTurn]:
    """Turns with the verdicts of the programs that they submit.

    A verdict is the run's own: what a transcript says of it is the agent's word.

    Args:
        store: holds the run.
        run: whose programs these are.
        turns: as they are in the transcript.
        most: characters of a text.
    """
    return [_shown(store, run, turn, most) for turn in turns]


def _shown(store: RunStore, run: RunRow, turn: Turn, most: int) -> ShownTurn:
    texts = (turn.text, turn.program, turn.result)
    return ShownTurn(
        kind=turn.kind,
        tool=printable(turn.tool[:200]),
        text=printable(turn.text[:most].strip("\n")),
        program=printable(turn.program[:most]),
        result=printable(turn.result[:most]),
        cut=sum(max(len(text) - most, 0) for text in texts),
        tried=_tried(store, run, turn.program) if turn.program else None,
    )


def _tried(store: RunStore, run: RunRow, source: str) -> Tried | None:
    try:
        line = store.line_to(run.id, Program(source).digest)
    except UsageError:  # no program of this database: it was refused, or is the agent's invention
        return None
    if not line:
        return None
    step = store.step(run.id, line[-1])
    ratio = speedup(step, run.baseline)
    return Tried(
        sequence=step.sequence,
        status=str(step.status) if step.status else "",
        speedup=ratio_text(ratio.value) if ratio else "",
        span=span_text(ratio) if ratio else "",
    )
