"""The episodes of coding agents behind the best program, for a file of bounded size."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evolve.core.lineage import Step
from evolve.core.program import Program
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.llm.programs.turns import Turn, turns
from evolve.report.run.transcript import ShownTurn, shown_turns
from operators.llm.agent import MODEL

MAX_EPISODES = 5  # of a report, the newest
MAX_TURNS = 40  # of an episode, the first
MAX_TEXT = 2_000  # characters of a text
MAX_LOOKED_AT = 8  # episodes before a program, for the one that submitted it


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What an agent did: its first turns, how many more there are, and the step that asked it."""

    sequence: int
    turns: list[ShownTurn]
    left_out: int


def episodes(store: RunStore, run: RunRow, path: Iterable[Step]) -> Mapping[int, Episode]:
    """The episodes that gave the programs of a path, by the numbers of its steps."""
    found: dict[int, Episode] = {}
    asked: set[int] = set()
    for step in reversed(list(path)):
        if len(found) == MAX_EPISODES:
            break
        sequence, turned = _episode(store, run, step)
        if turned and sequence not in asked:
            asked.add(sequence)
            first = shown_turns(store, run, turned[:MAX_TURNS], MAX_TEXT)
            left_out = len(turned) - len(first)
            found[step.sequence] = Episode(sequence=sequence, turns=first, left_out=left_out)
    return found


def _episode(store: RunStore, run: RunRow, step: Step) -> tuple[int, list[Turn]]:
    """The turns that gave a step's program, and the step that asked the agent; else none."""
    if own := _turns(store, run, step.sequence):
        return step.sequence, own
    if not store.ticket(run.id, step.sequence).exchanges:
        before = [each for each in store.made_by(run.id, step.operator) if each < step.sequence]
        for sequence in before[: -MAX_LOOKED_AT - 1 : -1]:
            found = _turns(store, run, sequence)
            if any(turn.program and Program(turn.program).digest == step.program for turn in found):
                return sequence, found
    return step.sequence, []


def _turns(store: RunStore, run: RunRow, sequence: int) -> list[Turn]:
    exchanges = store.ticket(run.id, sequence).exchanges
    texts = [each.reply.reasoning for each in exchanges if each.request.model == MODEL]
    return [turn for text in texts for turn in turns(text)]
