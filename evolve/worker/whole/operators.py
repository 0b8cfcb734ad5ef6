"""Operators that only templates implement."""

from collections.abc import Sequence
from functools import lru_cache

import torch

NAMESPACE = "evolve"


@lru_cache(maxsize=1)
def define() -> torch.library.Library:
    """Make them known to torch, once in a process.

    A `view` is (outer, size, inner): the tensor, contiguous, as a batch of outer x inner rows of
    `size` elements each, which lie `inner` apart. Weight and bias of element k in row r are those
    at (r % groups) * channels + k // area, for `affine` = (groups, channels, area).
    """
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(
        "norm(Tensor x, Tensor? weight, Tensor? bias, str kind, int[] view, int[] affine, "
        "float share, float eps) -> Tensor"
    )
    library.define(
        "batch_norm(Tensor x, Tensor mean, Tensor variance, Tensor? weight, Tensor? bias, "
        "int[] view, float eps) -> Tensor"
    )
    library.define(
        "scan(Tensor x, Tensor? mask, int[] view, bool product, bool reverse, bool exclusive) "
        "-> Tensor"
    )
    library.define("cross_entropy(Tensor x, Tensor target, int[] view, int ignored) -> Tensor")
    library.define(
        "total(Tensor a, Tensor? b, Tensor? c, str term, str outcome, int[] shape, float scale) "
        "-> Tensor"
    )
    for name in ("norm", "batch_norm", "scan"):
        torch.library.register_fake(f"{NAMESPACE}::{name}", _like, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::cross_entropy", _of_rows, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::total", _scalar, lib=library)
    return library


def _like(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _of_rows(x: torch.Tensor, target: torch.Tensor, view: Sequence[int], _: int) -> torch.Tensor:
    return x.new_empty(target.shape)


def _scalar(a: torch.Tensor, *_: object) -> torch.Tensor:
    return a.new_empty(())
