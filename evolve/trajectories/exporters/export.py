"""Stored runs into a folder that a trainer reads."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import evolve
from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.store import RunRow, Store
from evolve.trajectories.decontamination.exclusions import Excluded, Reason, Rules
from evolve.trajectories.decontamination.graphs import Tracer
from evolve.trajectories.decontamination.licences import licence_of
from evolve.trajectories.decontamination.splits import TEST, TRAIN, families_of, test_families
from evolve.trajectories.exporters.admission import Admission
from evolve.trajectories.exporters.extras import extras
from evolve.trajectories.exporters.folder import building, publish
from evolve.trajectories.exporters.formats import Format, Kind, Place, Shape
from evolve.trajectories.exporters.manifest import Manifest, Source
from evolve.trajectories.exporters.shards import SHARD_BYTES, Shards, require_pyarrow
from evolve.trajectories.steps import begun_from, recalled_by
from evolve.trajectories.tally import Tally
from evolve.trajectories.views.recipes import Recipe
from evolve.trajectories.views.rows import Example, Row

COMMIT_ROWS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings of an export.

    Attributes:
        format: of the trainer.
        recipe: which steps become which rows.
        rules: the exclusions of every recipe.
        test_share: of the task families.
        test_families: names of them, instead.
        parquet: instead of JSON lines.
        shard_bytes: the most that a shard may have.
        commit_rows: after which an export that is killed need not be repeated.
    """

    format: Format
    recipe: Recipe
    rules: Rules = field(default_factory=Rules)
    test_share: float = 0.1
    test_families: tuple[str, ...] = ()
    parquet: bool = False
    shard_bytes: int = SHARD_BYTES
    commit_rows: int = COMMIT_ROWS

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of rows that the recipe makes and the trainer takes.

        Raises:
            UsageError: there are none.
        """
        both = tuple(Kind(kind) for kind in self.recipe.views if kind in self.format.shapes)
        if not both:
            raise UsageError(
                f"--recipe {self.recipe.name} makes {' and '.join(self.recipe.views)} rows, and "
                f"--to {self.format.name} takes {' and '.join(self.format.shapes)}; "
                "`evolve export --list` says which go together"
            )
        return both

    def shape(self, kind: Kind) -> Shape:
        """Columns and fill of the rows of one kind."""
        found = self.format.shape(kind)
        return found if self.recipe.views[kind.value].is_scored else found.unscored()


@dataclass(slots=True)
class Counts:
    """The counts while rows are made; plain data, so that they survive a kill."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Counts":
        counts = cls(models=Counter(data.get("models")), devices=Counter(data.get("devices")))
        for kind, tally in data.get("tallies", {}).items():
            removed = {name: Counter(reasons) for name, reasons in tally["removed"].items()}
            outcomes = Counter(tally["outcomes"])
            counts.tallies[kind] = Tally(tally["steps"], tally["rows"], removed, outcomes)
        return counts

    def to_json(self) -> dict[str, Any]:
        tallies = {
            kind: {name: getattr(tally, name) for name in Tally.__slots__}
            for kind, tally in self.tallies.items()
        }
        return {"tallies": tallies, "models": self.models, "devices": self.devices}

    def add(self, row: Row) -> None:
        """Take up a row that is written: each of its models and devices once."""
        judged = (step.evaluation for step in row.steps)
        self.models.update({step.model for step in row.steps})
        self.devices.update({one.device_class for one in judged if one is not None})


_LEARNED_FROM = "a turn that is not wanted, which this trainer would learn from"

Progress = Callable[[str, float, int, int], None]
"""Called for a unit of work: its name, and how far the rows of its kind have come: as a share of
the steps, in steps that were looked at, and in rows."""


