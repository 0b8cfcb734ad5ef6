"""Backward passes made by winners, after the original has made the forward pass."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from evolve.capture.clock import Clock, is_recording_graph
from evolve.capture.interpose import Original
from evolve.capture.jobs import Tally
from evolve.capture.parts import arguments_of, device_of, write_counts
from evolve.capture.patching.agreement import disagreement
from evolve.capture.patching.checking import Checker, restore, write_difference
from evolve.capture.patching.gradients import (
    ELSEWHERE,
    Gradients,
    Pass,
    needs_hidden_gradient,
    unfit,
)
from evolve.capture.patching.replacement import Replacement
from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.testing.suite_tasks.captured import key_of
from evolve.worker.ipc.pytree import copied, tensors_of
from evolve.worker.reference.seeding import drawing_from, is_same_state, random_state

_GRAPH = "the backward pass has create_graph=True"
_FIRST = "the first call of its kind, which shows to what gradients flow"
_DRAWS = "it draws random numbers, and its backward pass would draw others"
_WRITES = "it writes to its arguments"
_HIDDEN = "a complex tensor, or one in a list or dict, needs a gradient"


class BackwardPasses:
    """Those of one winner.

    Args:
        tally: to which every backward pass is added.
        clock: that is paused for what is no part of the script.
        alone: gives a block in which no winner makes a call.
        blaming: gives a block, in which an exception is this winner's failure.
        checker: if every backward pass is compared, and the original's is the one that counts.
    """

    def __init__(
        self,
        tally: Tally,
        clock: Clock,
        alone: Callable[[], AbstractContextManager[None]],
        blaming: Callable[[], AbstractContextManager[None]],
        checker: Checker | None,
    ) -> None:
        self._tally, self._clock = tally, clock
        self._alone, self._blaming = alone, blaming
        self._checker = checker
        self._unfit: dict[Any, str] = {}
        self._built: set[Any] = set()

    def call(
        self, replacement: Replacement, original: Any, args: Any, kwargs: Any, run: Original
    ) -> Any:
        """The call; its backward pass is the winner's, wherever that may make it."""
        part = replacement.winner.part
        arguments = arguments_of(part, args, kwargs)
        kind = key_of(arguments)
        if kind not in self._unfit:
            with self._clock.pause():
                before, counts = random_state(), write_counts(arguments)
            outcome = run(*args, **kwargs)
            with self._clock.pause():
                found = unfit(arguments, original, outcome)
                found = _WRITES if counts != write_counts(arguments) else found
                found = found if is_same_state(before, random_state()) else _DRAWS
            self._unfit[kind] = found
            self._tally.fallbacks[found or _FIRST] += 1
            return outcome
        said = self._unfit[kind] or (_HIDDEN if needs_hidden_gradient(arguments) else "")
        if said:
            self._tally.fallbacks[said] += 1
            return run(*args, **kwargs)
        with self._alone():
            made = Pass(part, original, args, kwargs, run)
            return made.through(lambda gradient: self._gradients(replacement, made, gradient))

    def _gradients(self, replacement: Replacement, made: Pass, gradient: Tensor) -> Gradients:
        """Those of a call, now that the gradient of its outcome is known."""
        if torch.is_grad_enabled():
            self._tally.fallbacks[_GRAPH] += 1
            return made.differentiable(gradient)
        said = made.refusal or replacement.backward_refusal(gradient, made.arguments)
        if said:
            self._tally.fallbacks[said] += 1
            return made.gradients(gradient)
        number = self._tally.made
        self._tally.made += 1
        arguments = [gradient, *(_detached(one) for one in made.arguments)]
        is_chosen = number in replacement.winner.compared and not is_recording_graph()
        with self._alone():
            if self._checker or is_chosen:
                return self._compared(replacement, made, arguments)
            found = self._winner_gradients(replacement, made, arguments)
        made.release()
        return found

    def _compared(self, replacement: Replacement, made: Pass, arguments: list[Any]) -> Gradients:
        """The original's gradients if every call is compared, and else the winner's."""
        state = replacement.state
        with self._clock.pause():
            own = made.gradients(arguments[0], keeps=True)
            before, written = copied((arguments, state))
            given = copied(arguments) if self._checker else arguments
        said, found = self._attempt(replacement, made, given)
        with self._clock.pause():
            said = said or write_difference("an argument", given, before)
            said = said or write_difference("its state", state, written)
            restore(state, written)
            restore(_numbered(given), _numbered(before))
            whole = made.filled(own)
            said = said or disagreement(found, whole, made.truth(arguments[0]))
            said = said or (ELSEWHERE if made.leads_elsewhere() else "")
            if self._checker and not said:
                said = self._checker.overwritten(key_of(arguments), found, whole, state)
            self._tally.count(said)
            made.release()
        return own if self._checker else found

    def _attempt(
        self, replacement: Replacement, made: Pass, arguments: list[Any]
    ) -> tuple[str, list[Tensor]]:
        """What the winner raises if every call is compared, and what it gives."""
        try:
            return "", self._winner_gradients(replacement, made, arguments)
        except FAILURES_OF_A_FUNCTION as error:
            if self._checker is None:
                raise
            return f"it raised {type(error).__name__}: {error}", []

    def _winner_gradients(
        self, replacement: Replacement, made: Pass, arguments: list[Any]
    ) -> list[Tensor]:
        if self._checker:
            return made.needed(replacement.call(arguments))
        with self._blaming():
            self._build(replacement, arguments)
            return made.needed(replacement.call(arguments))

    def _build(self, replacement: Replacement, arguments: list[Any]) -> None:
        """The first pass of a kind builds kernels: it is made on copies, outside of the time."""
        kind = key_of(arguments)
        if kind not in self._built:
            self._built.add(kind)
            with self._clock.building(), torch.no_grad(), drawing_from(random_state()):
                replacement.copy_of(device_of(arguments))(*copied(arguments))


def _numbered(tree: Any) -> dict[str, Tensor]:
    return {str(number): tensor for number, tensor in enumerate(tensors_of(tree))}


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
