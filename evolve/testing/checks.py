"""Ready-made checks for task files, each named in one line.

For example::

    from evolve.testing.checks import steps

    check = steps(1)

Each returns a function that says whether an outcome is right, with a reason if it is not. They
compare nested outputs too. A file with a check is judged by it alone: nesting, shapes and types
still have to be the reference's.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Check = Callable[[Any, Any, list[Any]], tuple[bool, str]]
_RIGHT = (True, "")
_MAX_SURPRISE = 5.0  # standard deviations: of two million honest outcomes one is refused
_MIN_VARIANCE = 1e-9


def close(rtol: float = 1e-5, atol: float = 1e-8) -> Check:
    """Floating values may differ by `atol + rtol * |reference|`; NaN and infinities stand alike."""

    def check(output: Any, reference: Any, _: list[Any]) -> tuple[bool, str]:
        for name, some, own in pairs(output, reference):
            if not torch.allclose(some.double(), own.double(), rtol, atol, equal_nan=True):
                return False, f"{name} is further off than rtol={rtol:g} and atol={atol:g} allow"
        return _RIGHT

    return check


def steps(most: int = 1, share: float = 1.0) -> Check:
    """Integer codes may differ by `most`, in a `share` of the elements; other tensors be close."""

    def check(output: Any, reference: Any, inputs: list[Any]) -> tuple[bool, str]:
        for name, some, own in pairs(output, reference):
            if own.is_floating_point() or own.is_complex():
                found = close(1e-3, 1e-5)(some, own, inputs)
                if not found[0]:
                    return False, f"{name}: {found[1]}"
                continue
            off = (some.double() - own.double()).abs()
            if off.numel() and float(off.max()) > most:
                return False, f"{name} is {int(off.max())} steps off; {most} are allowed"
            if off.numel() and float((off > 0).double().mean()) > share:
                return False, f"{name} differs in more than {share:.2%} of its elements"
        return _RIGHT

    return check


def any_order(dim: int = -1) -> Check:
    """Along a dimension the values may stand in any order: sets of ids, partitions."""

    def check(output: Any, reference: Any, _: list[Any]) -> tuple[bool, str]:
        for name, some, own in pairs(output, reference):
            if own.dim() and not torch.equal(some.sort(dim).values, own.sort(dim).values):
                return False, f"{name} has other values along dimension {dim}"
            if not own.dim() and not torch.equal(some, own):
                return False, f"{name} has another value"
        return _RIGHT

    return check


def indices_of(scores: Callable[..., Tensor], dim: int = -1, rtol: float = 1e-5) -> Check:
    """Indices may be others if their scores are equal up to rounding, and none stands twice.

    Args:
        scores: Gives the scores of the task's inputs.
        dim: Along which they are ranked.
        rtol: Of scores that count as equal.
    """

    def check(output: Tensor, reference: Tensor, inputs: list[Any]) -> tuple[bool, str]:
        ranked = scores(*inputs)
        chosen, own = output.long(), reference.long()
        if bool(((chosen < 0) | (chosen >= ranked.shape[dim])).any()):
            return False, "an index is out of range"
        some, wanted = ranked.gather(dim, chosen), ranked.gather(dim, own)
        if not torch.allclose(some, wanted, rtol, 0.0):
            return False, "the scores of the indices are not those of the reference's choice"
        ordered = chosen.sort(dim).values
        if bool((ordered.diff(dim=dim) == 0).any()):
            return False, "an index stands twice"
        return _RIGHT

    return check


def sampled(probabilities: Callable[..., Tensor], least: float = 0.0) -> Check:
    """Each index is one of those that may be drawn: its probability is above `least`.

    Of many rows with one draw each, they are also as probable together as draws are: neither the
    most probable of each, nor an index that does not depend on the row.
    """

    def check(output: Tensor, reference: Tensor, inputs: list[Any]) -> tuple[bool, str]:
        chances = probabilities(*inputs)
        drawn = output.long().reshape(*chances.shape[:-1], -1)
        if bool(((drawn < 0) | (drawn >= chances.shape[-1])).any()):
            return False, "an index is out of range"
        if bool((chances.gather(-1, drawn) <= least).any()):
            return False, "an index was drawn that has no chance"
        if drawn.shape[-1] == 1 and abs(_surprise(chances, drawn)) > _MAX_SURPRISE:
            return False, "the indices are not as probable as draws are"
        return _RIGHT

    return check


def permutation(dim: int = -1) -> Check:
    """Along a dimension each index from 0 on stands once, in any order."""

    def check(output: Any, reference: Any, _: list[Any]) -> tuple[bool, str]:
        for name, some, own in pairs(output, reference):
            shape = [1] * own.dim()
            shape[dim] = own.shape[dim]
            every = torch.arange(own.shape[dim], device=own.device).reshape(shape)
            if not torch.equal(some.long().sort(dim).values, every.expand_as(own)):
                return False, f"{name} is no permutation along dimension {dim}"
        return _RIGHT

    return check


def _surprise(chances: Tensor, drawn: Tensor) -> float:
    """By how many standard deviations the log-likelihood of some draws is off its mean."""
    shares = (chances / chances.sum(-1, keepdim=True)).double()
    logs = shares.clamp(min=torch.finfo(torch.float64).tiny).log()
    mean = (shares * logs).sum(-1)
    variance = (shares * logs.square()).sum(-1) - mean.square()
    total = float(variance.sum())
    off = float((logs.gather(-1, drawn).squeeze(-1) - mean).sum())
    return off / total**0.5 if total > _MIN_VARIANCE else 0.0


def pairs(some: Any, own: Any, name: str = "output") -> Iterator[tuple[str, Tensor, Tensor]]:
    """The tensors of two outcomes of one nesting, with the names of their places."""
    if isinstance(own, Tensor):
        yield name, some, own
    elif isinstance(own, dict):
        for key in own:
            yield from pairs(some[key], own[key], f"{name}[{key!r}]")
    elif isinstance(own, tuple | list):
        for number, (one, other) in enumerate(zip(some, own, strict=True)):
            yield from pairs(one, other, f"{name}[{number}]")
