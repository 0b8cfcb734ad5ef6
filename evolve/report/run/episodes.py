"""The episodes of coding agents behind the best program, for a file of bounded size."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from evolve.core.lineage import Step
from evolve.core.program import Program
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.llm.programs.records import read_records
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
    transcripts = _Transcripts(store, run)
    for step in reversed(list(path)):
        if len(found) == MAX_EPISODES:
            break
        one = transcripts.behind(step)
        if one is not None and one.sequence not in asked:
            asked.add(one.sequence)
            first = shown_turns(store, run, one.first, MAX_TEXT)
            left_out = one.turns - len(first)
            found[step.sequence] = Episode(sequence=one.sequence, turns=first, left_out=left_out)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transcript:
    """The part of an agent's transcript that is kept: it may have megabytes.

    Attributes:
        sequence: the step that asked the agent.
        first: of its turns.
        turns: how many there are.
        programs: that it submitted, by digest.
    """

    sequence: int
    first: list[Turn]
    turns: int
    programs: frozenset[str]


@dataclass(slots=True)
class _Transcripts:
    """The transcripts of a run; each is read once."""

    store: RunStore
    run: RunRow
    _known: dict[int, _Transcript | None] = field(default_factory=dict)

    def behind(self, step: Step) -> _Transcript | None:
        """The transcript that gave a step's program."""
        if own := self._of(step.sequence):
            return own
        before = islice(self._before(step), MAX_LOOKED_AT)
        return next((one for one in before if step.program in one.programs), None)

    def _before(self, step: Step) -> Iterator[_Transcript]:
        """The episodes before a step, newest first; none unless its operator asks an agent.

        Programs that an agent submits are steps of the same operator, in which nothing was asked.
        """
        asked = self.store.requests(self.run.id, step.operator, "propose", 1)
        if all(request.model != MODEL for request in asked):
            return
        for sequence in reversed(self.store.made_by(self.run.id, step.operator)):
            one = self._of(sequence) if sequence < step.sequence else None
            if one is not None:
                yield one

    def _of(self, sequence: int) -> _Transcript | None:
        if sequence not in self._known:
            self._known[sequence] = self._read(sequence)
        return self._known[sequence]

    def _read(self, sequence: int) -> _Transcript | None:
        exchanges = self.store.ticket(self.run.id, sequence).exchanges
        texts = [each.reply.reasoning for each in exchanges if each.request.model == MODEL]
        found = [turn for text in texts for turn in turns(read_records(text))]
        if not found:
            return None
        programs = frozenset(Program(turn.program).digest for turn in found if turn.program)
        first = found[:MAX_TURNS]
        return _Transcript(sequence=sequence, first=first, turns=len(found), programs=programs)
