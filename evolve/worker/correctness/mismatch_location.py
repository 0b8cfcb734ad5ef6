"""In words: where the wrong elements of an output are, if they keep together.

Works on a mask on any device. Of the last two dimensions one speaks as rows and columns.
"""

import torch
from torch import Tensor

_FULL, _FILLED = 0.98, 0.5  # share of a region that is wrong: some is right by accident
_MAX_INDICES = 1 << 14  # of one dimension that are looked at one by one


def describe_place(wrong: Tensor) -> str:
    """Where the mask is set; empty if it is set everywhere, nowhere, or without a pattern."""
    count = int(wrong.sum())
    if count in (0, wrong.numel()):
        return ""
    covers = [_covered(wrong, dim) for dim in range(wrong.dim())]
    words = _box(wrong, covers, count, _FULL) or _triangle(wrong) or _flat_range(wrong, count)
    words = words or _box(wrong, covers, count, _FILLED) or _border(wrong, count)
    return words or _comb(wrong, covers, count) or _whole_rows(wrong)


def _covered(wrong: Tensor, dim: int) -> Tensor:
    """The indices along a dimension at which anything is wrong, ascending."""
    others = [other for other in range(wrong.dim()) if other != dim]
    line = wrong.any(dim=others) if others else wrong
    return line.nonzero().reshape(-1)


def _box(wrong: Tensor, covers: list[Tensor], count: int, share: float) -> str:
    """A block of neighbouring indices in every dimension, of which at least a share is wrong."""
    bounds = [(int(cover[0]), int(cover[-1]) + 1) for cover in covers]
    volume = 1
    for low, high in bounds:
        volume *= high - low
    if count < share * volume:
        return ""
    parts = [
        _range(_name(wrong.dim(), dim), low, high, size)
        for dim, ((low, high), size) in enumerate(zip(bounds, wrong.shape, strict=True))
        if high - low < size
    ]
    return "wrong only in " + ", ".join(parts) if parts else ""


def _name(dims: int, dim: int) -> str:
    from_end = dims - dim
    return {1: "column", 2: "row"}.get(from_end, f"index of dimension {dim}")


def _range(name: str, low: int, high: int, size: int) -> str:
    many = name.replace("index", "indices") if name.startswith("index") else f"{name}s"
    if high - low == 1:
        where = {0: "the first", size - 1: "the last"}.get(low)
        return f"{where} {name} of {size}" if where else f"{name} {low} of {size}"
    if high == size:
        return f"the tail: {many} {low} to {size - 1} of {size}{_aligned(low)}"
    if low == 0:
        return f"the first {high} {many} of {size}{_aligned(high)}"
    return f"{many} {low} to {high - 1} of {size}{_aligned(low)}"


def _aligned(index: int) -> str:
    """The power of two at which a tile seems to begin or end."""
    power = index & -index
    return f" (at a multiple of {min(power, 1024)})" if power >= 8 else ""


def _flat_range(wrong: Tensor, count: int) -> str:
    """Neighbours in memory, beginning or ending in the middle of a row."""
    flat, size = wrong.reshape(-1).view(torch.uint8), wrong.numel()
    low, high = int(flat.argmax()), size - int(flat.flip(0).argmax())
    if count < 0.9 * (high - low) or high - low > 0.99 * size:
        return ""
    if high == size:
        return f"the tail is wrong, from flat index {low} of {size}{_aligned(low)}"
    return f"wrong only from flat index {low} to {high - 1} of {size}"


def _triangle(wrong: Tensor) -> str:
    """One side of the diagonal, or the diagonal alone: a mask gone wrong."""
    if wrong.dim() < 2 or min(wrong.shape[-2:]) < 4:
        return ""
    for part, name, least in (
        (wrong.tril(0).triu(0), "on the diagonal", min(wrong.shape[-2:])),
        (wrong.triu(1), "above the diagonal", min(wrong.shape[-2:])),
        (wrong.tril(-1), "below the diagonal", min(wrong.shape[-2:])),
    ):
        if not bool((wrong ^ part).any()):
            used = part.reshape(-1, *part.shape[-2:]).any(dim=0)
            rows, columns = used.any(dim=1).sum(), used.any(dim=0).sum()
            if min(int(rows), int(columns)) >= least - 1:
                return f"wrong only {name} of the last two dimensions"
    return ""


def _border(wrong: Tensor, count: int) -> str:
    """The outermost rows and columns: padding, or a halo."""
    if wrong.dim() < 2 or min(wrong.shape[-2:]) < 5:
        return ""
    inner = wrong[..., 1:-1, 1:-1]
    border = wrong.numel() - inner.numel()
    if bool(inner.any()) or count < _FILLED * border:
        return ""
    return "wrong only at the border of the last two dimensions, one element wide"


def _comb(wrong: Tensor, covers: list[Tensor], count: int) -> str:
    """Every n-th index of one dimension."""
    for dim, cover in enumerate(covers):
        size = wrong.shape[dim]
        if not 3 <= cover.numel() <= min(size // 2, _MAX_INDICES):
            continue
        gaps = cover.diff()
        step = int(gaps[0])
        if bool((gaps == step).all()) and count >= _FILLED * cover.numel() * wrong.numel() / size:
            first, name = int(cover[0]), _name(wrong.dim(), dim)
            return f"wrong only in every {_ordinal(step)} {name}, from {first} on"
    return ""


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 < number % 100 < 14 else ending}"


def _whole_rows(wrong: Tensor) -> str:
    """Some rows entirely, the others not at all."""
    if wrong.dim() < 2 or wrong.shape[-1] < 4:
        return ""
    rows = wrong.reshape(-1, wrong.shape[-1]).sum(dim=1)
    hit = rows > 0
    if bool(hit.all()) or float(rows[hit].double().mean()) < 0.75 * wrong.shape[-1]:
        return ""
    return f"whole rows are wrong, {int(hit.sum())} of {rows.numel()}, the others right"
