"""An operator of your own: opens a constant that its author left fixed.

An operator is any object with `parents` and `propose(context)`. It may look at nothing but the
context, and it never evaluates; see `evolve.core.protocols.Operator` for the contract. Use it from
this folder:

    PYTHONPATH=. evolve run task=rmsnorm \
        +operators.widen._target_=widen.Widen +operators.widen.weight=1
"""

import re
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal
from evolve.core.source.tunables import parse

PRAGMA = re.compile(r"#pragma omp simd(?! simdlen)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """Gives every `omp simd` loop of the parent an explicit vector length.

    Args:
        simdlen: elements per vector, a power of two.
    """

    simdlen: int = 16

    @property
    def parents(self) -> int:
        return 1

    def propose(self, context: Context) -> Proposal | Declined | Failed:
        if not context.parents:
            return Declined("needs a parent")
        parent = context.parents[0]
        source = context.facts.source(parent.program)
        child = PRAGMA.sub(f"#pragma omp simd simdlen({self.simdlen})", source)
        if child == source:
            return Declined("no loop to widen")
        try:
            parse(child)
        except UsageError as error:
            return Failed(str(error))
        return Proposal(
            program=Program(child),
            assignment=parent.assignment,  # start where the parent's tuning ended
            parents=(parent.program,),
            note=f"simdlen {self.simdlen}",
        )
