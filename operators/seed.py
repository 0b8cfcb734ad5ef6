"""The programs that a search starts from."""

from collections.abc import Sequence

from evolve.core import tunables
from evolve.core.errors import UsageError
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import Context, Declined, Proposal


class Seed:
    """Proposes the user's initial programs, then the task's seeds, each once, as written.

    Args:
        sources: texts of the user's programs.

    Raises:
        UsageError: a text is empty, is not Python, defines no ModelNew, or declares its tunables
            wrongly.
    """

    parents = 0

    def __init__(self, *, sources: Sequence[str] = ()) -> None:
        for number, source in enumerate(sources, start=1):
            _check(f"initial program {number}", source)
        self._sources = tuple(sources)

    def propose(self, context: Context) -> Proposal | Declined:
        """The first program that the run has not proposed yet.

        Raises:
            UsageError: a seed of the task is wrong, as for `sources`.
        """
        for number, source in enumerate((*self._sources, *context.task.seeds), start=1):
            program = Program(source)
            if not context.facts.seen(instance_digest(program.digest, {})):
                initial = number <= len(self._sources)
                if not initial:
                    _check(f"a seed of task {context.task.name}", source)
                return Proposal(program=program, note="initial program" if initial else "task seed")
        return Declined("every seed has been proposed")


def _check(what: str, source: str) -> None:
    if not source.strip():
        raise UsageError(f"{what} is empty; give a Python module that defines ModelNew")
    if "ModelNew" not in source:
        raise UsageError(f"{what} defines no ModelNew; rename its module class to ModelNew")
    try:
        tunables.parse(source)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
