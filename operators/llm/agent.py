"""A coding agent that tries programs with the judge before it answers."""

from dataclasses import dataclass

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined
from operators.base import Base
from operators.prompting.reply_handling import Answering

MODEL = "agent"
"""Name of the model that stands for the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgent(Answering):
    """Asks a coding agent, which has tools and verdicts of its own, for a better program.

    Those that it submits on its way are steps of the run; its answer may be one more. An answer
    without a program is not corrected, for that would be another episode.
    """

    mends: int = 0

    @property
    def roles(self) -> tuple[str, ...]:
        return (MODEL,)

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        job = self.text("agent", first=not base.programs)
        answer = self.text("answer_agent")
        return self.ask(context, job, base=base, answer=answer, model=MODEL)
