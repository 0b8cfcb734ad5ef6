"""A summary of the search so far; all other prompts quote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evolve.core.model import CallStatus, Exchange, ModelRequest, ReplyStatus
from evolve.core.protocols import Context, Declined, Reading
from operators.base import Base
from operators.checks import check_whole
from operators.prompting.budget import Section
from operators.prompting.composition import SUMMARY, Prompted, last_summary, step_of, summary_of
from operators.prompting.inspirations import trials_since
from operators.prompting.prompt_context import attempt_text
from operators.prompting.reply_handling import Answering, further, read_whole
from operators.quoting import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarising(Answering):
    """An operator that asks for the lessons of the trials so far, and then for a better program.

    All other prompts quote the answer. A truncated or empty one is not quoted, and is not requested
    again before the next one is due.

    Args:
        trials: most steps in the prompt, the newest first; half of them failed ones.
    """

    trials: int = 16

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.*.trials", self.trials, least=2)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        last = exchanges[-1]
        if last.request.purpose != SUMMARY:
            return self.settle(context, exchanges, read_whole(exchanges))
        summary = summary_of(last)
        asked = self._improve(context, Base.recall(exchanges), summary)
        status = ReplyStatus.STEP if summary else ReplyStatus.EMPTY
        if last.reply.status is CallStatus.TRUNCATED:
            status = ReplyStatus.TRUNCATED
        return further(asked, status)

    def ask_summary(
        self,
        context: Context,
        base: Base,
        job: str,
        *,
        extra: Sequence[Section] = (),
        memo: Mapping[str, Any] | None = None,
    ) -> ModelRequest | Declined:
        """The request for a summary, of the last one and of the trials since.

        Args:
            context: the operator's view.
            base: the program to improve afterwards.
            job: template of the job.
            extra: sections of the operator's own.
            memo: values for the next round.
        """
        carried, since = last_summary(context, context.operator)
        seen = trials_since(context, since, self.trials)
        if not seen:
            return Declined("nothing was tried since the last summary")
        sections = [
            Section(name="task", head=self.task_text(context)),
            *self.listed("lessons", 1, [quote(carried, "summary")] if carried else []),
            *extra,
            *self.listed("trials", 2, [attempt_text(a, context.baseline) for a in seen]),
            Section(name="job", head=self.text(job, carried=bool(carried))),
        ]
        kept = base.memo() | {"upto": context.sequence, "step": context.step} | dict(memo or {})
        asked = self.request(context, sections, purpose=SUMMARY, memo=kept)
        return asked if isinstance(asked, Declined) else replace(asked, samples=1)

    def _improve(self, context: Context, base: Base, summary: str) -> ModelRequest | Declined:
        job = self.text("rewrite_full", first=not base.programs)
        lessons = summary or last_summary(context, context.operator)[0]
        return self.ask(context, job, base=base, lessons=lessons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarise(Summarising):
    """The summariser of POLCA (arXiv 2603.14769): the lessons of the trials so far, carried over.

    Asked before all others but seeds (an infinite weight), it declines until `every` steps have
    passed since the last summary was asked for. Then it asks for a new one, which stands alone: it
    merges the last one with the trials since. In the same step it asks for a better program. Its
    own prompt quotes the newest summary, and so do all others if it is configured as
    `operators.summarise`.

    Args:
        every: steps of the run between two summaries.
    """

    every: int = 20

    def __post_init__(self) -> None:
        Summarising.__post_init__(self)
        check_whole("operators.*.every", self.every, least=1)

    @property
    def fires_at(self) -> dict[str, int]:
        """When the first summary is due."""
        return {"every": self.every}

    def propose(self, context: Context) -> ModelRequest | Declined:
        asked = self.last_request(context, SUMMARY)
        if context.step - step_of(asked) < self.every:
            return Declined("the next summary is not due yet")
        return self.ask_summary(context, Base.of(context.parents[:1]), "summarise")
