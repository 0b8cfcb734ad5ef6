"""The programs that a search starts from."""

from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Proposal
from evolve.core.source import tunables


class Seed:
    """Proposes the seeds of the run's task, each once, in order, as written.

    Those are the user's programs and the task's own. Which one is next is read off the number of
    proposals that the run has of this operator, so that a seed which is refused as a duplicate is
    not proposed for ever.
    """

    parents = 0
    is_seed = True

    def propose(self, context: Context) -> Proposal | Declined:
        """The next seed.

        Raises:
            UsageError: it is empty, is not Python, defines no ModelNew, or declares its tunables
                wrongly.
        """
        seeds, number = context.task.seeds, context.facts.proposals(context.operator)
        if number >= len(seeds):
            return Declined("every seed has been proposed")
        _check(f"seed {number + 1} of task {context.task.name}", seeds[number])
        return Proposal(program=Program(seeds[number]), note=f"seed {number + 1} of {len(seeds)}")


def _check(what: str, source: str) -> None:
    if not source.strip():
        raise UsageError(f"{what} is empty; give a Python module that defines ModelNew")
    if "ModelNew" not in source:
        raise UsageError(f"{what} defines no ModelNew; rename its module class to ModelNew")
    try:
        tunables.parse(source)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
