"""A whole new program from its parent."""

from dataclasses import dataclass

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined
from operators.answers import Answering
from operators.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFull(Answering):
    """Asks for a better program in place of the parent, or for a first one where there is none."""

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        return self.ask(context, self.text("rewrite_full", first=not base.programs), base=base)
