"""Everything a report says, read once from the store."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import NOT_SEARCHED, OPPONENT, Step
from evolve.core.protocols import Elite, Progress
from evolve.core.run_store import RunStore
from evolve.report.lineage import PathStep, best_path
from evolve.report.run.episodes import Episode, episodes
from evolve.report.run.opponent import Opponent, opponent
from evolve.report.run.shape_map import ShapeMap, shape_map
from evolve.report.run.winner import origin
from evolve.store import RunRow
from evolve.store.champion import Champion, champion


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """One run as it stands in the store.

    `steps` are in sequence order. `made` is the step that first gave the champion's program, and
    `path` ends at it; `sources` has the texts of the programs on the path, by digest. `example`
    stands in if there is no champion: the first evaluation that ended in the most frequent way,
    failures before the rest, our own (INFRA) last. `shapes` are the best programs case by case;
    `episodes` are those of coding agents that gave programs of the path, by step.
    """

    run: RunRow
    steps: list[Step]
    slots: Mapping[str, Elite]
    progress: Progress
    baseline: str
    champion: Champion | None
    made: Step | None
    opponent: Opponent
    path: list[PathStep]
    sources: Mapping[str, str]
    example: Evaluation | None
    shapes: ShapeMap | None = None
    episodes: Mapping[int, Episode] = field(default_factory=dict)

    @property
    def evaluation(self) -> Evaluation | None:
        return self.champion.evaluation if self.champion else self.example

    @property
    def environment(self) -> Mapping[str, str]:
        return self.evaluation.environment if self.evaluation else {}

    @cached_property
    def proposals(self) -> list[Step]:
        """Operators' programs: no verifications, baselines of the user's, checks of references."""
        return [
            step
            for step in self.steps
            if step.fidelity is not Fidelity.VERIFY and step.operator not in NOT_SEARCHED
        ]

    @property
    def hardware(self) -> str:
        """The device that judged, in words; empty if nothing has been judged."""
        if self.evaluation is None:
            return ""
        device = self.environment.get("device") or self.evaluation.device_class
        cores = self.environment.get("cores")
        return f"{device}, {cores} cores" if cores else device


def gather(store: RunStore, name: str | None, *, whole: bool = True) -> RunFacts:
    """Read a run (None: the newest).

    Not `whole`, it takes no longer however long the run is: `steps` are the user's own baseline and
    those that wait for something, and `path` is empty.

    Raises:
        UsageError: the store has no such run.
    """
    run = store.run(name)
    steps = list(store.steps(run.id)) if whole else _few_steps(store, run.id)
    winner = champion(store, run)
    baseline = run.baseline
    path = best_path(steps, baseline, winner.sequence) if winner and whole else []
    slots = store.slots(run.id)
    programs = dict.fromkeys(str(station.step.program) for station in path)
    return RunFacts(
        run=run,
        steps=steps,
        slots=slots,
        progress=store.progress(run.id),
        baseline=baseline,
        champion=winner,
        made=origin(store, run, winner) if winner else None,
        opponent=opponent(store, run, steps),
        path=path,
        sources={program: store.source(program) for program in programs},
        example=None if winner else _example(store, run.id, steps),
        shapes=shape_map(store, run, slots.values()) if whole else None,
        episodes=episodes(store, run, [entry.step for entry in path]) if whole else {},
    )


def _few_steps(store: RunStore, run: int) -> list[Step]:
    waiting = [ticket.sequence for ticket in store.open_tickets(run)]
    own = store.made_by(run, OPPONENT)
    return [store.step(run, sequence) for sequence in sorted({*waiting, *own})]


def _example(store: RunStore, run: int, steps: list[Step]) -> Evaluation | None:
    ours = [step for step in steps if step.status is Status.INFRA]
    judged = [step for step in steps if step.status not in (None, Status.INFRA)]
    failed = [step for step in judged if step.status is not Status.CORRECT]
    shown = failed or judged or ours
    if not shown:
        return None
    usual = Counter(step.status for step in shown).most_common(1)[0][0]
    first = next(step for step in shown if step.status is usual)
    return store.evaluation(run, first.sequence)
