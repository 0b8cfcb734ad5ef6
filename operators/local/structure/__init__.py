"""Rewrites of Triton programs that need no model: other loops, other grids, other kernels.

Each takes a program of the form that compiler seeds and templates have, and a kernel of it, and
gives the text of another program that computes the same, or says why it cannot. Names:

- `persistent_grid`: as many programs as are chosen, each of which takes tile after tile;
- `hold_rows`: a row that is read in several loops is read once, and held in registers;
- `pipeline_loops`: loops load ahead, by a number of stages that is a tunable;
- `fuse_pointwise`: an elementwise kernel and the one after it become one;
- `split_reduction`: several programs sum a row in parts, a second kernel adds those and goes on.
"""

from collections.abc import Callable, Mapping

from operators.local.structure.fuse import fuse_pointwise
from operators.local.structure.hold import hold_rows
from operators.local.structure.persistent import persistent_grid
from operators.local.structure.pipeline import pipeline_loops
from operators.local.structure.program import NotApplicable, TritonProgram
from operators.local.structure.split import split_reduction

__all__ = ["REWRITES", "NotApplicable", "TritonProgram"]

REWRITES: Mapping[str, Callable[[TritonProgram, str], str]] = {
    "persistent_grid": persistent_grid,
    "hold_rows": hold_rows,
    "pipeline_loops": pipeline_loops,
    "fuse_pointwise": fuse_pointwise,
    "split_reduction": split_reduction,
}
"""By name: functions from a program and the name of a kernel to a source.

They raise NotApplicable with the reason, and UsageError if the source cannot be read.
"""
