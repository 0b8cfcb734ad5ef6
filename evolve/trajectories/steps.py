"""Steps of stored runs, in order, a page at a time."""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Ratio
from evolve.core.protocols import AddStatus
from evolve.core.recalled import Recalled
from evolve.store import RunRow, Store
from evolve.store.champion import best_path
from evolve.store.training.trajectory import Reader, Record
from evolve.trajectories.shown import (
    named_programs,
    quotes_words,
    shown_findings,
    texts_of,
    told_steps,
)
from evolve.trajectories.step import Known, Made, Step, speedup

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
    origins = Origins(store)
    for run_id in run_ids:
        yield from History(store, run_id, origins).steps(texts=texts, samples=samples)


class History:
    """The steps of one run: read through once, then also by number.

    Facts that depend on all steps before (`generation`, `models`, `best_before`) are in arrays.

    Args:
        store: the database.
        run_id: of the run.
        origins: of findings that its prompts show; shared by the runs that are read together.

    Raises:
        UsageError: there is no such run.
    """

    def __init__(self, store: Store, run_id: int, origins: "Origins | None" = None) -> None:
        self.run = _run(store, run_id)
        self._origins = origins or Origins(store)
        self._recalled = recalled_by(self.run)
        self._begun = {(one.name, one.task.revision) for one in begun_from(self.run, store)}
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
        prompts = texts_of(record.asked.exchanges) if record.asked is not None else ()
        shown = {*record.shown_makers}.union(*map(told_steps, prompts))
        earlier += (one for one in shown if one < record.sequence)
        self._families[record.sequence] = self._family(record, earlier, prompts)

    def _family(self, record: Record, sources: Sequence[int], prompts: Sequence[str]) -> int:
        """The place of the set of models behind a step."""
        models = frozenset().union(*(self._sets[self._families[source]] for source in sources))
        if record.asked is not None:
            models |= record.asked.models
            models |= self._origins.models(shown_findings(self._recalled, prompts))
            if any(map(quotes_words, prompts)):
                models = models.union(*self._sets)  # of any step before
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
        exchanges = () if asked is None else asked.exchanges
        findings = shown_findings(self._recalled, texts_of(exchanges))
        origins = {origin for one in findings for origin in _origins(one)}
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
            shown_runs=tuple(sorted(origins | self._begun)),
            exchanges=exchanges,
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


class Origins:
    """The models behind the findings that runs were given.

    Args:
        store: the database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs = {run.name: run for run in store.runs()}
        self._models: dict[str, frozenset[str]] = {}

    def models(self, findings: Iterable[Recalled]) -> frozenset[str]:
        """All models of the runs that found them, and of the runs that gave those findings."""
        found: set[str] = set()
        seen: set[tuple[str, str]] = set()
        pending = [*findings]
        while pending:
            for origin in {*_origins(pending.pop())} - seen:
                seen.add(origin)
                name, revision = origin
                run = self._runs.get(name)
                if run is None or run.task.revision != revision:
                    found.add(f"unknown: findings of run {name or 'that was not recorded'}")
                else:
                    found |= self._of_run(run)
                    pending += recalled_by(run)
        return frozenset(found)

    def _of_run(self, run: RunRow) -> frozenset[str]:
        if run.name not in self._models:
            light = History(self._store, run.id, self).steps(texts=False)
            self._models[run.name] = frozenset().union(*(step.models for step in light))
        return self._models[run.name]


def recalled_by(run: RunRow) -> list[Recalled]:
    """The findings of finished runs that a run was given when it began."""
    return [*map(Recalled.from_json, run.config.get("recalled", ()))]


def begun_from(run: RunRow, store: Store) -> list[RunRow]:
    """The run in this database that a warm start took programs from, if its task is another one."""
    path, _, name = str(run.config.get("warm_start") or "").rpartition(":")
    if path not in ("", str(store.location)):
        return []
    revision = run.task.revision
    return [one for one in store.runs() if one.name == name and one.task.revision != revision]


def _origins(finding: Recalled) -> Iterable[tuple[str, str]]:
    return finding.runs.items() or [("", "")]


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
