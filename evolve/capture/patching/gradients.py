"""A call with a forward pass by the original, and a backward pass that a winner may make.

The original's graph ends at aliases of the arguments, so that it gives the gradients of this call
alone. It makes the backward pass wherever the winner may not.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from evolve.capture.interpose import Original
from evolve.capture.jobs import Part
from evolve.capture.parts import arguments_of, write_counts
from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.worker.ipc.pytree import cast_floating, tensors_of

_AGAIN = "Trying to backward through the graph a second time: pass retain_graph=True the first time"
Gradients = Sequence[Tensor | None]


class Pass:
    """One call, made by the original.

    Args:
        part: of which it is a call.
        original: a module, or a function.
        args: of the call.
        kwargs: of the call.
        run: the original, as it is called.

    Attributes:
        arguments: aliases of the call's, in the order of the task.
        leaves: those arguments and parameters that need a gradient.
    """

    def __init__(self, part: Part, original: Any, args: Any, kwargs: Any, run: Original) -> None:
        self._part, self._original = part, original
        given = arguments_of(part, args, kwargs)
        self._parameters = parameters_of(original)
        self.arguments = [_alias(one) for one in given]
        every = [*filter(is_floating, self.arguments), *self._parameters]
        roots = [*filter(is_floating, given), *self._parameters]
        self._needed = [n for n, one in enumerate(every) if one.requires_grad]
        self._every = len(every)
        self.leaves, self._roots = self._chosen(every), self._chosen(roots)
        self._counts = self._present_counts()
        args, kwargs = self._call(self.arguments)
        self._outcome: Any = run(*args, **kwargs)

    def _call(self, arguments: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        count = self._part.positional
        return arguments[:count], dict(zip(self._part.named, arguments[count:], strict=True))

    def _chosen(self, every: Sequence[Any]) -> list[Any]:
        return [every[n] for n in self._needed]

    def _present_counts(self) -> list[int]:
        return write_counts([*self.arguments, *self._parameters])

    def through(self, backward: Callable[[Tensor], Gradients]) -> Tensor:
        """The outcome; its gradient goes to `backward`, and from there to the script's graph.

        Args:
            backward: gives the gradients of `leaves`.
        """
        if not isinstance(self._outcome, Tensor):
            raise RuntimeError(f"it is for a tensor, and the call gave {type(self._outcome)}")
        if not self._outcome.requires_grad:
            return self._outcome
        (found,) = _through([self._outcome], backward, self._roots)
        return found

    @property
    def refusal(self) -> str:
        """Why the original has to make the backward pass; empty if the winner may."""
        is_same = self._counts == self._present_counts()
        return "" if is_same else "arguments or parameters were written to before the backward pass"

    def leads_elsewhere(self) -> bool:
        """Whether gradients flow to tensors that are neither arguments nor parameters."""
        return _leads_elsewhere(self._outcome, self.leaves)

    def gradients(self, gradient: Tensor, *, keeps: bool = False) -> Gradients:
        """The gradients of `leaves` by the original's graph, None where there is none.

        Args:
            gradient: of the outcome.
            keeps: the graph, for another call.
        """
        if self._outcome is None:
            raise RuntimeError(_AGAIN)
        found: Gradients = torch.autograd.grad(
            self._outcome, self.leaves, gradient, retain_graph=True, allow_unused=True
        )
        if not keeps:
            self.release()
        return found

    def differentiable(self, gradient: Tensor) -> Gradients:
        """As `gradients`, with a graph of their own (`create_graph=True`)."""
        if self._outcome is None:
            raise RuntimeError(_AGAIN)
        return _differentiable([self._outcome], self.leaves, self._roots, [gradient])

    def release(self) -> None:
        """Free the original's graph, unless the script keeps its own."""
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self._outcome = None

    def needed(self, found: Any) -> list[Tensor]:
        """Of a winner's outcome, which is of all floating arguments and parameters."""
        every = [found] if isinstance(found, Tensor) else list(found)
        if len(every) != self._every:
            raise RuntimeError(f"it gives {len(every)} gradients, not {self._every}")
        return self._chosen(every)

    def filled(self, gradients: Gradients) -> list[Tensor]:
        """Gradients of `leaves`, with zeros where there is none."""
        return _filled(gradients, self.leaves)

    def truth(self, gradient: Tensor) -> list[Tensor] | None:
        """The gradients in float64 by the original; None if it does not run in that."""
        try:
            wide, given = self._original, cast_floating(self.arguments, torch.float64)
            if isinstance(wide, nn.Module):
                wide = deepcopy(wide).double()
            given = [_alias(one) for one in given]
            leaves = self._chosen([*filter(is_floating, given), *parameters_of(wide)])
            args, kwargs = self._call(given)
            with torch.enable_grad():
                for leaf in leaves:
                    leaf.requires_grad_()
                outcome = (wide.forward if isinstance(wide, nn.Module) else wide)(*args, **kwargs)
            found = torch.autograd.grad(outcome, leaves, gradient.double(), allow_unused=True)
        except FAILURES_OF_A_FUNCTION:
            return None
        return _filled(found, leaves)


