"""Operations of an exported graph that the compiler is to leave whole, for templates to do.

Normalisations, scans, recurrent layers, losses of rows and sums over everything are recognised by
the graph's computation, not by the name of a task, and become calls of operators that have no
implementation: in the output code they stay calls, and operations around them are fused as usual.
"""

from collections.abc import Mapping
from typing import Any

from evolve.worker.build.decompositions.losses import keep_losses
from evolve.worker.build.decompositions.nodes import fakes
from evolve.worker.build.decompositions.norms import keep_batch_norms, keep_norms
from evolve.worker.build.decompositions.operators import NAMESPACE, define
from evolve.worker.build.decompositions.recurrences import keep_recurrences
from evolve.worker.build.decompositions.scans import keep_scans
from evolve.worker.build.decompositions.totals import keep_totals

__all__ = ["NAMESPACE", "decomposed", "keep_recurrences"]


def decomposed(program: Any, decompositions: Mapping[Any, Any]) -> Any:
    """An exported program in simpler operations, those that are recognised left whole.

    Args:
        program: as `torch.export` gives it.
        decompositions: of operators, as `run_decompositions` takes them.
    """
    define()
    keep_batch_norms(program.graph)  # they are single operations, which the next step takes apart
    program = program.run_decompositions({})  # nothing changes in place from here on
    for keep in (keep_norms, keep_scans, keep_losses):
        keep(program.graph)
    program.graph.eliminate_dead_code()
    program = program.run_decompositions(decompositions)
    keep_totals(program.graph)
    program.graph.eliminate_dead_code()
    for node in program.graph.nodes:
        if str(node.target).startswith(f"{NAMESPACE}."):
            # By this alone Inductor knows in which layouts such an operator gets its operands.
            node.meta["eager_input_vals"] = (fakes(node.args), {})
    program.graph_module.recompile()
    return program
