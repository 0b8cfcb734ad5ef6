"""Recording the calls of chosen parts: the text of each task, tried on the calls themselves."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from evolve.capture.describe import Descriptions, Undescribed
from evolve.capture.interpose import Original
from evolve.capture.jobs import Part
from evolve.capture.parts import (
    arguments_of,
    device_of,
    part_of,
    part_of_function,
    unwrapped,
    write_counts,
)
from evolve.capture.reads import attribute_reads
from evolve.capture.text import TaskText
from evolve.capture.withheld import is_withheld
from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError
from evolve.testing.suite_tasks.captured import key_of
from evolve.worker.ipc.pytree import copied, is_tensors, tensors_of
from evolve.worker.reference.conditions import named_state
from evolve.worker.reference.seeding import RandomState, drawing_from, random_state

_RTOL = 1e-3  # of the largest value: the same operations on the same values
_IN_PLACE = (
    "it writes to an argument, and a backward task is of a part that leaves its arguments "
    "as they are"
)


@dataclass
class Recorded:
    """A part's task as far as it is known.

    Attributes:
        text: of `Model` and all that it uses; empty if `fault` says why there is none.
        calls: descriptions of arguments, by the text of their kind.
        files: values that have to be kept.
        withheld: names of secrets for which None stands in the text.
        backward_text: of the task of its backward pass; empty if no gradient came back.
        backward_fault: why there is none, though a gradient came back.
        backward_calls: descriptions of the gradient of the outcome, then of the arguments.
    """

    text: str = ""
    fault: str = ""
    calls: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Tensor] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)
    backward_text: str = ""
    backward_fault: str = ""
    backward_calls: dict[str, Any] = field(default_factory=dict)


class _Before(NamedTuple):
    """A call's arguments, its module's state and the random states, as they were before it."""

    arguments: list[Any]
    state: dict[str, Tensor]
    random: RandomState

    def copy(self) -> "_Before":
        """The same for a model that may write to its arguments."""
        arguments, state = copied((self.arguments, self.state))
        return _Before(arguments, state, self.random)


class Recorder:
    """The observer that records the first call of each wanted kind.

    Args:
        wanted: names of task files, and the kinds of calls as text, by part.
        folder: where the tasks will be written.
    """

    def __init__(self, wanted: dict[Part, tuple[str, set[str]]], folder: Path) -> None:
        self._wanted, self._folder = wanted, folder
        self.found: dict[Part, Recorded] = {}
        self._read: dict[Part, dict[int, set[str]]] = {}
        self._is_trying = False
        self._values: dict[Part, Descriptions] = {}

    def module(self, module: nn.Module, args: Any, kwargs: Any, run: Original) -> Any:
        own, _ = unwrapped(module)
        part = part_of(own, args, kwargs)
        call = lambda: run(module, *args, **kwargs)  # noqa: E731
        return self._call(part, own, args, kwargs, call)

    def function(self, name: str, args: Any, kwargs: Any, run: Original) -> Any:
        part = part_of_function(name, args, kwargs)
        return self._call(part, run, args, kwargs, lambda: run(*args, **kwargs))

    def _call(self, part: Part, own: Any, args: Any, kwargs: Any, run: Callable[[], Any]) -> Any:
        if part not in self._wanted or self._is_trying:
            return run()
        arguments = arguments_of(part, args, kwargs)
        kind = repr(key_of(arguments))
        name, kinds = self._wanted[part]
        recorded = self.found.setdefault(part, Recorded())
        if kind not in kinds or kind in recorded.calls or recorded.fault:
            return run()
        try:
            described, before = self._before(part, name, own, arguments)
        except (UsageError, Undescribed) as error:
            recorded.fault = str(error)
            return run()
        except FAILURES_OF_A_FUNCTION as error:  # of the user's objects: not the script's fault
            recorded.fault = _fault(error, "its arguments cannot be described")
            return run()
        counts = write_counts(arguments)
        outcome = run()
        recorded.calls[kind] = described
        try:
            self._take(part, recorded, own, before, outcome)
        except UsageError as error:
            recorded.fault = str(error).partition("\n")[0]
        except FAILURES_OF_A_FUNCTION as error:
            recorded.fault = _fault(error, "its task cannot be tried")
        if not recorded.fault:
            is_written = counts != write_counts(arguments)
            self._await_gradient(part, kind, own, before, outcome, is_written=is_written)
        if recorded.fault and recorded.withheld:
            recorded.fault += f" (the value of {', '.join(recorded.withheld)} was withheld)"
        return outcome

    def _before(
        self, part: Part, name: str, own: Any, arguments: list[Any]
    ) -> tuple[list[Any], _Before]:
        """Descriptions of the arguments, and copies of all that the call may change."""
        if isinstance(own, nn.Module) and (own._forward_hooks or own._forward_pre_hooks):
            raise UsageError("it has hooks, which a task would leave out")
        if torch.is_autocast_enabled(device_of(arguments)):
            raise UsageError("it is called under autocast, which a task would leave out")
        values = self._values.setdefault(part, Descriptions(name))
        named = zip(part.named, arguments[part.positional :], strict=True)
        for key, one in named:
            if is_withheld(key, one):
                raise Undescribed(f"argument {key} is a secret by its name, and tasks hold none")
        described = [values.of(one, f"argument {n}") for n, one in enumerate(arguments)]
        state = named_state(own) if isinstance(own, nn.Module) else {}
        return described, _Before(arguments, state, random_state()).copy()

    def _take(
        self, part: Part, recorded: Recorded, own: Any, before: _Before, outcome: Any
    ) -> None:
        if outcome is None:
            raise UsageError("it gives no tensor, and a task is judged by those that it gives")
        if not is_tensors(outcome):
            kind = type(outcome).__name__
            raise UsageError(f"it gives a {kind}; a task gives tensors in tuples, lists and dicts")
        recorded.files = self._values[part].files
        full = _text(part, own, {})
        recorded.text, recorded.withheld = full.text, full.withheld
        if not full.objects:
            self._try(part, full.text, before.copy(), outcome)
            return
        with attribute_reads(full.objects) as read:
            self._try(part, full.text, before.copy(), outcome)
        known = self._read.setdefault(part, {})
        for one, names in read.items():
            known.setdefault(one, set()).update(names)
        narrow = _text(part, own, known)
        with suppress(UsageError, *FAILURES_OF_A_FUNCTION):  # it reads in a way that is not seen
            self._try(part, narrow.text, before.copy(), outcome)
            recorded.text, recorded.withheld = narrow.text, narrow.withheld

    def _try(self, part: Part, text: str, before: _Before, outcome: Any) -> None:
        """Raise UsageError if the text's model gives something else than the call."""
        with self._trying(part, text, before) as model, drawing_from(before.random):
            _require_same(model(*before.arguments), outcome)

    @contextmanager
    def _trying(self, part: Part, text: str, before: _Before) -> Iterator[nn.Module]:
        """The text's model, in the state of the call; what it calls is not recorded."""
        self._is_trying = True
        try:
            with drawing_from(before.random), torch.no_grad():
                model = _made(text, self._folder, before.arguments).train(part.training)
                _set_state(model, before.state)
            with saved_tensors_hooks(_itself, _itself):  # not those of the script's checkpoints
                yield model
        finally:
            self._is_trying = False

    def _await_gradient(
        self,
        part: Part,
        kind: str,
        own: Any,
        before: _Before,
        outcome: Any,
        *,
        is_written: bool,
    ) -> None:
        """Record the gradient of the outcome, if one comes back to it."""
        recorded = self.found[part]
        tensors = [one for one in tensors_of(outcome) if isinstance(one, Tensor)]
        if recorded.backward_fault or not any(one.requires_grad for one in tensors):
            return
        if is_written:
            recorded.backward_fault = _IN_PLACE
            return
        if not isinstance(outcome, Tensor):
            recorded.backward_fault = "it gives several tensors; a backward task is of one"
            return
        described = recorded.calls[kind]

        def note(gradient: Tensor) -> None:
            if kind in recorded.backward_calls or recorded.backward_fault or self._is_trying:
                return
            try:
                one = self._values[part].of(gradient.detach(), "the gradient of its outcome")
                recorded.backward_calls[kind] = [one, *described]
                if not recorded.backward_text:
                    recorded.backward_text = self._backward_text(part, own, before.copy(), gradient)
            except (UsageError, Undescribed) as error:
                recorded.backward_fault = str(error).partition("\n")[0]
            except FAILURES_OF_A_FUNCTION as error:
                recorded.backward_fault = _fault(error, "its backward task cannot be tried")

        with suppress(RuntimeError):  # of a class that takes no hooks
            outcome.register_hook(note)

    def _backward_text(self, part: Part, own: Any, before: _Before, gradient: Tensor) -> str:
        text = _text(part, own, self._read.get(part, {}), is_backward=True).text
        with self._trying(part, text, before) as model, drawing_from(before.random):
            model(gradient.detach(), *before.arguments)
        return text


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _fault(error: Exception, what: str) -> str:
    """The fault of a part whose objects or text raise, in one line."""
    said = str(error).partition("\n")[0]
    return f"{what}: {type(error).__name__}: {said}"


