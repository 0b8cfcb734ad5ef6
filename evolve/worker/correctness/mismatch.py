"""In words: how a wrong output differs from the expected one, without giving values away.

Every explanation is a hypothesis about the mistake that was tested on the numbers: the truth,
transformed as the mistake would, has to give the output to a thousandth. Tensors may be on any
device; of large ones a regular sample is looked at.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from evolve.worker.correctness.mismatch_location import describe_place

_CLOSE = 1e-3  # relative error (in norm) up to which a hypothesis explains the output
_SHORTER_TYPE = 0.02  # of an element and the RMS together: the most that rounding alone does
_LOOKED_AT = 1 << 20  # elements of a tensor that are converted at once
_TYPICAL_ERROR = ((2**-11, "bfloat16"), (2**-16, "float16 or TF32"))  # relative, more than this
_MIN_ROW = 8  # shorter rows are explained by a factor of their own too easily


def describe_mismatch(output: Tensor, truth: Tensor, wrong: Tensor, margin: float) -> str:
    """A sentence or two: share of wrong elements, size of errors, and a likely mistake.

    Args:
        output: The candidate's.
        truth: The right values, same shape and device.
        wrong: Which elements are wrong.
        margin: Largest error over the allowed one, infinite for integers and NaN.
    """
    share = int(wrong.sum()) / max(1, wrong.numel())
    parts = [f"{share:.2%} of elements wrong"]
    if output.is_floating_point():
        parts.append(_error_size(output, truth))
    if margin < math.inf:
        parts.append(f"worst block {margin:.3g} times the allowed error")
    pattern = describe_pattern(output, truth, wrong)
    if pattern:
        parts.append(f"pattern: {pattern}")
    return "; ".join(parts)


def describe_pattern(output: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """The first hypothesis that explains the output; empty if none does."""
    if output.numel() == 0:
        return ""
    if output.is_floating_point():
        found = _nonfinite(output, truth) or _finite(output, truth, wrong)
        if found:
            return found
    if not bool(_sample(truth).double().isfinite().all()):
        return describe_place(wrong)
    if not bool(output.any()) and bool(truth.any()):
        return "all zeros"
    if output.numel() > 1 and bool((output == output.reshape(-1)[0]).all()):
        return "all elements equal"
    if _everywhere_close(output, truth):
        return _rounded(output, truth, wrong)
    return (
        _scaled(output, truth)
        or _moved_as_a_whole(output, truth)
        or _local(output, wrong)
        or _by_lines(output, truth)
        or _reordered(output, truth)
    )


def _sample(tensor: Tensor, most: int = _LOOKED_AT) -> Tensor:
    """The tensor, or every n-th index of its first dimensions where it is large."""
    for dim in range(tensor.dim()):
        step = math.ceil(tensor.numel() / most)
        if step > 1:
            index = (slice(None),) * dim + (slice(None, None, step),)
            tensor = tensor[index]
    return tensor


def _error_size(output: Tensor, truth: Tensor) -> str:
    output, truth = _sample(output).double(), _sample(truth).double()
    error = (output - truth).abs()
    error = error[error.isfinite()]
    if error.numel() == 0:
        return "no finite error"
    scale = _rms(truth)
    few = error[:: max(1, error.numel() // 100_000)]
    usual, largest = float(few.median()) / scale, float(error.max()) / scale
    return f"error relative to the output's RMS: median {usual:.2g}, largest {largest:.2g}"


def _rms(truth: Tensor) -> float:
    finite = truth[truth.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() and finite.any() else 1.0


def _nonfinite(output: Tensor, truth: Tensor) -> str:
    """NaN or infinities that the truth does not have, and where."""
    for name, found in (("NaN", output.isnan() & ~truth.isnan()),
                        ("infinite", output.isinf() & ~truth.isinf())):  # fmt: skip
        if bool(found.any()):
            share = int(found.sum()) / found.numel()
            place = describe_place(found).replace("wrong only", "only").replace("is wrong, ", "")
            return f"{name} in {share:.2%} of elements" + (f", {place}" if place else "")
    return ""


def _finite(output: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """Finite values where the reference has none."""
    for name, found in (("NaN", truth.isnan()), ("infinite", truth.isinf())):
        found = found & wrong & output.isfinite()
        if bool(found.any()):
            share = int(found.sum()) / found.numel()
            here = "zero" if not bool(output[found].any()) else "finite"
            place = describe_place(found).replace("wrong only", "only").replace("is wrong, ", "")
            said = f"the reference is {name} in {share:.2%} of elements, where this is {here}"
            return said + (f", {place}" if place else "")
    return ""


def _everywhere_close(output: Tensor, truth: Tensor) -> bool:
    """Whether no element is further off than a shorter floating type can explain."""
    if not output.is_floating_point():
        return False
    output, truth = _sample(output).double(), _sample(truth).double()
    return bool(((output - truth).abs() <= _SHORTER_TYPE * (truth.abs() + _rms(truth))).all())


def _rounded(output: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """Right but for precision, or by a factor or offset too small to be one of another mistake."""
    found = _scaled(output, truth)
    if found:
        return found
    place = describe_place(wrong)
    right = _sample(truth).double()
    error = (_sample(output).double() - right).abs()
    usual = float(error[error > 0].median()) / _rms(right) if error.any() else 0.0
    like = next((kind for least, kind in _TYPICAL_ERROR if usual > least), "float32")
    found = f"precision only: every element is close, as after rounding to {like}"
    return f"{found}; {place}" if place else found


def _moved_as_a_whole(output: Tensor, truth: Tensor) -> str:
    return next((words for words, pair in _moved(output, truth) if _explains(*pair)), "")


def _scaled(output: Tensor, truth: Tensor) -> str:
    some, right = _sample(output).double(), _sample(truth).double()
    power = float(right.square().sum())
    factor = float((some * right).sum()) / power if power else 1.0
    if abs(factor - 1) > _CLOSE / 4 and _near(some, factor * right, relative_to=factor - 1):
        if abs(factor + 1) < _CLOSE:
            return "the sign is flipped"
        return f"right up to a factor of {factor:.4g}{_named_factor(factor, truth.shape)}"
    offset = float((some - right).mean())
    if offset and _near(some, right + offset, relative_to=offset / _rms(right)):
        return "right up to a constant offset"
    return ""


def _near(some: Tensor, guess: Tensor, relative_to: float) -> bool:
    """Whether the guess leaves little of an error whose relative size is `relative_to`."""
    tolerance = _CLOSE * min(1.0, 20 * abs(relative_to))
    return bool((guess - some).norm() <= tolerance * some.norm()) and bool(some.any())


def _named_factor(factor: float, shape: torch.Size) -> str:
    """The likely origin of a factor: a size that a sum was or was not divided by, a logarithm."""
    known = {math.log2(math.e): "log2 in place of ln", math.log(2): "ln in place of log2"}
    for dim, size in enumerate(shape):
        if size > 2:
            name = f"{size}, the size of dimension {dim}"
            known |= {
                size: name,
                1 / size: f"one over {name}",
                math.sqrt(size): f"the root of {name}",
                1 / math.sqrt(size): f"one over the root of {name}",
            }
    near = (words for value, words in known.items() if abs(factor / value - 1) < _CLOSE)
    words = next(near, "")
    return f" ({words})" if words else ""


def _explains(output: Tensor, guess: Tensor) -> bool:
    output, guess = _sample(output).double(), _sample(guess).double()
    return bool((guess - output).norm() <= _CLOSE * output.norm()) and bool(output.any())


def _moved(output: Tensor, truth: Tensor) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Hypotheses that put elements elsewhere, as pairs of views that would be equal."""
    dims = truth.dim()
    for first in range(dims):
        for second in range(first + 1, dims):
            if min(truth.shape[first], truth.shape[second]) > 1:
                swapped = truth.transpose(first, second)
                last = first == dims - 2
                which = "last two dimensions" if last else f"dimensions {first} and {second}"
                yield f"{which} transposed", (output.reshape(swapped.shape), swapped)
    for dim in reversed(range(dims)):
        size, name = truth.shape[dim], _axis(dims, dim)
        if size > 2:
            later, earlier = (output.narrow(dim, i, size - 1) for i in (1, 0))
            yield f"off by one {name}: every element one place too late", (
                later, truth.narrow(dim, 0, size - 1))  # fmt: skip
            yield f"off by one {name}: every element one place too early", (
                earlier, truth.narrow(dim, 1, size - 1))  # fmt: skip
        if size > 1 and truth.numel() <= _LOOKED_AT:
            yield f"reversed {name}", (output, truth.flip(dim))