class _Through(torch.autograd.Function):
    """The first `count` tensors, with a backward pass of their own to the others."""

    @staticmethod
    def forward(ctx: Any, backward: Any, count: int, *tensors: Tensor) -> Any:
        ctx.backward_pass, ctx.count = backward, count
        return tuple(one.detach() for one in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *[None] * ctx.count, *ctx.backward_pass(*gradients)


def _through(
    outcomes: Sequence[Tensor], backward: Callable[..., Gradients], roots: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The same values in a graph that goes on to `roots`, whose gradients `backward` gives."""
    values = [one.detach() for one in outcomes]
    found: tuple[Tensor, ...] = _Through.apply(backward, len(values), *values, *roots)
    return found


def _differentiable(
    outcomes: Sequence[Tensor],
    ends: Sequence[Tensor],
    roots: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> Gradients:
    """Gradients of `ends`, None where there is none, with derivatives of any order of their own.

    Args:
        outcomes: whose graph ends at `ends`.
        ends: aliases of `roots`.
        roots: to which the graph of the gradients goes on.
        gradients: of the outcomes; the graph goes on to them too.
    """
    aliases = [one.detach().requires_grad_() for one in gradients]
    found: Gradients = torch.autograd.grad(
        outcomes, ends, aliases, create_graph=True, allow_unused=True
    )
    known = [one for one in found if one is not None and one.requires_grad]
    inner, outer = [*ends, *aliases], [*roots, *gradients]

    def backward(*given: Tensor) -> Gradients:
        if torch.is_grad_enabled():
            return _differentiable(known, inner, outer, given)
        second: Gradients = torch.autograd.grad(
            known, inner, given, retain_graph=True, allow_unused=True
        )
        return second

    linked = iter(_through(known, backward, outer))
    return [next(linked) if one is not None and one.requires_grad else one for one in found]


def unfit(arguments: list[Any], original: Any, outcome: Any) -> str:
    """Why no winner can make the backward pass of such calls; empty if one can.

    Args:
        arguments: of a call.
        original: that has made it.
        outcome: with its graph.
    """
    if type(outcome) is not Tensor or not outcome.requires_grad:
        return "its outcome is no tensor with a gradient"
    memory = {one.untyped_storage().data_ptr() for one in tensors_of(arguments)}
    if outcome.untyped_storage().data_ptr() in memory:
        return "its outcome lies in the memory of an argument"
    if _leads_elsewhere(outcome, [*filter(is_floating, arguments), *parameters_of(original)]):
        return ELSEWHERE
    return ""


ELSEWHERE = "gradients flow to tensors that are neither its arguments nor its parameters"


def _leads_elsewhere(outcome: Tensor, ends: Sequence[Tensor]) -> bool:
    """Whether a graph leads to leaves that are none of `ends`; it is followed no further."""
    known = {id(one) for one in ends}
    nodes, seen = [outcome.grad_fn], {one.grad_fn for one in ends if one.grad_fn is not None}
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and id(node.variable) not in known:
            return True
        nodes += [one for one, _ in node.next_functions]
    return False


def _filled(gradients: Gradients, leaves: Sequence[Tensor]) -> list[Tensor]:
    pairs = zip(gradients, leaves, strict=True)
    return [torch.zeros_like(leaf) if one is None else one for one, leaf in pairs]


def parameters_of(original: Any) -> list[nn.Parameter]:
    """Of a module, each once, in order; none of a function."""
    return list(original.parameters()) if isinstance(original, nn.Module) else []


def is_floating(value: Any) -> bool:
    """Whether a value is a tensor that the backward pass gives a gradient of."""
    return isinstance(value, Tensor) and value.is_floating_point()


def needs_hidden_gradient(arguments: list[Any]) -> bool:
    """Whether a tensor needs a gradient that no backward task gives."""
    hidden = [one for one in arguments if not is_floating(one)]
    return any(tensor.requires_grad for tensor in tensors_of(hidden))


def _alias(value: Any) -> Any:
    if not is_floating(value):
        return value
    return value.detach().requires_grad_(value.requires_grad)
