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

    A recurrence takes gates, steps x batch x (directions * gates * hidden), weight, directions x
    (gates * hidden) x hidden, bias, directions x (gates * hidden), of a GRU alone, the first hidden
    state and the first cell, directions x batch x hidden. Its states are (steps + 2) x batch x
    (directions * hidden): rows 1 to steps as a layer of torch gives them; at the second direction's
    row 0 and the first one's last row lie the last cells of an LSTM.
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
    library.define(
        "recurrence(Tensor gates, Tensor weight, Tensor? bias, Tensor hidden, Tensor? cell, "
        "str kind) -> Tensor"
    )
    for name in ("norm", "batch_norm", "scan"):
        torch.library.register_fake(f"{NAMESPACE}::{name}", _like, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::cross_entropy", _of_rows, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::total", _scalar, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::recurrence", _states, lib=library)
    return library


def _like(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _of_rows(x: torch.Tensor, target: torch.Tensor, view: Sequence[int], _: int) -> torch.Tensor:
    return x.new_empty(target.shape)


def _states(
    gates: torch.Tensor, weight: torch.Tensor, bias: object, hidden: torch.Tensor, *_: object
) -> torch.Tensor:
    directions, batch, size = hidden.shape
    return gates.new_empty(gates.shape[0] + 2, batch, directions * size)


def _scalar(a: torch.Tensor, *_: object) -> torch.Tensor:
    return a.new_empty(())
