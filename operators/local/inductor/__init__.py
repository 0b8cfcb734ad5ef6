"""Programs from the output of PyTorch's compiler for a reference.

`convert` turns the output code of Inductor into a Triton program that stands alone: kernels with
names and open tunables, and a `ModelNew` that has the reference's constructor and weights. It is
text in, text out: whoever has the device compiles (`evolve.core.compiled`).
"""

from operators.local.inductor.products import PRECISIONS, precisions
from operators.local.inductor.program import Rewrite, Substitute, convert
from operators.local.inductor.reading import NotConvertible

__all__ = ["PRECISIONS", "NotConvertible", "Rewrite", "Substitute", "convert", "precisions"]