def export(
    store: Store, runs: Sequence[RunRow], folder: Path, plan: Plan, tell: Progress
) -> Manifest:
    """Write the rows of some runs to a folder that appears when it is complete.

    A stopped export, when repeated, continues from the last commit. The same runs give the same
    bytes.

    Raises:
        UsageError: the folder is there already, recipe and format do not go together, or parquet
            is asked for and pyarrow is missing.
    """
    columns = {kind.value: plan.shape(kind).columns for kind in plan.kinds}
    if plan.parquet:
        require_pyarrow()
    with building(folder) as place:
        sources, shown = _sources(store, runs, plan)
        kept = [run for run, source in zip(runs, sources, strict=True) if not source.excluded]
        identity = _identity(runs, sources, plan)
        with Shards(place, identity, columns, limit=plan.shard_bytes) as shards:
            work = _Work(store, plan, shards, sources, shown, tell)
            for kind in plan.kinds:
                for unit in _units(kept, plan.recipe, kind):
                    work.write(unit, kind)
            made = _manifest(plan, sources, kept, work)
        views = {kind.value: kind for kind in plan.kinds}
        beside = extras(plan.format.name, views, [shard.path for shard in made.shards])
        publish(place, folder, made, beside)
    return made


class _Work:
    """Rows on their way from the store to the shards."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        shards: Shards,
        sources: Sequence[Source],
        shown: Sequence[Source],
        tell: Progress,
    ) -> None:
        kept = [source for source in sources if not source.excluded]
        self._store = store
        self._plan = plan
        self._tell = tell
        self._steps = sum(source.steps for source in kept)
        self._families = {source.name: source.family for source in kept}
        self._uncommitted = 0
        self.shards = shards
        self.tested = test_families(self._families.values(), plan.test_share, plan.test_families)
        everything = [*sources, *shown]
        tasks = {run.name: run.task for run in store.runs()}
        texts = {
            one.task: tasks[one.name].source for one in everything if one.family in self.tested
        }
        self._admit = Admission(plan.rules, everything, self.tested, texts)
        self.counts = Counts.from_json(shards.facts)

    def write(self, runs: Sequence[RunRow], kind: Kind) -> None:
        """The rows of one kind of some runs, unless a stopped export had them already."""
        name = f"{kind}: {', '.join(run.name for run in runs)}"
        if name in self.shards.done:
            return
        tally = self.counts.tallies.setdefault(kind.value, Tally())
        rows = self._plan.recipe.rows(
            self._store,
            [run.id for run in runs],
            kind,
            tally=tally,
            admit=self._admit,
            follow_shown=bool(self._plan.rules.models),
            tell=partial(self._told, name, tally),
            after=self.shards.under_way.get(name, -1),
            passed=partial(self._passed, name),
        )
        for row in rows:
            self._write_row(row, kind, tally)
        self._commit(name)

    def _write_row(self, row: Row, kind: Kind, tally: Tally) -> None:
        shape = self._plan.shape(kind)
        family = self._families[row.step.run]
        split = TEST if family in self.tested else TRAIN
        parts = list(shape.parts(row))
        for part in parts:
            place = Place(split, self.shards.rows(kind, split), family)
            self.shards.write(kind, split, shape.fill(part, place))
            self.counts.add(part)
            if isinstance(part, Example) and part.outcome is not None:
                tally.outcomes[part.outcome.value] += 1
        self._uncommitted += len(parts)
        tally.rows += len(parts) - 1
        if not parts:
            tally.remove("format", _LEARNED_FROM, len(row.steps))

    def _told(self, name: str, tally: Tally) -> None:
        self._tell(name, tally.steps / max(self._steps, 1), tally.steps, tally.rows)

    def _passed(self, name: str, sequence: int) -> None:
        """The rows of the steps up to this one are written."""
        if self._uncommitted >= self._plan.commit_rows:
            self._commit(name, sequence)

    def _commit(self, name: str, after: int | None = None) -> None:
        self.shards.commit(name, self.counts.to_json(), after=after)
        self._uncommitted = 0


def _sources(store: Store, runs: Sequence[RunRow], plan: Plan) -> tuple[list[Source], list[Source]]:
    """Facts of each run before any step is read, and of others that prompts may show."""
    reasons: dict[str, Excluded | None] = {}
    others = _found_by(store, runs)
    with Tracer() as tracer:
        for run in (*runs, *others):
            if run.task.revision not in reasons:
                reasons[run.task.revision] = plan.rules.of_task(run.task, tracer)
        families = _families([run.task for run in runs], others, plan, tracer)
    found = [
        Source(
            name=run.name,
            task=run.task.name,
            task_revision=run.task.revision,
            family=families[run.task.revision],
            licence=licence_of(run.task.source),
            steps=store.next_sequence(run.id),
            created=run.created,
            **_excluded(run, reasons[run.task.revision]),
        )
        for run in (*runs, *others)
    ]
    return found[: len(runs)], found[len(runs) :]


def _found_by(store: Store, runs: Sequence[RunRow]) -> list[RunRow]:
    """The other runs that gave these findings or programs."""
    names = {name for run in runs for finding in recalled_by(run) for name in finding.runs}
    names |= {one.name for run in runs for one in begun_from(run, store)}
    names -= {run.name for run in runs}
    return [run for run in store.runs() if run.name in names]


def _families(
    tasks: Sequence[Task], others: Sequence[RunRow], plan: Plan, tracer: Tracer
) -> dict[str, str]:
    """The family of each task; where some are for testing, tasks are also compared by graph."""
    every = [*tasks, *(run.task for run in others)]
    families = families_of(every)
    known = [families[task.revision] for task in tasks]
    if not test_families(known, plan.test_share, plan.test_families):
        return families
    unique = {task.revision: task for task in every}.values()
    return families_of(unique, tracer.twins(unique))


def _excluded(run: RunRow, found: Excluded | None) -> dict[str, str]:
    """Why nothing of a run may be learned from: its task failed its audit, or is left out."""
    if run.config.get("audit"):
        return {"excluded": Reason.WEAK.value}
    return {} if found is None else {"excluded": found.reason.value, "detail": found.detail}


def _identity(runs: Sequence[RunRow], sources: Sequence[Source], plan: Plan) -> str:
    """The inputs of an export: a stopped one goes on only with the same."""
    settings = {
        "format": plan.format.name,
        "recipe": plan.recipe.name,
        "models": plan.rules.models,
        "licences": plan.rules.licences,
        "held out": plan.rules.held_out.digest,
        "test": [plan.test_share, *plan.test_families],
        "parquet": plan.parquet,
        "shard": plan.shard_bytes,
        "exporter": evolve.__version__,
    }
    states = [f"{run.id} {run.state}" for run in runs]
    return framed_digest(canonical_json(settings), *states, *map(str, sources))


def _units(runs: Sequence[RunRow], recipe: Recipe, kind: Kind) -> list[list[RunRow]]:
    """Runs that are exported together: all, if a filter remembers earlier runs."""
    remembers = recipe.views[kind].remembers
    return [list(runs)] if remembers and runs else [[run] for run in runs]


def _manifest(
    plan: Plan,
    sources: Sequence[Source],
    kept: Sequence[RunRow],
    work: _Work,
) -> Manifest:
    excluded: Counter[str] = Counter()
    for source in sources:
        if source.excluded:
            excluded[source.excluded] += source.steps
    kinds = [kind.value for kind in plan.kinds]
    counts, held_out = work.counts, plan.rules.held_out
    return Manifest(
        exporter=evolve.__version__,
        format=plan.format.name,
        recipe=plan.recipe.name,
        sources=tuple(sources),
        models=_by_name(counts.models),
        devices=_by_name(counts.devices),
        excluded=_by_name(excluded),
        removed={kind: _removed(tally) for kind, tally in counts.tallies.items()},
        rows={kind: found for kind in kinds if (found := _rows(work.shards, kind))},
        outcomes={
            kind: _by_name(tally.outcomes)
            for kind, tally in counts.tallies.items()
            if tally.outcomes
        },
        columns={kind: plan.shape(Kind(kind)).columns for kind in kinds},
        test_families=tuple(sorted(work.tested)),
        held_out=held_out.asked,
        near_misses=tuple(_near_misses(kept, plan.rules)),
        held_out_by_graph=held_out.is_traced,
        notices=held_out.notices,
        shards=tuple(work.shards.finish(parquet=plan.parquet)),
    )


def _rows(shards: Shards, view: str) -> dict[str, int]:
    return {split: rows for split in (TRAIN, TEST) if (rows := shards.rows(view, split))}


def _removed(tally: Tally) -> dict[str, int]:
    """Rows that a view left out, by filter and reason."""
    return {
        f"{name}: {reason}": count
        for name, reasons in tally.removed.items()
        for reason, count in _by_name(reasons).items()
    }


def _near_misses(runs: Sequence[RunRow], rules: Rules) -> Iterator[dict[str, Any]]:
    for task in {run.task.revision: run.task for run in runs}.values():
        for near in rules.held_out.near(task)[:1]:
            yield {"task": task.name, "name": near.name, "distance": round(near.distance, 4)}


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))
