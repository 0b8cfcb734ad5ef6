"""From the replies of a ticket to its proposals, for all operators with prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, Exchange, Message, ModelRequest, ReplyStatus
from evolve.core.program import Program
from evolve.core.protocols import MAX_ROUNDS, Context, Declined, Failed, Proposal, Reading
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.tokens import estimate_tokens
from evolve.core.source.tunables import parse
from operators.base import Base
from operators.prompting.composition import Prompted
from operators.prompting.edits import EditFault, Refusal, apply_edits, read_edits
from operators.prompting.replies import Found, read_program, read_prose
from operators.quoting import quote, shortened, visible
from operators.source.scope import EditScope, breach

REPAIR = "repair"
"""Purpose of a request that asks a model to correct its own answer."""

MAX_QUOTED_REPLY_CHARS = 40_000

_HOPELESS = (ReplyStatus.TRUNCATED, ReplyStatus.EMPTY, ReplyStatus.UNCHANGED)

Check = Callable[[str], Found]
"""Looks at a program that could be read, and passes it on or names the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering(Prompted):
    """An operator whose answer is one whole program."""

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        return self.settle(context, exchanges, read_whole(exchanges))

    def settle(
        self,
        context: Context,
        exchanges: Sequence[Exchange],
        found: Found,
        *,
        note: str = "",
        check: Check | None = None,
    ) -> Reading:
        """A proposal, or a request to correct the answer, or a recorded failure.

        Args:
            context: of the ticket.
            exchanges: its rounds.
            found: the content of the last reply.
            note: what the step was meant to be, for the lineage; what the reply says of it follows.
            check: the operator's own requirement on a program.
        """
        base = Base.recall(exchanges)
        if found.status is ReplyStatus.PROGRAM:
            found = examined(found, base.source(context.facts))
        if found.status is ReplyStatus.PROGRAM and check is not None:
            found = check(found.source)
        if found.status is ReplyStatus.PROGRAM:
            prose = read_prose(exchanges[-1].reply.text)
            said = "; ".join(part for part in (note, found.note, prose) if part)
            proposal = Proposal(program=Program(found.source), parents=base.digests, note=said)
            return Reading(found.status, proposal)
        said = ": ".join(part for part in (note, found.status, found.note) if part)
        failed = Failed(said, base.digests)
        return Reading(found.status, self._mend(context, exchanges, found) or failed)

    def _mend(
        self, context: Context, exchanges: Sequence[Exchange], found: Found
    ) -> ModelRequest | None:
        """A request to correct the last answer, where that is allowed and has a chance.

        The conversation takes two prompts' worth at most.
        """
        last = exchanges[-1]
        mends = sum(exchange.request.purpose == REPAIR for exchange in exchanges)
        full = mends >= self.mends or len(exchanges) >= MAX_ROUNDS
        if full or found.status in _HOPELESS or last.reply.status is not CallStatus.COMPLETED:
            return None
        wrong = self.text("mend", fault=quote(visible(found.note), "what is wrong"))
        said = shortened(visible(last.reply.text), MAX_QUOTED_REPLY_CHARS)
        messages = (*last.request.messages, Message("assistant", said), Message("user", wrong))
        used = sum(estimate_tokens(message.content) for message in messages)
        if used > self.room(context, prompts=2):
            return None
        return ModelRequest(
            messages=messages,
            model=last.request.model,
            sampling=last.request.sampling,
            max_tokens=last.request.max_tokens,
            purpose=REPAIR,
            memo=last.request.memo,
        )


def further(asked: ModelRequest | Declined, status: ReplyStatus = ReplyStatus.STEP) -> Reading:
    """One more round that builds upon a reply, or a failure where it cannot be asked for."""
    return Reading(status, Failed(asked.reason) if isinstance(asked, Declined) else asked)


def read_whole(exchanges: Sequence[Exchange]) -> Found:
    """The program in the last reply."""
    reply = exchanges[-1].reply
    return read_program(reply.text, cut=reply.status is CallStatus.TRUNCATED)


def read_edited(exchanges: Sequence[Exchange], before: str, scope: EditScope) -> Found:
    """The program that the edits in the last reply make of another one.

    A whole program instead of edits is taken too, where it keeps to the scope. In a reply
    that was cut, edits may be missing, and edits are applied together or not at all.
    """
    reply = exchanges[-1].reply
    edits = read_edits(reply.text)
    if isinstance(edits, Refusal) and edits.fault is EditFault.NO_EDITS:
        found = read_whole(exchanges)
        if found.status is not ReplyStatus.PROGRAM:
            return Found(found.status, note=f"no search/replace edits, and {found.note}")
        after, note = found.source, "a whole program instead of edits"
    elif reply.status is CallStatus.TRUNCATED:
        return Found(ReplyStatus.TRUNCATED, note="it was cut among or after its edits")
    else:
        edited = edits if isinstance(edits, Refusal) else apply_edits(before, edits)
        if isinstance(edited, Refusal):
            return _refused(edited)
        after, note = edited, ""
    if wrong := breach(before, after, scope):
        return Found(ReplyStatus.OUT_OF_SCOPE, after, wrong)
    return Found(ReplyStatus.PROGRAM, after, note)


def _refused(refusal: Refusal) -> Found:
    syntax = refusal.fault is EditFault.SYNTAX
    status = ReplyStatus.SYNTAX_ERROR if syntax else ReplyStatus.EDIT_FAILED
    return Found(status, note=f"{refusal.fault}: {refusal.detail}")


def examined(found: Found, before: str) -> Found:
    """A program that declares its tunables rightly, and says something else than before.

    Other values of its tunables are something else.
    """
    try:
        values = parse(found.source).defaults
    except UsageError as error:
        return Found(ReplyStatus.BAD_TUNABLES, found.source, str(error))
    alike = before and normalised_digest(found.source) == normalised_digest(before)
    if alike and values == parse(before).defaults:
        return Found(ReplyStatus.UNCHANGED, found.source, "the program is that of its parent")
    return found