def _axis(dims: int, dim: int) -> str:
    names = {1: "along the columns (last dimension)", 2: "along the rows"}
    return names.get(dims - dim, f"along dimension {dim}")


def _by_lines(output: Tensor, truth: Tensor) -> str:
    """Every row (or column) right up to a factor or an offset of its own."""
    if truth.dim() < 2 or min(truth.shape[-2:]) < _MIN_ROW:
        return ""
    some, right = _sample(output).double(), _sample(truth).double()
    for dim, name in ((-1, "row"), (-2, "column")):
        if some.shape[dim] < _MIN_ROW:
            continue
        factor = (some * right).sum(dim, keepdim=True) / right.square().sum(dim, keepdim=True)
        if _explains(some, factor.nan_to_num() * right):
            return f"every {name} is right up to a factor of its own"
        if _explains(some, right + (some - right).mean(dim, keepdim=True)):
            return f"every {name} is right up to an offset of its own"
    return ""


def _local(output: Tensor, wrong: Tensor) -> str:
    place = describe_place(wrong)
    if not place:
        return ""
    unwritten = not bool((output.bool() & wrong).any())
    return place + (", all zero there: never written?" if unwritten else "")


def _reordered(output: Tensor, truth: Tensor) -> str:
    """The right values in the wrong places."""
    if not 1 < truth.numel() <= _LOOKED_AT:
        return ""
    some, right = (tensor.double().reshape(-1).sort().values for tensor in (output, truth))
    if _explains(some, right) and float(right.std()) > _CLOSE * _rms(right):
        return "the right values in another order"
    return ""
