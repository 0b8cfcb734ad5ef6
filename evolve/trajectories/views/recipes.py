"""Recipes: which steps become which rows. Each is pinned, and counts the steps it leaves out.

A recipe has a view for each kind of row that it can make. `NAME@1+FILTER@1` adds filters to it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from evolve.core.errors import UsageError
from evolve.store import Store
from evolve.trajectories.names import find
from evolve.trajectories.step import Step
from evolve.trajectories.steps import History, Origins
from evolve.trajectories.tally import Tally
from evolve.trajectories.views import autotriton, filters
from evolve.trajectories.views.directions import Dead, summary
from evolve.trajectories.views.filters import Check, Filter
from evolve.trajectories.views.rows import Row
from evolve.trajectories.views.siblings import Families, preference
from evolve.trajectories.views.turns import conversation, labelled, prompt_only, supervised, wanted

_AT_ONCE = 50

Item = TypeVar("Item")

SUPERVISED = "supervised"
LABELLED = "labelled"
PREFERENCE = "preference"
PROMPT = "prompt"
CONVERSATION = "conversation"
GROUP = "group"

Admit = Callable[[Step], object]
"""Why a step may not be trained on (its text is the reason), or None."""

Tell = Callable[[], None]
"""Called after every step that was looked at and every row that was made."""

Passed = Callable[[int], None]
"""Told a step up to which all of a run is counted, and in rows that have been taken."""


@dataclass(slots=True)
class Sieve:
    """The filters of one export at work on one run: accepted steps, and counts."""

    history: History
    tally: Tally
    checks: Sequence[tuple[Filter, Check]]
    admit: Admit
    follow_shown: bool
    tell: Tell
    after: int
    passed: Passed

    def light(self) -> Iterator[Step]:
        """Steps that pass the filters which need no texts; they may come without."""
        for step in self.history.steps(texts=self.follow_shown):
            if step.sequence <= self.after:
                continue
            self.tally.steps += 1
            self.tell()
            if self._passes(step, reads_texts=False):
                yield step

    def whole(self, sequences: Iterable[int]) -> Iterator[Step | None]:
        """The steps of these numbers with their texts; None for one that is left out now."""
        for step in self.history.at(sequences):
            passes = (
                self._passes(step, reads_texts=True)
                and self._is_admitted(step)
                and self._passes(step, remembers=True)
            )
            yield step if passes else None

    def _passes(self, step: Step, *, reads_texts: bool = True, remembers: bool = False) -> bool:
        """Whether no such filter is against the step; those that remember any are asked last."""
        for one, check in self.checks:
            if one.remembers != remembers or (one.reads_texts != reads_texts and not remembers):
                continue
            if reason := check(step):
                self.tally.remove(one.name, reason)
                return False
        return True

    def _is_admitted(self, step: Step) -> bool:
        reason = self.admit(step)
        if reason is not None:
            self.tally.remove("allowed", str(reason))
        return reason is None


Make = Callable[[Sieve], Iterator[Row]]


@dataclass(frozen=True, slots=True)
class View:
    """How a recipe makes rows of one kind."""

    filters: tuple[Filter, ...]
    make: Make
    is_scored: bool = True
    """Whether its rows have a score."""

    @property
    def remembers(self) -> bool:
        """Whether a filter's decision on a step depends on earlier ones, of other runs too."""
        return any(one.remembers for one in self.filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A pinned way from steps to rows.

    Attributes:
        name: with its version, and with the filters that were added.
        source: the paper or project that it follows.
        what: a phrase for help texts and cards.
        views: by kind of row.
    """

    name: str
    source: str
    what: str
    views: Mapping[str, View]

    def rows(
        self,
        store: Store,
        run_ids: Sequence[int],
        kind: str,
        *,
        tally: Tally,
        admit: Admit = lambda _: None,
        follow_shown: bool = False,
        tell: Tell = lambda: None,
        after: int = -1,
        passed: Passed = lambda _: None,
    ) -> Iterator[Row]:
        """The rows of one kind, run by run, always in the same order for the same runs.

        Args:
            store: the database.
            run_ids: of the runs.
            kind: one of `views`.
            tally: counts examined steps, exclusions and rows, while rows are drawn.
            admit: exclusions that no recipe may override: held-out tasks, licences, models. Asked
                last, with texts.
            follow_shown: whether `Step.models` has to name those behind all programs that a prompt
                shows, and its words, not those of parents only; every prompt is read then.
            tell: told how it goes on, by the tally.
            after: a number that `passed` was told for the first run, to go on from there with the
                tally as it was then.
            passed: called with numbers of steps at which the rows can be resumed; never in the
                middle of a row from several steps, nor if a filter remembers any.

        Raises:
            UsageError: the recipe makes no rows of this kind.
        """
        if kind not in self.views:
            kinds = ", ".join(self.views)
            able = ", ".join(one.name for one in RECIPES if kind in one.views)
            raise UsageError(
                f"recipe {self.name} makes no {kind} rows, only {kinds}; recipes that do: {able}"
            )
        view = self.views[kind]
        checks = [(one, one.start()) for one in view.filters]
        told = _nothing if view.remembers else passed
        origins = Origins(store)
        for run_id in run_ids:
            history = History(store, run_id, origins)
            sieve = Sieve(history, tally, checks, admit, follow_shown, tell, after, told)
            after = -1
            for row in view.make(sieve):
                tally.rows += 1
                tell()
                yield row


def find_recipe(name: str) -> Recipe:
    """The recipe of this name, with filters after plus signs: `kernel_smith@2+unique@1`.

    Raises:
        UsageError: there is no such recipe or filter.
    """
    first, *added = name.split("+")
    recipe = find(first, RECIPES, "recipe")
    extra = tuple(find(one, filters.ADDITIONAL, "filter") for one in added)
    views = {
        kind: replace(view, filters=view.filters + extra) for kind, view in recipe.views.items()
    }
    return replace(recipe, name=name, views=views)


def _nothing(_: int) -> None:
    pass


def _each(build: Callable[[Step], Row]) -> Make:
    """A row from each step that passes."""

    def make(sieve: Sieve) -> Iterator[Row]:
        for part in _parts(step.sequence for step in sieve.light()):
            for step in sieve.whole(part):
                if step is not None:
                    yield build(step)
            sieve.passed(part[-1])

    return make


def _pairs(sieve: Sieve) -> Iterator[Row]:
    families = Families()
    for part in _parts(step.sequence for step in sieve.light()):
        for step in sieve.whole(part):
            if step is not None:
                families.add(step)
    paired = 0
    for pairs in _parts(families.pairs()):
        paired += 2 * len(pairs)
        steps = list(sieve.history.at(sequence for pair in pairs for sequence in pair))
        for better, worse in zip(steps[::2], steps[1::2], strict=True):
            yield preference(better, worse)
    if families.count > paired:
        apart = "no sibling that differs beyond the error"
        sieve.tally.remove("siblings", apart, families.count - paired)


def _conversation(sieve: Sieve) -> Iterator[Row]:
    path = list(sieve.whole([step.sequence for step in sieve.light()]))
    allowed = [step for step in path if step is not None]
    if len(allowed) < len(path):
        sieve.tally.remove("whole_path", "another step of its path was left out", len(allowed))
        return
    row = conversation(allowed)
    if row is not None and any(row.learned):
        yield row
    elif allowed:
        made = "made by a model" if row is None else "known to be wanted"
        sieve.tally.remove("whole_path", f"no turn of the path is {made}", len(allowed))


def _directions(sieve: Sieve) -> Iterator[Row]:
    dead = Dead()
    for step in sieve.light():
        if reason := dead.add(step):
            sieve.tally.remove("dead_end", reason)
    for children in dead.families():
        steps = [step for step in sieve.whole(children) if step is not None]
        if len(steps) == len(children):
            yield summary(steps)
        else:
            sieve.tally.remove("whole_summary", "another direction was left out", len(steps))
    for reason, count in dead.untold.items():
        sieve.tally.remove("dead_end", reason, count)


def _groups(sieve: Sieve) -> Iterator[Row]:
    """Answers to the same prompt together."""
    answers: dict[str, list[int]] = {}
    for step in sieve.light():
        answers.setdefault(step.prompt_key, []).append(step.sequence)
    for sequences in answers.values():
        steps = [step for step in sieve.whole(sequences) if step is not None]
        if len(steps) > 1:
            yield autotriton.group(steps)
        else:
            sieve.tally.remove("group", "no other answer to its prompt", len(steps))


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while part := list(itertools.islice(rest, _AT_ONCE)):
        yield part


_HAS_LABEL = filters.pinned(
    "label", lambda step: "" if wanted(step) is not None else "neither wanted nor unwanted"
)
_BY_MODEL = (filters.BY_MODEL, filters.NEW_PROGRAM)
_GOOD = (*_BY_MODEL, filters.JUDGED, filters.CORRECT)
_TRITON = (filters.TIMED, filters.LAUNCHES_TRITON, filters.WHOLE_REPLY, autotriton.REASONED)
_AUTOTRITON = "AutoTriton, arXiv 2507.05687"

RECIPES = (
    Recipe(
        name="kernel_smith@2",
        source="Kernel-Smith, arXiv 2603.28342",
        what="gains and first correct versions; as prompts, the best steps to the best program",
        views={
            SUPERVISED: View((*_GOOD, filters.BETTER, filters.WHOLE_REPLY), _each(supervised)),
            PROMPT: View(
                (
                    *_GOOD,
                    filters.REFINES,
                    filters.ON_BEST_PATH,
                    filters.LARGE_GAIN,
                    filters.NOT_SHOWN,
                ),
                _each(prompt_only),
            ),
        },
    ),
    Recipe(
        name="siblings@1",
        source="DPO, arXiv 2305.18290, over siblings of one parent",
        what="pairs of correct steps from one parent whose intervals are apart",
        views={PREFERENCE: View((*_GOOD, filters.TIMED, filters.WHOLE_REPLY), _pairs)},
    ),
    Recipe(
        name="kto@1",
        source="KTO, arXiv 2402.01306",
        what="steps as wanted (gains, first correct versions, repairs) or not (failed or slower)",
        views={
            LABELLED: View(
                (filters.BY_MODEL, filters.JUDGED, _HAS_LABEL, filters.WHOLE_REPLY),
                _each(labelled),
            )
        },
    ),
    Recipe(
        name="multi_turn@1",
        source="Kevin, arXiv 2507.11948: every turn of a line is learned from",
        what="the way from the first to the best program as one conversation",
        views={CONVERSATION: View((filters.ON_BEST_PATH,), _conversation, is_scored=False)},
    ),
    Recipe(
        name="repair@3",
        source="KernelBench-X, arXiv 2605.04956: repairing is a skill of its own",
        what="failed programs that a step put right",
        views={
            SUPERVISED: View(
                (*_GOOD, filters.REPAIRS, filters.TIMED, filters.WHOLE_REPLY), _each(supervised)
            )
        },
    ),
    Recipe(
        name="failed_directions@2",
        source="ours",
        what="what was tried from a program and brought nothing",
        views={SUPERVISED: View((filters.BY_MODEL, filters.JUDGED), _directions, is_scored=False)},
    ),
    Recipe(
        name="autotriton_translation@1",
        source=_AUTOTRITON,
        what="verified translations of the reference into Triton, with their reasoning",
        views={SUPERVISED: View((*_GOOD, filters.FIRST_STEP, *_TRITON), _each(autotriton.sft))},
    ),
    Recipe(
        name="autotriton_compiled@1",
        source=_AUTOTRITON,
        what="the compiler's Triton, cleaned up and explained (operator clean_up)",
        views={SUPERVISED: View((*_GOOD, filters.CLEANED_UP, *_TRITON), _each(autotriton.sft))},
    ),
    Recipe(
        name="autotriton_rl@1",
        source=_AUTOTRITON,
        what="the instruction of each task; groups of answers to one prompt with autotriton@2",
        views={
            PROMPT: View(
                (*_BY_MODEL, filters.JUDGED, filters.FIRST_STEP, autotriton.ONE_FOR_A_TASK),
                _each(autotriton.prompt),
            ),
            GROUP: View((filters.BY_MODEL, filters.JUDGED, filters.AT_ONCE), _groups),
        },
    ),
)
"""All recipes that ship."""
