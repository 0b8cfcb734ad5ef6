"""The output of PyTorch's compiler for the reference, as initial programs of a search."""

from collections.abc import Sequence

from evolve.core.compiled import VARIANTS, WHOLE
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal
from operators.checks import check_choice
from operators.local.inductor import NotConvertible, convert, precisions


class CompilerSeed:
    """Proposes each of the run's compiled references, once, as a program that stands alone.

    The device's worker has the compiler; its output is stored with the run (`Task.compiled`).

    Args:
        variants: settings of the compiler to ask for, of `VARIANTS`.

    Raises:
        UsageError: there is no such variant.
    """

    parents = 0
    is_seed = True

    def __init__(self, variants: Sequence[str] = VARIANTS) -> None:
        for variant in variants:
            check_choice("operators.*.variants", variant, VARIANTS)
        self.variants = tuple(variants)

    def propose(self, context: Context) -> Proposal | Declined | Failed:
        """The next variant's program; a failure if it needs parts that only the compiler has."""
        wanted = set(self.variants) - {WHOLE}
        compiled = [each for each in context.task.compiled if each.variant in wanted]
        number = context.facts.proposals(context.operator)
        if number >= len(compiled):
            return Declined("every compiled reference has been proposed")
        chosen = compiled[number]
        try:
            source = convert(
                context.task.source,
                context.task.name,
                chosen,
                precisions=precisions(context.task.accumulation, context.device.get("arch", "")),
            )
        except NotConvertible as error:
            return Failed(f"variant {chosen.variant}: {error}")
        return Proposal(program=Program(source), note=f"variant {chosen.variant}")
