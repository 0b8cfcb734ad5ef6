"""A call of a timed run that the original makes too, outside of the time."""

from typing import Any

from torch import nn

from evolve.capture.interpose import Original
from evolve.capture.jobs import Part
from evolve.capture.parts import arguments_of
from evolve.capture.patching.agreement import disagreement, truth_of
from evolve.capture.patching.checking import restore, write_difference
from evolve.worker.ipc.pytree import copied
from evolve.worker.reference.conditions import named_state
from evolve.worker.reference.seeding import drawing_from, random_state


class Sample:
    """A call before the winner makes it: copies of arguments, state and random numbers.

    Args:
        part: whose call it is.
        original: a module, or a function.
        args: of the call.
        kwargs: of the call.
    """

    def __init__(self, part: Part, original: Any, args: Any, kwargs: Any) -> None:
        self._part, self._original = part, original
        self._call, self._wide = copied(((list(args), dict(kwargs)), (list(args), dict(kwargs))))
        self._state = named_state(original) if isinstance(original, nn.Module) else {}
        self._before, self._random = copied(self._state), random_state()

    def difference(self, arguments: list[Any], found: Any, run: Original) -> str:
        """How the winner's call, which has been made, differs from the original's; empty if not.

        State is left as the winner has left it.

        Args:
            arguments: of the winner's call, as it has left them.
            found: its outcome.
            run: the original.
        """
        found, written = copied((found, self._state))  # the outcome may be a part of the state
        restore(self._state, self._before)
        try:
            with drawing_from(self._random):
                truth = truth_of(self._original, *self._wide)
            args, kwargs = self._call
            with drawing_from(self._random):
                outcome = run(*args, **kwargs)
            said = disagreement(found, outcome, truth)
            theirs = arguments_of(self._part, tuple(args), kwargs)
            said = said or write_difference("an argument", arguments, theirs)
            return said or write_difference("its state", written, self._state)
        finally:
            restore(self._state, written)
