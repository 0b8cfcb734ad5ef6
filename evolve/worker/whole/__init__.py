"""Operations of an exported graph that the compiler is to leave whole, for templates to do.

Normalisations, scans, losses of rows and sums over everything are recognised by what the graph
computes, not by the name of a task, and become calls of operators that have no implementation: in
the output code they stay calls, and what is around them is fused as ever.
"""

from typing import Any

from evolve.worker.whole.losses import keep_losses
from evolve.worker.whole.norms import keep_norms
from evolve.worker.whole.operators import NAMESPACE, define
from evolve.worker.whole.scans import keep_scans
from evolve.worker.whole.totals import keep_totals

__all__ = ["NAMESPACE", "keep_operations", "keep_sums"]


def keep_operations(graph: Any) -> None:
    """Of a graph as it was exported, before operations are decomposed."""
    define()
    keep_norms(graph)
    keep_scans(graph)
    keep_losses(graph)
    graph.eliminate_dead_code()


def keep_sums(graph: Any) -> None:
    """Of a graph of decomposed operations: sums over everything, with what is summed."""
    define()
    keep_totals(graph)
    graph.eliminate_dead_code()
