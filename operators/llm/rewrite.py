"""A whole new program from its parent, in its language or in another one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evolve.core.devices import device_kind_of
from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from evolve.languages.base import Language
from evolve.languages.registry import detect_language, find_language, languages, timed_on
from operators.base import Base
from operators.knowledge import Diagnosis
from operators.prompting.composition import Memory
from operators.prompting.diagnosis import device_of
from operators.prompting.reply_handling import Answering, read_whole

_CHILDREN = 64  # of the parent, that are looked at
_REQUESTS = 64  # newest ones


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Translate(Answering):
    """Asks for the parent in another language, so that one archive has parents in both.

    `language` is the one to translate into; `auto` draws one that the device runs and whose
    packages are installed. A parent is translated into each once. An answer in another language
    than that is taken as it is.
    """

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        if not base.programs:
            return Declined("needs a parent")
        (parent, _), *_ = base.programs
        before = detect_language(context.facts.source(parent))
        done = {child.note.partition(";")[0] for child in context.facts.children(parent, _CHILDREN)}
        done |= {_note(str(one.memo["into"])) for one in self._requests(context, parent)}
        others = [one for one in self._wanted(context) if one is not before]
        left = [one for one in others if _note(one.name) not in done]
        if not left:
            return Declined("the parent is in every language that is wanted, or has been asked for")
        into = context.rng.choice(left)
        job = self.text("translate", before=before.title, into=into.title)
        named = replace(self, language=into.name)
        # By the language alone: the notes about the parent's limit are mostly about other ones.
        key = Diagnosis(device=device_of(context), language=into.name)
        memo = {"into": into.name}
        return named.ask(context, job, base=base, diagnosis=key, directed=False, memo=memo)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        note = _note(str(exchanges[0].request.memo["into"]))
        return self.settle(context, exchanges, read_whole(exchanges), note=note)

    def _requests(self, context: Context, parent: str) -> list[ModelRequest]:
        """Those about a parent, unanswered ones too."""
        asked = context.facts.requests(context.operator, "propose", _REQUESTS)
        return [one for one in asked if Base.of_request(one).digest == parent]

    def _wanted(self, context: Context) -> Sequence[Language]:
        if self.language != "auto":
            return (find_language(self.language),)
        device_class = context.device.get("device_class", "")
        known = timed_on(device_kind_of(device_class)) if device_class else languages().values()
        return tuple(one for one in known if not one.missing_package())


def _note(language: str) -> str:
    return f"into {language}"
