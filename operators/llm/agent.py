"""A coding agent that tries programs with the judge before it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest, ReplyStatus
from evolve.core.protocols import Context, Declined, Failed, Reading
from operators.base import Base
from operators.prompting.replies import read_prose
from operators.prompting.reply_handling import Answering, read_whole

MODEL = "agent"
"""Name of the model that stands for the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgent(Answering):
    """Asks a coding agent, which has tools and verdicts of its own, for a better program.

    Those that it submits on its way are steps of the run; its answer may be one more. An answer
    without a program is not corrected, for that would be another episode.
    """

    mends: int = 0
    is_agent = True

    @property
    def roles(self) -> tuple[str, ...]:
        return (MODEL,)

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        job = self.text("agent", first=not base.programs)
        answer = self.text("answer_agent")
        return self.ask(context, job, base=base, answer=answer, model=MODEL)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`; an answer needs no further program."""
        found = read_whole(exchanges)
        if found.status is not ReplyStatus.NO_CODE:
            return self.settle(context, exchanges, found)
        said = read_prose(exchanges[-1].reply.text)
        return Reading(ReplyStatus.STEP, Failed(f"no program but those that it tried: {said}"))
