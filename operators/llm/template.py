"""Programs with open constants, which `tune` then tunes."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest, ReplyStatus
from evolve.core.protocols import Context, Declined, Reading
from evolve.core.source.tunables import parse
from operators.base import Base
from operators.checks import check_whole
from operators.prompting.composition import INSTANCES, Prompted
from operators.prompting.replies import Found
from operators.prompting.reply_handling import Answering, read_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Template(Answering):
    """Asks for a program that leaves its constants open, so that structure and numbers part.

    A structure is then judged by its best instance, found by the built-in `tune`, and not by the
    numbers that a model happened to write.

    Args:
        tunables: the fewest open constants.
        instances: the most combinations of their choices.
    """

    tunables: int = 2
    instances: int = INSTANCES

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.*.tunables", self.tunables, least=1)
        check_whole("operators.*.instances", self.instances, least=2)

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        job = self.text(
            "template",
            first=not base.programs,
            tunables=self.tunables,
            instances=self.instances,
            tunes=context.tunes,
        )
        return self.ask(context, job, base=base)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        found = read_whole(exchanges)
        return self.settle(context, exchanges, found, note="template", check=self._check)

    def _check(self, source: str) -> Found:
        space = parse(source)
        if len(space) < self.tunables:
            note = f"it leaves {len(space)} constants open; at least {self.tunables} are asked for"
            return Found(ReplyStatus.BAD_TUNABLES, source, note)
        if space.size > self.instances:
            note = f"it has {space.size} instances; at most {self.instances} are asked for"
            return Found(ReplyStatus.BAD_TUNABLES, source, note)
        return Found(ReplyStatus.PROGRAM, source)