class _Text(NamedTuple):
    text: str
    withheld: list[str]
    objects: list[Any]


def _text(part: Part, own: Any, read: dict[int, set[str]], *, is_backward: bool = False) -> _Text:
    builder = TaskText(part, read, is_backward=is_backward)
    text = builder.model(own) if isinstance(own, nn.Module) else builder.function(own)
    return _Text(text, sorted(builder.withheld), builder.objects)


def _made(text: str, folder: Path, arguments: Any) -> nn.Module:
    """The task's model, by its text, on the device of the arguments."""
    module = ModuleType("evolve_captured")
    module.__file__ = str(folder / "task.py")
    sys.modules[module.__name__] = module  # where dataclasses look names of annotations up
    exec(compile(text, "<captured task>", "exec"), module.__dict__)
    tensors = tensors_of(arguments)
    model: nn.Module = module.__dict__["Model"]()
    return model.to(tensors[0].device) if tensors else model


def _set_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    own = named_state(model)
    if own.keys() != state.keys() or any(own[name].shape != state[name].shape for name in own):
        raise UsageError("its parameters have changed since its constructor made it")
    for name, tensor in own.items():
        tensor.copy_(state[name])


def _require_same(found: Any, outcome: Any) -> None:
    ours, theirs = tensors_of(found), tensors_of(outcome)
    is_same = len(ours) == len(theirs) and all(map(_is_near, ours, theirs))
    if not is_same:
        raise UsageError(
            "made anew by its constructor it gives something else; something is set up later"
        )


def _is_near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    one, other = one.detach().double(), other.detach().double()
    scale = float(other[torch.isfinite(other)].abs().max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=0, atol=_RTOL * max(scale, 1e-30), equal_nan=True)
