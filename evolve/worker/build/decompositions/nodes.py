"""Questions to the nodes of an exported graph, and how one takes the place of others."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
MIN_ROWS = 32  # with fewer, most of a device would idle; Inductor cuts long rows


def is_call(node: object, *names: str) -> bool:
    """Whether a node calls an operator of ATen, by names such as `add.Tensor`."""
    return isinstance(node, Node) and str(node.target) in {f"aten.{name}" for name in names}


def value(node: object) -> torch.Tensor | None:
    """The example value of the tensor that a node computes; None if it computes none."""
    found = node.meta.get("val") if isinstance(node, Node) else None
    return found if isinstance(found, torch.Tensor) else None


def is_dense(node: object, dtypes: Collection[torch.dtype] = FLOATS) -> bool:
    """Whether a node computes a tensor of one of the types whose elements lie in order."""
    tensor = value(node)
    return (
        tensor is not None
        and tensor.dtype in dtypes
        and tensor.is_contiguous()
        and all(isinstance(size, int) and size > 0 for size in tensor.shape)
    )


def arguments(node: Any, *names: str) -> dict[str, Any]:
    """Arguments of a call, by the names of its operator's schema; its defaults too."""
    schema = node.target._schema.arguments
    given = {known.name: known.default_value for known in schema if known.has_default_value()}
    given |= dict(zip((known.name for known in schema), node.args, strict=False))
    given |= node.kwargs
    return {name: given.get(name) for name in names} if names else given


def rows(shape: Sequence[int], dims: Sequence[int] | None) -> tuple[int, int, int] | None:
    """(outer, size, inner) of the dimensions; None if they do not lie side by side."""
    count = len(shape)
    wanted = sorted({dim % count for dim in dims}) if dims and count else list(range(count))
    if not wanted or wanted != list(range(wanted[0], wanted[-1] + 1)):
        return None
    first, last = wanted[0], wanted[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def only_user(node: Any) -> Any:
    """The only node that uses this one's result."""
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def put(graph: Any, node: Any, operator: Any, *given: Any) -> Any:
    """Have an operator's call take the place of a node."""
    with graph.inserting_before(node):
        new = graph.call_function(operator, given)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    return new


class Adding:
    """Adds calls to a graph in front of a node, with example values of their results."""

    def __init__(self, graph: Any, node: Any) -> None:
        self._graph, self._node = graph, node

    def __call__(self, operator: Any, *given: Any, **named: Any) -> Any:
        with self._graph.inserting_before(self._node):
            new: Any = self._graph.call_function(operator, given, named)
        new.meta["val"] = operator(*fakes(given), **named)
        return new


def fakes(given: Any) -> Any:
    """Arguments of a call, with example values in place of nodes."""
    return map_arg(given, lambda node: node.meta["val"])
