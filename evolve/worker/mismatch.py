"""In words: how a wrong output differs from what was expected, without giving values away."""

import math

from torch import Tensor

_CLOSE = 1e-3  # relative error below which a hypothesis about the mistake explains the output


def describe_mismatch(output: Tensor, truth: Tensor, wrong: Tensor, margin: float) -> str:
    """A sentence or two: share of wrong elements, size of errors, and a likely mistake.

    Args:
        output: What the candidate gave.
        truth: What is right, same shape.
        wrong: Which elements are wrong.
        margin: Largest error over what is allowed, infinite for integers and NaN.
    """
    share = float(wrong.double().mean()) if wrong.numel() else 0.0
    parts = [f"{share:.2%} of elements wrong"]
    if output.is_floating_point():
        parts.append(_error_size(output, truth))
    if margin < math.inf:
        parts.append(f"worst block {margin:.3g} times the allowed error")
    pattern = _pattern(output.double(), truth.double(), wrong)
    if pattern:
        parts.append(f"pattern: {pattern}")
    return "; ".join(parts)


def _error_size(output: Tensor, truth: Tensor) -> str:
    error = (output.double() - truth.double()).abs()
    error = error[error.isfinite()]
    scale = float(truth.double()[truth.isfinite()].square().mean().sqrt()) or 1.0
    if error.numel() == 0:
        return "no finite error"
    largest = float(error.max()) / scale
    sample = error.reshape(-1)[:: max(1, error.numel() // 100_000)]
    usual = float(sample.quantile(0.5)) / scale
    return f"error relative to the output's RMS: median {usual:.2g}, largest {largest:.2g}"


def _pattern(output: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """The first hypothesis that explains the output, empty if none does."""
    if output.isnan().any() and not truth.isnan().any():
        return f"NaN in {float(output.isnan().double().mean()):.2%} of elements"
    if output.isinf().any() and not truth.isinf().any():
        return f"infinite in {float(output.isinf().double().mean()):.2%} of elements"
    if truth.numel() == 0 or not bool(truth.isfinite().all()):
        return ""
    if not output.any():
        return "all zeros"
    if output.numel() > 1 and bool((output == output.reshape(-1)[0]).all()):
        return "all elements equal"
    return _transformed(output, truth) or _place(output, wrong)


def _transformed(output: Tensor, truth: Tensor) -> str:
    factor = float((output * truth).sum() / truth.square().sum().clamp(min=1e-300))
    if abs(factor - 1) > _CLOSE and _explains(factor * truth, output):
        return f"right up to a factor of {factor:.4g}"
    offset = float((output - truth).mean())
    if abs(offset) > 0 and _explains(truth + offset, output) and not _explains(truth, output):
        return "right up to a constant offset"
    if truth.dim() >= 2 and _explains(truth.mT.reshape(truth.shape), output):
        return "last two dimensions transposed"
    if truth.dim() and truth.shape[-1] > 2:
        for shift, words in ((1, "one too late"), (-1, "one too early")):
            if _explains(truth.roll(shift, -1), output, skip_ends=True):
                return f"shifted along the last dimension, {words}"
    return "everywhere close: as if computed in a shorter type" if _explains(truth, output) else ""


def _explains(guess: Tensor, output: Tensor, skip_ends: bool = False) -> bool:
    if skip_ends:
        guess, output = guess[..., 1:-1], output[..., 1:-1]
    return bool((guess - output).norm() <= _CLOSE * output.norm()) and bool(output.any())


def _place(output: Tensor, wrong: Tensor) -> str:
    """Where the wrong elements are, if they keep together."""
    flat = wrong.reshape(-1)
    places = flat.nonzero().reshape(-1)
    if places.numel() == 0 or places.numel() == flat.numel():
        return ""
    first, last, count = int(places[0]), int(places[-1]), flat.numel()
    contiguous = places.numel() >= 0.9 * (last - first + 1)
    if contiguous and last >= count - 1 - count // 64:
        what = "zero" if not output.reshape(-1)[first:].any() else "wrong"
        if abs(first - count / 2) <= count / 64:
            return f"only the first half is right, the rest is {what}"
        return f"the tail is {what}, from flat index {first} of {count}"
    if wrong.dim() >= 2:
        columns = wrong.reshape(-1, wrong.shape[-1]).any(dim=0).nonzero().reshape(-1)
        width = wrong.shape[-1]
        if columns.numel() <= width // 2:
            return (
                f"wrong only in columns {int(columns[0])} to {int(columns[-1])} of {width} "
                "of the last dimension"
            )
        rows = wrong.reshape(-1, width).any(dim=1)
        if float(rows.double().mean()) <= 0.5:
            return f"whole rows wrong, {float(rows.double().mean()):.1%} of them"
    return ""
