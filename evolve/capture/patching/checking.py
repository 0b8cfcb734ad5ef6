"""A winner's calls held against the original's, made by the model that the timed runs keep too."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evolve.capture.interpose import Original
from evolve.capture.jobs import Tally
from evolve.capture.parts import arguments_of, device_of
from evolve.capture.patching.agreement import disagreement, truth_of
from evolve.capture.patching.replacement import Replacement, share
from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.testing.suite_tasks.captured import key_of
from evolve.worker.ipc.pytree import copied, dense_parts, tensors_of
from evolve.worker.reference.conditions import named_state
from evolve.worker.reference.seeding import RandomState, drawing_from, random_state

_REMEMBERED = 2  # outcomes of every kind of call: some programs use two buffers in turn
_KEPT = "it writes to the outcome of an earlier call, or returns its memory again"
_STALE = (
    "; made anew it agrees: it keeps something from call to call, such as an outcome, or packed "
    "parameters that were written to through `.data`"
)


class _Outcome(NamedTuple):
    """Tensors of an earlier outcome, held so that their memory is given to no other."""

    ours: list[Tensor]
    copies: list[Tensor]
    theirs: list[Tensor]


class Checker:
    """The checks of one winner, for all modules that it stands for.

    Args:
        tally: to which every call is added.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._earlier: dict[Any, deque[_Outcome]] = {}

    def call(
        self, replacement: Replacement, original: Any, args: Any, kwargs: Any, run: Original
    ) -> Any:
        """The original's outcome, after the winner has made the call on copies of arguments."""
        part = replacement.winner.part
        arguments = arguments_of(part, args, kwargs)
        ours, spare, wide_args, wide_kwargs = copied(
            (arguments, arguments, list(args), dict(kwargs))
        )
        state = named_state(original) if isinstance(original, nn.Module) else {}
        before, states = copied(state), random_state()
        with drawing_from(states):
            truth = truth_of(original, wide_args, wide_kwargs)
        with drawing_from(states):
            said, found = _attempt(replacement, ours)
        written = copied(state)
        restore(state, before)
        outcome = run(*args, **kwargs)
        said = said or disagreement(found, outcome, truth)
        if said and not self._differs_anew(replacement, spare, before, states, (outcome, truth)):
            said += _STALE
        theirs = arguments_of(part, args, kwargs)
        said = said or write_difference("an argument", ours, theirs)
        now = named_state(original) if state else {}
        said = said or write_difference("its state", written, now)
        self._tally.count(said or self.overwritten(key_of(arguments), found, outcome, now))
        return outcome

    @staticmethod
    def _differs_anew(
        replacement: Replacement,
        arguments: list[Any],
        state: Mapping[str, Tensor],
        states: RandomState,
        expected: tuple[Any, Any],
    ) -> bool:
        """Whether the winner, made anew for this call, differs too."""
        model = replacement.winner.made(device_of(arguments))
        share(model, state)
        with drawing_from(states), torch.no_grad():
            try:
                return bool(disagreement(model(*arguments), *expected))
            except FAILURES_OF_A_FUNCTION:
                return True

    def overwritten(self, kind: Any, found: Any, outcome: Any, state: Mapping[str, Tensor]) -> str:
        """Whether this call has touched outcomes of earlier ones, and the original has not."""
        ours, theirs = dense_parts(found), dense_parts(outcome)
        new, own = _memory(ours), _memory(theirs) | _memory(state.values())
        is_touched = any(
            (_memory([mine]) & new or not _same(mine, copy)) and not _memory([other]) & own
            for earlier in self._earlier.values()
            for one in earlier
            for mine, copy, other in zip(*one, strict=False)
        )
        kept = _Outcome(ours, copied(ours), theirs)
        self._earlier.setdefault(kind, deque(maxlen=_REMEMBERED)).append(kept)
        return _KEPT if is_touched else ""


def _attempt(replacement: Replacement, arguments: list[Any]) -> tuple[str, Any]:
    try:
        return "", replacement.call(arguments)
    except FAILURES_OF_A_FUNCTION as error:
        return f"it raised {type(error).__name__}: {error}", None


def restore(state: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> None:
    """Undo writes; tensors without any keep their version, by which packed ones are made anew."""
    with torch.no_grad():
        for name, tensor in state.items():
            if not _same(tensor, before[name]):
                tensor.copy_(before[name])


def write_difference(name: str, ours: Any, theirs: Any) -> str:
    """How what a call writes to differs, by this name in the message; empty if it does not."""
    said = disagreement(tensors_of(ours), tensors_of(theirs), None)
    return f"after the call, {name} differs: {said}" if said else ""


def _memory(tensors: Iterable[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether all values are equal, NaN to NaN."""
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
