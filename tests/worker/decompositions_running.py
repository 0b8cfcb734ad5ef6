"""What the operators of `build.decompositions` compute, in torch, and models that call them."""

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import export

from evolve.worker.build.decompositions import NAMESPACE, decomposed, keep_recurrences
from evolve.worker.build.decompositions.operators import define

LIBRARIES = []


def kept(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[list[Any], Any]:
    """Calls of our operators, as (name, arguments that are no tensors), and the model with them."""
    # Seconds to import, which each process that collects tests would need.
    from torch._inductor.decomposition import select_decomp_table

    implement()
    with torch.no_grad():
        program = export(model.eval(), tuple(inputs), strict=False)
        keep_recurrences(program.graph)
        program = decomposed(program, select_decomp_table())
    calls = []
    for node in program.graph.nodes:
        name = str(node.target)
        if name.startswith(f"{NAMESPACE}."):
            rest = [one for one in node.args if not isinstance(one, torch.fx.Node | None)]
            calls.append((name.split(".")[1], rest))
    return calls, program.module()


def implement() -> None:
    """Give the operators what they compute; once in a process."""
    if not LIBRARIES:
        define()
        library = torch.library.Library(NAMESPACE, "IMPL")
        for function in (norm, batch_norm, scan, recurrence, cross_entropy, total):
            library.impl(function.__name__, function, "CPU")
        LIBRARIES.append(library)


def norm(x, weight, bias, kind, view, affine, share, eps):
    outer, size, inner = view
    rows = x.reshape(outer, size, inner).transpose(1, 2).reshape(-1, size)
    if kind == "layer":
        rows = rows - rows.mean(1, keepdim=True)
    terms = rows.abs() if kind == "l1" else rows * rows
    length = terms.sum(1, keepdim=True) * share + eps
    rows = rows / (length if kind == "l1" else length.sqrt())
    groups, channels, area = affine
    place = torch.arange(len(rows))[:, None] % groups * channels + torch.arange(size) // area
    rows = rows if weight is None else rows * weight.flatten()[place]
    rows = rows if bias is None else rows + bias.flatten()[place]
    return rows.reshape(outer, inner, size).transpose(1, 2).reshape(x.shape).contiguous()


def batch_norm(x, mean, variance, weight, bias, view, eps):
    assert math.prod(view) == x.numel()
    return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, eps=eps)


def scan(x, mask, view, product, reverse, exclusive):
    values = (x if mask is None else x * mask).reshape(view)
    values = values.flip(1) if reverse else values
    if exclusive:
        values = torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], 1)
    values = values.cumprod(1) if product else values.cumsum(1)
    return (values.flip(1) if reverse else values).reshape(x.shape)


def recurrence(gates, weight, bias, hidden, cell, kind):
    """Of torch's cells, one step after the other."""
    steps, directions = len(gates), len(hidden)
    states = gates.new_full((steps + 2, hidden.shape[1], directions, hidden.shape[2]), torch.nan)
    for direction in range(directions):
        state, last = hidden[direction], None if cell is None else cell[direction]
        own = gates.unflatten(-1, (directions, -1))[:, :, direction]
        start, end, forward = (steps + 1, 0, -1) if direction else (0, steps + 1, 1)
        states[start, :, direction] = state
        for row in range(start + forward, end, forward):
            added = torch.nn.functional.linear(
                state, weight[direction], None if bias is None else bias[direction]
            )
            state, last = _cell(kind, own[row - 1], added, state, last)
            states[row, :, direction] = state
        if last is not None:
            states[end, :, direction] = last
    return states.flatten(2)


def _cell(kind, given, added, state, cell):
    """The state after a step, and the cell of an LSTM."""
    if kind == "lstm":
        into, forget, new, out = (given + added).chunk(4, -1)
        cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
        return out.sigmoid() * cell.tanh(), cell
    if kind == "gru":
        (reset, update, x), (r, u, h) = given.chunk(3, -1), added.chunk(3, -1)
        new = (x + (reset + r).sigmoid() * h).tanh()
        return new + (update + u).sigmoid() * (state - new), None
    return getattr(given + added, kind)(), None


def cross_entropy(x, target, view, ignored):
    assert math.prod(view) == x.numel()
    return torch.nn.functional.cross_entropy(x, target, reduction="none", ignore_index=ignored)


def total(a, b, c, term, outcome, shape, scale):
    tensors = [None if t is None else t.expand(shape) for t in (a, b, c)]
    values = _called(term, tensors)
    if outcome:
        values = _called(outcome, [one.sum(-1) if torch.is_tensor(one) else 0 for one in values])
    return values.sum() * scale


class _Triton:
    """What texts say in the terms of Triton, in those of torch."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _called(body: str, values: Sequence[Any]) -> Any:
    text = re.sub("^", "    ", body, flags=re.MULTILINE)
    scope: dict[str, Any] = {"tl": _Triton()}
    exec(f"def function(a, b, c):\n{text}", scope)
    return scope["function"](*values)
