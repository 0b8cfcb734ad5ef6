"""A language that Triton programs of the compiler can be rewritten in."""

from dataclasses import dataclass

from operators.local.inductor import Rewrite
from operators.local.templates.operations.matmul import Launches


@dataclass(frozen=True, slots=True)
class Port:
    """A language, and how its programs are made.

    Attributes:
        language: its name.
        products: launches of its kernels in the place of a vendor's library.
        rewrite: a program with those. Raises `NotConvertible` if a kernel has something that cannot
            be rewritten.
        products_on: major numbers of the compute capability of the GPUs that those run on.
        tiled: the same as `products`, with tiles that the tensor memory accelerator reads where it
            can; None if the language has none.
        stretched: the same as `tiled`, whose long sums of float32 begin with two products of parts.
    """

    language: str
    products: Launches
    rewrite: Rewrite
    products_on: range
    tiled: Launches | None = None
    stretched: Launches | None = None
