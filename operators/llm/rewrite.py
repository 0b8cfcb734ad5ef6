"""A whole new program from its parent."""

from dataclasses import dataclass

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined
from operators.base import Base
from operators.prompting.composition import Memory
from operators.prompting.reply_handling import Answering


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFull(Answering):
    """Asks for a better program in place of the parent, or for a first one if there is none.

    Args:
        from_scratch: always for a first one, and nothing of the search is told: independent
            samples, of which the best is taken (best of N).
    """

    from_scratch: bool = False

    @property
    def parents(self) -> int:
        return 0 if self.from_scratch else 1

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[: self.parents])
        job = self.text("rewrite_full", first=not base.programs)
        memory = Memory.CLEAN if self.from_scratch else Memory.INHERIT
        return self.ask(context, job, base=base, memory=memory)
