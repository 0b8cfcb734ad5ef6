"""A summary of the search so far, which every other prompt then quotes."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import CallStatus, Exchange, ModelRequest, ReplyStatus
from evolve.core.protocols import Attempt, Context, Declined, Failed, Reading
from operators.answers import Answering, read_whole
from operators.base import Base
from operators.budget import Section
from operators.checks import check_whole
from operators.composition import SUMMARY, Prompted, last_summary
from operators.material import attempt_text
from operators.quoting import quote
from operators.replies import without_thought


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarise(Answering):
    """The summariser of POLCA (arXiv 2603.14769): what the trials so far teach, carried over.

    Whenever `every` steps have passed since the last summary, a step of this operator first asks
    for a new one, which stands alone: it merges the last one with the trials since. Then, and with
    the last summary otherwise, it asks for a better program. All prompts quote the newest summary.
    Its name in the configuration has to be `summarise`, by which its calls are found.

    Args:
        every: steps of the run between two summaries.
        trials: the most trials in one, the newest first, failed and correct ones half and half.
    """

    every: int = 20
    trials: int = 16

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.summarise.every", self.every, least=1)
        check_whole("operators.summarise.trials", self.trials, least=2)

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        since = self._since(context)
        if context.sequence - since < self.every:
            return self._improve(context, base, None)
        seen = self._unseen(context, since)
        if not seen:
            return self._improve(context, base, None)
        carried = last_summary(context)
        sections = [
            Section(name="task", head=self.text("task", task=context.task,
                                                source=quote(context.task.source, "task"))),
            *self.listed("lessons", 1, [quote(carried, "summary")] if carried else []),
            *self.listed("trials", 2, [attempt_text(a, context.baseline) for a in seen]),
            Section(name="job", head=self.text("summarise", carried=bool(carried))),
        ]  # fmt: skip
        memo = base.memo() | {"upto": context.sequence}
        return self.request(context, sections, purpose=SUMMARY, memo=memo)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        last = exchanges[-1]
        if last.request.purpose != SUMMARY:
            return self.settle(context, exchanges, read_whole(exchanges))
        summary = without_thought(last.reply.text).strip()
        if last.reply.status is CallStatus.TRUNCATED:
            return Reading(ReplyStatus.TRUNCATED, Failed("the summary was cut off"))
        if not summary:
            return Reading(ReplyStatus.EMPTY, Failed("the summary is empty"))
        asked = self._improve(context, Base.recall(exchanges), summary)
        outcome = Failed(asked.reason) if isinstance(asked, Declined) else asked
        return Reading(ReplyStatus.STEP, outcome)

    def _improve(
        self, context: Context, base: Base, lessons: str | None
    ) -> ModelRequest | Declined:
        job = self.text("rewrite_full", first=not base.programs)
        return self.ask(context, job, base=base, lessons=lessons)

    def _since(self, context: Context) -> int:
        """The ticket number up to which the last summary goes; 0 where there is none."""
        newest = context.facts.exchanges(SUMMARY, SUMMARY, 1)
        return int(newest[0].request.memo.get("upto", 0)) if newest else 0

    def _unseen(self, context: Context, since: int) -> list[Attempt]:
        """Trials that no summary has seen, newest first."""
        half = self.trials // 2
        found = [
            *context.facts.recent(half, failed=True),
            *context.facts.recent(self.trials - half, failed=False),
        ]
        unseen = [attempt for attempt in found if attempt.sequence >= since]
        return sorted(unseen, key=lambda attempt: -attempt.sequence)
