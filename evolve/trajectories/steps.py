"""Steps of stored runs, in order, a page at a time."""

import itertools
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Ratio
from evolve.core.protocols import AddStatus
from evolve.store import RunRow, Store
from evolve.store.champion import best_path
from evolve.store.training.trajectory import Reader, Record
from evolve.trajectories.step import Known, Made, Step, speedup

_NAMED = re.compile(r"program ([0-9a-f]{8}):$", re.MULTILINE)
_AT_ONCE = 100


def steps(
    store: Store, run_ids: Sequence[int], *, texts: bool = True, samples: bool = False
) -> Iterator[Step]:
    """Every told step of the runs, run by run in the order given, each in sequence order.

    Memory grows by some thirty bytes a step, independent of the length of texts.

    Args:
        store: the database.
        run_ids: of the runs (`RunRow.id`).
        texts: with sources, prompts, replies and feedback, which are most of the work. Without
            them `shown_best` counts parents only.
        samples: with the raw paired times of each step's own and later evaluations.

    Raises:
        UsageError: a run is not there.
    """
    for run_id in run_ids:
        yield from History(store, run_id).steps(texts=texts, samples=samples)


def named_programs(prompt: str) -> Collection[str]:
    """Beginnings of the digests of the programs whose text a prompt shows.

    The prompts of our operators put a line with its name before each (`prompt_context`).
    """
    return {
        found[1]
        for found in _NAMED.finditer(prompt)  # several times faster than with ^ before it
        if found.start() == 0 or prompt[found.start() - 1] == "\n"
    }


class History:
    """The steps of one run: read through once, then also by number.

    Facts that depend on all steps before (`generation`, `models`, `best_before`) is kept in arrays.

    Args:
        store: the database.
        run_id: of the run.

    Raises:
        UsageError: there is no such run.
    """

    def __init__(self, store: Store, run_id: int) -> None:
        self.run = _run(store, run_id)
        self._store = store
        self._path = frozenset(best_path(store, self.run))
        begun = self.run.config.get("warm_start")
        self._unknown = frozenset({f"unknown: warm start from {begun}"} if begun else ())
        self._steering: dict[int, tuple[str, ...]] = {}
        for event in store.steering(self.run.id):
            if event.sequence is not None:
                earlier = self._steering.get(event.sequence, ())
                self._steering[event.sequence] = (*earlier, event.text)
        self._generations = array("I")
        self._families = array("I")  # places in `_sets`
        self._sets: list[frozenset[str]] = [frozenset()]
        self._places = {self._sets[0]: 0}
        self._best = array("d")  # value, low, high before each step; zeros if there was none

    def steps(self, *, texts: bool = True, samples: bool = False) -> Iterator[Step]:
        """All of them, in order; see the function of the same name."""
        best: Ratio | None = None
        for page in self._reader(texts, samples).pages():
            for record in page:
                self._fold(record, best)
                yield self._step(record)
                best = max(filter(None, (best, self._measured(record))), key=_value, default=None)

    def at(
        self, sequences: Iterable[int], *, texts: bool = True, samples: bool = False
    ) -> Iterator[Step]:
        """Some of those that `steps` has gone through, in the order of the numbers given."""
        reader = self._reader(texts, samples)
        wanted = iter(sequences)
        while part := list(itertools.islice(wanted, _AT_ONCE)):
            found = {record.sequence: record for record in reader.at(part)}
            yield from (self._step(found[sequence]) for sequence in part)

    def _reader(self, texts: bool, samples: bool) -> Reader:
        return Reader(self._store, self.run, texts=texts, samples=samples, mentions=named_programs)

    def _measured(self, record: Record) -> Ratio | None:
        """The ratio as it was known right after the step."""
        full = record.fidelity is Fidelity.SEARCH
        return speedup(self.run.baseline, record.evaluation) if full else None

    def _fold(self, record: Record, best: Ratio | None) -> None:
        """Take up the next step; numbers that are missing are of tickets still under way."""
        while len(self._generations) <= record.sequence:
            self._generations.append(0)
            self._families.append(0)
            self._best.extend((0.0, 0.0, 0.0) if best is None else best.to_json())
        sources = [maker for maker in record.parent_makers if maker is not None]
        if record.maker is not None:
            sources.insert(0, record.maker)
        earlier = [source for source in sources if source < record.sequence]
        if earlier:
            is_held = earlier[0] == record.maker
            self._generations[record.sequence] = self._generations[earlier[0]] + (not is_held)
        earlier += (shown for shown in record.shown_makers if shown < record.sequence)
        self._families[record.sequence] = self._family(record, earlier)

    def _family(self, record: Record, sources: Sequence[int]) -> int:
        """The place of the set of models behind a step."""
        models = frozenset().union(*(self._sets[self._families[source]] for source in sources))
        if record.asked is not None:
            models |= record.asked.models
        elif not sources and record.program is not None:
            # It may be another run's. What a warm start took over has lost its name with its
            # tunables, and may be of another file: its origin is not known.
            models |= self._store.models_behind(record.program) or self._unknown
        if models not in self._places:
            self._places[models] = len(self._sets)
            self._sets.append(models)
        return self._places[models]

    def _step(self, record: Record) -> Step:
        place, asked, parent = record.sequence, record.asked, record.parent
        best = self._best[3 * place : 3 * place + 3]
        return Step(
            run=self.run.name,
            sequence=place,
            task=self.run.task,
            baseline=self.run.baseline,
            operator=record.operator,
            model=record.model,
            models=self._sets[self._families[place]],
            generation=self._generations[place],
            made=_made(record),
            note=record.note,
            failure=record.failure,
            parents=record.parents,
            parent=None
            if parent is None
            else Known(
                program=parent.program,
                assignment=parent.assignment,
                source=parent.source,
                evaluation=parent.evaluation,
            ),
            parent_step=record.parent_makers[0] if record.parent_makers else None,
            prompt_key="" if asked is None else asked.key,
            shown_best=record.shown,
            exchanges=() if asked is None else asked.exchanges,
            reading=None if asked is None else asked.reading,
            program=record.program,
            language=record.language,
            source=record.source,
            assignment=record.assignment,
            fidelity=record.fidelity,
            evaluation=record.evaluation,
            later=record.later,
            best_before=Ratio(*best) if best[0] else None,
            offer=None if record.offer is None else AddStatus(record.offer),
            slot=record.slot,
            on_best_path=place in self._path,
            steering=self._steering.get(place, ()),
            created=self.run.created,
        )


def _run(store: Store, run_id: int) -> RunRow:
    for run in store.runs():
        if run.id == run_id:
            return run
    raise UsageError(f"there is no run number {run_id} in {store.location}; `evolve list` has them")


def _value(ratio: Ratio) -> float:
    return ratio.value


def _made(record: Record) -> Made:
    if record.program is None:
        return Made.NOTHING
    if record.maker == record.sequence:
        return Made.PROGRAM
    return Made.INSTANCE if record.first == record.sequence else Made.AGAIN
