"""Results for use elsewhere: lineage graphs, and winners that can be merged.

`evolve.report.export.torch_op` is imported on its own: it needs torch.
"""

from evolve.report.export.graphs import SUFFIXES, export

__all__ = ["SUFFIXES", "export"]
