"""One operator whose variety comes from context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from operators.base import Base
from operators.checks import check_choice, check_weights
from operators.knowledge import Bottleneck, Diagnosis
from operators.prompting.composition import Memory, Prompted
from operators.prompting.diagnosis import diagnose, reconsidered
from operators.prompting.prompt_context import exhibit
from operators.prompting.reply_handling import Answering, further, read_whole

DIAGNOSE = "diagnose"
_EVEN = {memory.value: 1.0 for memory in Memory}


@dataclass(frozen=True, slots=True, kw_only=True)
class Universal(Answering):
    """The universal operator of KernelEvolve (arXiv 2512.23236): diagnose, retrieve, compose.

    There is no menu of draft, debug and improve: one prompt, with content that differs from step to
    step. `diagnose` names the parent's bottleneck, the knowledge that fits it is retrieved, and one
    of four memories of the search is told.

    Args:
        memory: weights of the modes in `operators.prompting.composition.Memory`, drawn for every
            step.
        diagnosis: `facts` for a diagnosis from the judge's words and times, `model` to ask a model
            first in a call of its own.
    """

    memory: Mapping[str, float] = field(default_factory=lambda: dict(_EVEN))
    diagnosis: str = "facts"

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_weights("operators.*.memory", self.memory, [*Memory])
        check_choice("operators.*.diagnosis", self.diagnosis, ("facts", "model"))

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        modes = sorted(self.memory)
        (drawn,) = context.rng.choices(modes, [self.memory[mode] for mode in modes])
        if self.diagnosis == "facts" or not base.programs:
            return self._compose(context, base, Memory(drawn))
        return self.ask(
            context,
            self.text("diagnose"),
            base=base,
            answer=self.text("answer_diagnosis", limits=[*Bottleneck]),
            memory=Memory(drawn),
            diagnosis=Diagnosis(),  # no documents: they are picked by the answer
            directed=False,
            purpose=DIAGNOSE,
            memo={"memory": drawn},
        )

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        first = exchanges[0]
        memory = Memory(str(first.request.memo["memory"]))
        if len(exchanges) == 1 and first.request.purpose == DIAGNOSE:
            base = Base.recall(exchanges)
            return further(self._compose(context, base, memory, first.reply.text))
        return self.settle(context, exchanges, read_whole(exchanges), note=f"memory {memory}")

    def _compose(
        self, context: Context, base: Base, memory: Memory, words: str = ""
    ) -> ModelRequest | Declined:
        """The request for a program; `words` is a model's remark about the parent."""
        job = self.text("universal", first=not base.programs, words=words)
        diagnosis = None
        if words:
            parent = exhibit(context, *base.programs[0])
            language = self.language_for(context, [parent])
            diagnosis = reconsidered(diagnose(context, language, [parent]), words)
        said = {"memory": memory.value}
        return self.ask(context, job, base=base, memory=memory, diagnosis=diagnosis, memo=said)
