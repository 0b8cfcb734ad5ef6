"""Recurrent layers of an exported graph, which would otherwise be unrolled step by step."""

from collections.abc import Sequence
from typing import Any

import torch

from evolve.worker.build.decompositions.nodes import Adding, arguments, is_call, is_dense, value
from evolve.worker.build.decompositions.operators import define

_KINDS = {
    "lstm.input": "lstm",
    "gru.input": "gru",
    "rnn_tanh.input": "tanh",
    "rnn_relu.input": "relu",
}
_ATEN = torch.ops.aten


def keep_recurrences(graph: Any) -> None:
    """Replace each stack of layers in evaluation by products for all steps, and a call for each."""
    define()
    for node in list(graph.nodes):
        if is_call(node, *_KINDS):
            _keep(graph, node)


def _keep(graph: Any, node: Any) -> None:
    given = arguments(node)
    kind = _KINDS[str(node.target).removeprefix("aten.")]
    firsts = given["hx"] if kind == "lstm" else [given["hx"]]
    directions, count = 1 + given["bidirectional"], 4 if given["has_biases"] else 2
    cells = given["num_layers"] * directions
    tensors = [*firsts, *given["params"]]
    if not all(is_dense(tensor, [torch.float32]) for tensor in tensors):
        return
    if len(given["params"]) != cells * count or (given["train"] and given["dropout"]):
        return  # each step's output is projected, or some of it is dropped
    add = Adding(graph, node)
    parameters = [given["params"][at : at + count] for at in range(0, cells * count, count)]
    x = given["input"]
    if given["batch_first"]:
        x = add(_ATEN.contiguous.default, add(_ATEN.transpose.int, x, 0, 1))
    ends: list[list[Any]] = [[] for _ in firsts]
    for start in range(0, cells, directions):
        own = [add(_ATEN.slice.Tensor, one, 0, start, start + directions) for one in firsts]
        x, *last = _layer(add, kind, x, own, parameters[start : start + directions])
        for known, new in zip(ends, last, strict=False):
            known += new
    x = add(_ATEN.transpose.int, x, 0, 1) if given["batch_first"] else x
    results = [x, *(add(_ATEN.stack.default, one) for one in ends)]
    for user in list(node.users):
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def _layer(
    add: Adding, kind: str, x: Any, firsts: Sequence[Any], parameters: Sequence[Sequence[Any]]
) -> tuple[Any, list[Any], list[Any]]:
    """A layer's output for all steps, and the last state and cell of each direction."""
    of_inputs, of_states, *biases = zip(*parameters, strict=True)
    first, second = map(list, biases) if biases else ([], [])
    if kind != "gru":  # whose reset gate takes some of the second one away
        first = [add(_ATEN.add.Tensor, *pair) for pair in zip(first, second, strict=True)]
        second = []
    bias = _joined(add, first) if first else None
    gates = add(_ATEN.linear.default, x, _joined(add, of_inputs), bias)
    weight = add(_ATEN.stack.default, list(of_states))
    second_bias = add(_ATEN.stack.default, second) if second else None
    hidden, cell = (*firsts, None)[:2]
    operands = gates, weight, second_bias, hidden, cell
    states = add(torch.ops.evolve.recurrence.default, *operands, kind)
    steps = _size(gates, 0)
    out = add(_ATEN.slice.Tensor, states, 0, 1, steps + 1)
    size = _size(hidden, 2)
    return out, *(
        [
            add(_ATEN.slice.Tensor, add(_ATEN.select.int, states, 0, row), 1, at, at + size)
            for row, at in zip(rows, range(0, size * len(parameters), size), strict=False)
        ]
        for rows in ((steps, 1), (steps + 1, 0))
    )


def _joined(add: Adding, tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else add(_ATEN.cat.default, list(tensors))


def _size(node: Any, dim: int) -> int:
    tensor = value(node)
    assert tensor is not None
    return int(tensor.shape[dim])
