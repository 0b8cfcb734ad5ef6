"""The observer that lets winners make a script's calls, behind guards."""

import functools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from evolve.capture.clock import Clock, is_recording_graph
from evolve.capture.interpose import Original
from evolve.capture.jobs import Tally
from evolve.capture.origin import module_text
from evolve.capture.parts import arguments_of, device_of, unwrapped
from evolve.capture.patching.backward import BackwardPasses
from evolve.capture.patching.checking import Checker
from evolve.capture.patching.replacement import Replacement, Winner
from evolve.capture.patching.sample import Sample
from evolve.capture.task_file import constructor_digest
from evolve.report.text import one_line
from evolve.testing.suite_tasks.captured import key_of
from evolve.worker.correctness.reference_runs import failures
from evolve.worker.ipc.pytree import copied
from evolve.worker.reference.seeding import drawing_from, random_state

_Numbered = tuple[int, Replacement]


class Patcher:
    """Times the outermost calls; winners make those that they were judged on.

    Args:
        winners: none for the original script.
        checks: whether the original makes every call too, and outcomes are compared.

    Attributes:
        failure: what a winner raised in a call that is not checked; empty if none did.
    """

    def __init__(self, winners: Sequence[Winner], *, checks: bool) -> None:
        self.clock, self.failure = Clock(), ""
        self.tallies = [Tally() for _ in winners]
        self._winners = winners
        self._checkers = [Checker(tally) for tally in self.tallies] if checks else []
        self._backward = [self._backward_passes(number) for number in range(len(winners))]
        self._depth = 0
        self._is_alone = False
        self._by_class: dict[type, list[int]] = {}
        self._replacements: Any = WeakIdKeyDictionary()
        self._functions: dict[str, list[_Numbered]] = defaultdict(list)
        for number, winner in enumerate(winners):
            if not winner.part.constructor:
                replacement = Replacement(winner, None, self.clock)
                self._functions[winner.part.name].append((number, replacement))
        self._built: set[Any] = set()

    def module(self, module: nn.Module, args: Any, kwargs: Any, run: Original) -> Any:
        own, _ = unwrapped(module)
        replacements = [] if self._is_alone else self._replacements_of(own)
        call = functools.partial(run, module)
        if self._depth and not replacements:
            return call(*args, **kwargs)
        return self._timed((id(own), own), replacements, args, kwargs, call)

    def function(self, name: str, args: Any, kwargs: Any, run: Original) -> Any:
        replacements = [] if self._is_alone else self._functions.get(name, [])
        if self._depth and not replacements:
            return run(*args, **kwargs)
        return self._timed((name, run), replacements, args, kwargs, run)

    def _timed(
        self,
        of: tuple[Any, Any],
        replacements: list[_Numbered],
        args: Any,
        kwargs: Any,
        run: Original,
    ) -> Any:
        """The call; its time is taken if it is inside of no other."""
        identity, original = of
        if self._depth or is_recording_graph():
            return self._call(original, replacements, args, kwargs, run)
        entered = time.perf_counter()
        kind = (identity, key_of([args, kwargs]))
        frame = self.clock.begin(kind, entered, is_outer=True)
        self._depth += 1
        try:
            return self._call(original, replacements, args, kwargs, run)
        finally:
            self._depth -= 1
            self.clock.end(frame)

    def _call(
        self, original: Any, replacements: list[_Numbered], args: Any, kwargs: Any, run: Original
    ) -> Any:
        reasons: dict[int, str] = {}
        for number, replacement in replacements:
            reasons[number] = replacement.refusal(args, kwargs)
            if not reasons[number] and replacement.winner.is_backward:
                return self._backward[number].call(replacement, original, args, kwargs, run)
            if not reasons[number]:
                with self._alone():
                    return self._replaced(number, replacement, original, args, kwargs, run)
        for number, reason in reasons.items():
            self.tallies[number].fallbacks[reason] += 1
        return run(*args, **kwargs)

    def _replaced(
        self,
        number: int,
        replacement: Replacement,
        original: Any,
        args: Any,
        kwargs: Any,
        run: Original,
    ) -> Any:
        """The call, made by a winner."""
        tally, winner = self.tallies[number], replacement.winner
        call_number = tally.made
        tally.made += 1
        if self._checkers:
            return self._checkers[number].call(replacement, original, args, kwargs, run)
        arguments = arguments_of(winner.part, args, kwargs)
        with self._blaming(winner):
            self._build(number, replacement, arguments)
        is_compared = call_number in winner.compared and not is_recording_graph()
        if not is_compared:
            return self._winner_call(replacement, arguments)
        with self.clock.pause():
            sample = Sample(winner.part, original, args, kwargs)
        return self._compared_call(tally, replacement, arguments, sample, run)

    def _compared_call(
        self,
        tally: Tally,
        replacement: Replacement,
        arguments: list[Any],
        sample: Sample,
        run: Original,
    ) -> Any:
        """The winner's call, then the original's outside of the time."""
        found = self._winner_call(replacement, arguments)
        with self.clock.pause():
            tally.count(sample.difference(arguments, found, run))
        return found

    def _winner_call(self, replacement: Replacement, arguments: list[Any]) -> Any:
        with self._blaming(replacement.winner):
            return replacement.call(arguments)

    @contextmanager
    def _blaming(self, winner: Winner) -> Iterator[None]:
        """An exception in this block is the winner's failure."""
        try:
            yield
        except failures() as error:
            said = one_line(str(error), 200)
            self.failure = f"the winner of {winner.name} raised {type(error).__name__}: {said}"
            raise

    def _build(self, number: int, replacement: Replacement, arguments: list[Any]) -> None:
        """The first call of a kind builds kernels: it is made on copies, outside of the time."""
        key = (number, key_of(arguments))
        if key not in self._built:
            self._built.add(key)
            with self.clock.building(), torch.no_grad(), drawing_from(random_state()):
                replacement.copy_of(device_of(arguments))(*copied(arguments))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within this block no winner makes a call: neither inside of a winner nor of a check."""
        before, self._is_alone = self._is_alone, True
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._is_alone = before

    def _backward_passes(self, number: int) -> BackwardPasses:
        return BackwardPasses(
            self.tallies[number],
            self.clock,
            self._alone,
            lambda: self._blaming(self._winners[number]),
            self._checkers[number] if self._checkers else None,
        )

    def _replacements_of(self, own: nn.Module) -> list[_Numbered]:
        kind = type(own)
        numbers = self._by_class.get(kind)
        if numbers is None:
            name = f"{kind.__module__}.{kind.__qualname__}"
            numbers = self._by_class[kind] = [
                number
                for number, winner in enumerate(self._winners)
                if winner.part.name == name and winner.part.constructor
            ]
        if not numbers:
            return []
        replacements: list[_Numbered] | None = self._replacements.get(own)
        if replacements is None:
            made = constructor_digest(module_text(own))
            replacements = self._replacements[own] = [
                (number, Replacement(self._winners[number], own, self.clock))
                for number in numbers
                if self._winners[number].part.constructor == made
            ]
        return replacements
