"""Planning apart from coding: a model maintains a tree of intents; programs follow the next one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evolve.core.evaluation import Status
from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Attempt, Context, Declined, Reading
from operators.base import Base
from operators.checks import check_whole
from operators.llm import intents
from operators.llm.intents import Intent, Intents
from operators.prompting.budget import Section
from operators.prompting.composition import Memory, Prompted
from operators.prompting.prompt_context import attempt_text, exhibit
from operators.prompting.replies import without_thought
from operators.prompting.reply_handling import Answering, further, read_whole
from operators.quoting import quote

PLAN = "world_model"
"""Purpose of a request for edits of the tree."""

_MAX_ATTEMPTS = 64  # of one intent that are looked at
_SHOWN = 8  # of these in the prompt that asks for edits


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldModel(Answering):
    """The search of K-Search (arXiv 2602.19128): a search over hypotheses, not over programs.

    A model edits a tree of intents. The open intent with the highest score is attempted several
    times; each attempt sees the last one, so a correct but slow step can be continued. When the
    attempts no longer improve, the best of them, or the failure, is recorded in the intent, and the
    model is asked for edits; the same step then makes a first attempt at the next intent. The tree
    is stored in the memo of that request, and its reply changes it: there is no other state.

    Differences from the source: a reply without edits leaves the tree unchanged (the source asks
    again), and the root is the best starting program.

    Args:
        window: attempts in a row without an improvement that end an intent's turn.
        most_difficult: from 1 to 5; more difficult intents wait while there are others.
        most_new: most intents that one reply may add.
    """

    window: int = 5
    most_difficult: int = 4
    most_new: int = 3

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.*.window", self.window, least=1)
        check_whole("operators.*.most_difficult", self.most_difficult, least=1)
        check_whole("operators.*.most_new", self.most_new, least=1)

    @property
    def parents(self) -> int:
        return 0  # each intent names the program that it changes

    @property
    def fires_at(self) -> dict[str, int]:
        """When the first intent can end."""
        return {"window": self.window + 1}

    def propose(self, context: Context) -> ModelRequest | Declined:
        last = next(iter(context.facts.exchanges(context.operator, PLAN, 1)), None)
        if last is None:
            root = intents.root_only(next(iter(context.elites), None))
            return self._plan(context, root, root[intents.ROOT])
        tree = self._tree(last)
        active = intents.frontier(tree, self.most_difficult)[0]
        tried = self._tried(context, last)
        silent = self._rounds(context, last) - len(tried)  # duplicates of programs of the run
        speeds = [_speed(attempt) for attempt in tried] + [None] * silent
        if intents.is_spent(speeds, tree[active.parent].speedup, self.window):
            done = _concluded(active, tried)
            return self._plan(context, {**tree, active.id: done}, done, tried)
        return self._attempt(context, tree, active, tried)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        last = exchanges[-1]
        if last.request.purpose == PLAN:
            tree = self._tree(last)
            active = intents.frontier(tree, self.most_difficult)[0]
            return further(self._attempt(context, tree, active, ()))
        note = str(last.request.memo["intent"])
        return self.settle(context, exchanges, read_whole(exchanges), note=f"intent {note}")

    def _tree(self, planned: Exchange) -> Intents:
        """The tree after a reply."""
        tree: Intents = intents.loads(str(planned.request.memo["tree"]))
        ops = intents.read_ops(without_thought(planned.reply.text))
        tree = intents.apply_ops(tree, ops or (), self.most_new)
        return intents.with_fallback(tree, self.most_difficult)

    def _rounds(self, context: Context, planned: Exchange) -> int:
        """Attempts since that request, with the one of its own step."""
        return context.facts.proposals(context.operator) - int(planned.request.memo["made"])

    def _tried(self, context: Context, planned: Exchange) -> list[Attempt]:
        """The attempts at the current intent, oldest first."""
        found = context.facts.recent(_MAX_ATTEMPTS, operator=context.operator)
        since = int(planned.request.memo["sequence"])
        return [attempt for attempt in reversed(found) if attempt.sequence >= since]

    def _plan(
        self, context: Context, tree: Intents, done: Intent, tried: Sequence[Attempt] = ()
    ) -> ModelRequest | Declined:
        """The request for edits, with the results of the last intent.

        It shows the program of that intent, or else its last attempt.
        """
        made = Base.of([attempt for attempt in tried if attempt.program is not None][-1:])
        if done.program:
            made = Base(((done.program, done.assignment),))
        shown = [exhibit(context, *program) for program in made.programs]
        attempts = [attempt_text(each, context.baseline) for each in tried[: -_SHOWN - 1 : -1]]
        sections = [
            *self._frame(context, self.language_for(context, shown), Memory.INHERIT),
            self._parents("What became of it" if tried else "The program to start from", shown),
            self._shown(tree, done),
            *self.listed("attempts", 1, attempts),
            Section(name="job", head=self.text("plan_intents", first=len(tree) == 1)),
            Section(name="answer", head=self.text("answer_intents", most=self.most_new)),
        ]
        memo = Base().memo() | {
            "tree": intents.dumps(tree),
            "sequence": context.sequence,
            "made": context.facts.proposals(context.operator),
        }
        asked = self.request(context, sections, purpose=PLAN, memo=memo)
        return asked if isinstance(asked, Declined) else replace(asked, samples=1)

    def _attempt(
        self, context: Context, tree: Intents, active: Intent, tried: Sequence[Attempt]
    ) -> ModelRequest | Declined:
        """The request for a program: the first attempt at an intent, or one after the last."""
        above = tree[active.parent]
        made = [attempt for attempt in tried if attempt.program is not None]
        best = max(filter(_speed, made), key=lambda each: _speed(each) or 0.0, default=None)
        shown = [Base.of(made[-1:]).programs, Base.of([best] if best else []).programs]
        shown.append(((above.program, above.assignment),) if above.program else ())
        programs = list({each[0][0]: each[0] for each in shown if each}.values())
        said = f"{active.title}\n{active.why}".strip()
        job = self.text(
            "intent",
            intent=quote(said, "intent"),
            first=not programs,
            again=bool(made),
            passed=best is not None,
        )
        return self.ask(
            context,
            job,
            base=Base(tuple(programs[:2])),
            heading="The program to change" if len(programs) < 2 else "The last one, and the best",
            directed=False,
            extra=[self._shown(tree, active)],
            memo={"intent": f"{active.id}: {active.title}"},
        )

    def _shown(self, tree: Intents, active: Intent | None) -> Section:
        listed = intents.listing(tree, active, self.most_difficult)
        return Section(name="intents", head=self.text("intents", listed=quote(listed, "intents")))


def _speed(attempt: Attempt) -> float | None:
    """The speedup of a correct attempt with kernels of its own; None for others."""
    correct = attempt.status is Status.CORRECT and attempt.custom is not False
    return attempt.ratio.value if correct and attempt.ratio is not None else None


def _concluded(intent: Intent, tried: Sequence[Attempt]) -> Intent:
    """The intent with its best attempt, or with one more failure."""
    best = max(tried, key=lambda each: _speed(each) or 0.0, default=None)
    speed = _speed(best) if best is not None else None
    if best is None or speed is None:
        return replace(intent, failed=intent.failed + 1)
    assert best.program is not None
    return replace(
        intent, program=best.program, assignment=dict(best.assignment), speedup=round(speed, 4)
    )
