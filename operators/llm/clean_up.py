"""The compiler's programs in readable form: training data of AutoTriton's second kind."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evolve.core.model import ModelRequest
from evolve.core.protocols import Attempt, Context, Declined
from operators.base import Base
from operators.checks import check_whole
from operators.prompting.composition import Memory, Prompted
from operators.prompting.reply_handling import Answering

NAME = "clean_up"
"""Name of the operator in `conf/operators`; exports select its steps by it."""

_WINDOW = 64  # newest correct steps of each compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp(Answering):
    """Asks for a compiled program in readable form, and for the reasoning that leads to it.

    The model explains a known program as if it were derived from the reference alone (AutoTriton,
    arXiv 2507.05687). It is asked `attempts` times about each correct program of a compiler.

    Args:
        compilers: operators that made the programs to clean up.
        attempts: answers about one program.
    """

    compilers: Sequence[str] = field(default=("inductor", "template_seed"))
    attempts: int = 1

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.*.attempts", self.attempts, least=1)

    @property
    def parents(self) -> int:
        return 0

    def propose(self, context: Context) -> ModelRequest | Declined:
        found = next(self._waiting(context), None)
        if found is None:
            return Declined("every compiled program has been cleaned up, or there is none")
        return self.ask(
            context,
            self.text("clean_up"),
            base=Base.of([found]),
            answer=self.text("answer_clean_up"),
            heading="The program to clean up",
            memory=Memory.CLEAN,
            directed=False,
        )

    def _waiting(self, context: Context) -> Iterator[Attempt]:
        """Correct programs of the compilers with fewer requests than `attempts`, in order."""
        asked = Counter(program for program, _ in self.asked_about(context))
        for compiler in self.compilers:
            newest = context.facts.recent(_WINDOW, operator=compiler, failed=False)
            for attempt in reversed(newest):
                if attempt.program is None:
                    continue
                known = context.facts.children(attempt.program, _WINDOW)
                made = sum(each.operator == context.operator for each in known)
                if max(made, asked[attempt.program]) < self.attempts:
                    yield attempt
