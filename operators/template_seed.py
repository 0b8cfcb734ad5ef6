"""Compiled references with kernels of ours for what the compiler leaves to vendors' libraries."""

from collections.abc import Sequence

from evolve.core.compiled import VARIANTS
from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal
from operators.inductor import NotConvertible, convert
from operators.templates import Products, has_products, precisions


class TemplateSeed:
    """Proposes, once for each compiled reference that calls a library, one that calls none.

    Products of matrices and convolutions become Triton kernels with open tunables; what the
    compiler fused around them stays. On a GPU only.

    Args:
        variants: settings of the compiler whose code to take, of `VARIANTS`.

    Raises:
        UsageError: there is no such variant.
    """

    parents = 0

    def __init__(self, variants: Sequence[str] = ("default", "same_layout")) -> None:
        unknown = [variant for variant in variants if variant not in VARIANTS]
        if unknown:
            raise UsageError(
                f"operators.template_seed.variants: {unknown[0]!r} is none; "
                f"choose of {', '.join(VARIANTS)}"
            )
        self.variants = tuple(variants)

    def propose(self, context: Context) -> Proposal | Declined | Failed:
        """The next one; a failure where it needs what only the compiler has."""
        task, number = context.task, context.facts.proposals("template_seed")
        known = [
            compiled
            for compiled in task.compiled
            if compiled.variant in self.variants and has_products(compiled)
        ]
        if number >= len(known):
            return Declined("every compiled reference that calls a library has been proposed")
        chosen = known[number]
        products = Products(precisions(task.accumulation))
        try:
            source = convert(task.source, task.name, chosen, products)
        except NotConvertible as error:
            return Failed(f"variant {chosen.variant}: {error}")
        return Proposal(program=Program(source), note=f"variant {chosen.variant}, own products")
