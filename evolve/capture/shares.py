"""Shares of a script's time: of every part, with the workloads that its calls have."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from evolve.capture.clock import Clock, is_recording_graph
from evolve.capture.interpose import Original
from evolve.capture.jobs import Part
from evolve.capture.parts import (
    arguments_of,
    device_of,
    is_of_torch,
    part_of,
    part_of_function,
    shapes_text,
    unwrapped,
)
from evolve.testing.suite_tasks.captured import key_of


@dataclass
class _Open:
    part: Part
    is_closed: bool  # torch's own or compiled, whose functions are not looked at
    inner_calls: int = 0


@dataclass
class _Facts:
    inner_calls: int = 0
    is_compiled: bool = False
    has_gradients: bool = False
    shapes: dict[Any, str] = field(default_factory=dict)
    device: str = "cpu"


class Shares:
    """The observer that takes times."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._open: list[_Open] = []
        self._parts: dict[Part, _Facts] = defaultdict(_Facts)

    def module(self, module: nn.Module, args: Any, kwargs: Any, run: Original) -> Any:
        entered = time.perf_counter()
        own, is_compiled = unwrapped(module)
        part = part_of(own, args, kwargs)
        if is_compiled:
            self._parts[part].is_compiled = True
        opened = _Open(part, is_compiled or is_of_torch(own))
        return self._timed(opened, args, kwargs, lambda: run(module, *args, **kwargs), entered)

    def function(self, name: str, args: Any, kwargs: Any, run: Original) -> Any:
        if self._open and self._open[-1].is_closed:
            return run(*args, **kwargs)
        entered = time.perf_counter()
        opened = _Open(part_of_function(name, args, kwargs), name.startswith("torch."))
        return self._timed(opened, args, kwargs, lambda: run(*args, **kwargs), entered)

    def _timed(
        self, opened: _Open, args: Any, kwargs: Any, run: Callable[[], Any], entered: float
    ) -> Any:
        part = opened.part
        if any(one.part == part for one in self._open) or is_recording_graph():
            return run()  # a call inside of one of the same part
        arguments = arguments_of(part, args, kwargs)
        kind, facts = key_of(arguments), self._parts[part]
        if is_new := kind not in facts.shapes:
            facts.shapes[kind], facts.device = shapes_text(arguments), device_of(arguments)
        frame = self.clock.begin((part, kind), entered, is_outer=not self._open)
        self._open.append(opened)
        try:
            outcome = run()
        finally:
            left = self.clock.end(frame)
            self._close(facts)
        if is_new:
            _await_gradients(outcome, facts)
        self.clock.spent += time.perf_counter() - left
        return outcome

    def _close(self, facts: _Facts) -> None:
        closed = self._open.pop()
        inner_calls = closed.inner_calls or 1
        facts.inner_calls = max(facts.inner_calls, inner_calls)
        if self._open:
            self._open[-1].inner_calls += inner_calls

    def found(self) -> Iterator[dict[str, Any]]:
        """Every part, as plain data."""
        workloads: dict[Part, list[dict[str, Any]]] = defaultdict(list)
        for (part, kind), (calls, seconds) in self.clock.found().items():
            shapes = self._parts[part].shapes[kind]
            one = {"kind": repr(kind), "shapes": shapes, "calls": calls, "seconds": seconds}
            workloads[part].append(one)
        for part, some in workloads.items():
            facts = self._parts[part]
            yield {
                "part": part,
                "inner_calls": facts.inner_calls,
                "compiled": facts.is_compiled,
                "gradients": facts.has_gradients,
                "device": facts.device,
                "workloads": some,
            }


def _await_gradients(outcome: Any, facts: _Facts) -> None:
    """Note it if a gradient comes back to an outcome."""

    def note(_: Tensor) -> None:
        facts.has_gradients = True

    if isinstance(outcome, dict):
        outcome = list(outcome.values())
    for one in outcome if isinstance(outcome, list | tuple) else [outcome]:
        if isinstance(one, Tensor) and one.requires_grad:
            with contextlib.suppress(RuntimeError):  # of a class that takes no hooks
                one.register_hook(note)
