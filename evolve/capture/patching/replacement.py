"""A winner in place of one module or function: its calls and its parameters."""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evolve.capture.clock import Clock
from evolve.capture.jobs import Part
from evolve.capture.origin import type_of
from evolve.capture.parts import arguments_of, device_of
from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.report.export.program import load
from evolve.testing.suite_tasks.captured import key_of
from evolve.worker.ipc.pytree import copied, tensors_of
from evolve.worker.reference.conditions import named_state
from evolve.worker.reference.seeding import drawing_from, random_state

ALIGNMENT = 64  # bytes: PyTorch's allocators give it, so a kernel may have come to rely on it


class Unfit(Exception):
    """The winner cannot stand for a module; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A program for a part.

    Attributes:
        name: of its task.
        part: whose calls it can make.
        device: type of the device it was judged on.
        architecture: of that device, such as `sm_90`; empty if it is unknown.
        kinds: of the calls it was judged on, as `key_of` gives them.
        source: the program.
        is_backward: whether it is for the backward pass; the kinds have the gradient first.
        forward_kinds: the same of the forward calls.
        compared: numbers of its calls that are compared in a timed run, from 0.
    """

    name: str
    part: Part
    device: str
    architecture: str
    kinds: frozenset[Any]
    source: str
    is_backward: bool = False
    forward_kinds: frozenset[Any] = frozenset()
    compared: frozenset[int] = frozenset()

    def refusal(self, arguments: Any, state: list[Tensor]) -> str:
        """Why it must not make a call; empty if it may."""
        tensors = [*tensors_of(arguments), *state]
        needs = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if needs and not self.is_backward:
            return "gradients are recorded, and it has none: call the model under torch.no_grad()"
        if self.is_backward and not needs:
            return "no gradients are recorded, and it makes the backward pass"
        return self.misfit(arguments, state, self.forward_kinds if needs else self.kinds)

    def misfit(self, arguments: Any, state: list[Tensor], kinds: frozenset[Any]) -> str:
        """Why it must not be given such arguments, gradients aside; empty if it may."""
        tensors = [*tensors_of(arguments), *state]
        if torch.is_autocast_enabled(self.device):
            return "autocast is on, and it computes in the types that it is given"
        if key_of(arguments) not in kinds:
            return "shapes, dtypes, strides or plain values that it was not judged on"
        if any(tensor.device.type != self.device for tensor in tensors):
            return f"a tensor is not on the device that it was judged on ({self.device})"
        if any(type(tensor) not in (Tensor, nn.Parameter) for tensor in tensors):
            return "a tensor is of a class of its own"
        if any(tensor.data_ptr() % ALIGNMENT for tensor in tensors):
            return f"a tensor does not begin at a multiple of {ALIGNMENT} bytes"
        return ""

    def load(self, device: str | torch.device) -> None:
        """Execute the program, which may build kernels; once in a process.

        Raises:
            Unfit: it fails.
        """
        with _making(device):
            load(self.source)

    def made(self, device: str | torch.device) -> nn.Module:
        """Its `ModelNew`; the random generators are left as they are.

        Raises:
            Unfit: it fails.
        """
        with _making(device):
            model: nn.Module = load(self.source)()
        return model.to(device).requires_grad_(False).train(self.part.training)


@contextmanager
def _making(device: str | torch.device) -> Iterator[None]:
    """In this block tensors are made on a device, without random numbers of the script's.

    Raises:
        Unfit: the block fails.
    """
    try:
        with drawing_from(random_state()), torch.device(device):
            yield
    except (*FAILURES_OF_A_FUNCTION, SyntaxError) as error:
        raise Unfit(f"the winner cannot be made: {type(error).__name__}: {error}") from error


class Replacement:
    """A winner for one module, whose parameters and buffers it shares.

    Args:
        winner: whose calls it makes.
        own: the script's module; None for a function.
        clock: leaves out the time in which the winner is loaded.
    """

    def __init__(self, winner: Winner, own: nn.Module | None, clock: Clock) -> None:
        self.winner, self._own, self._clock = winner, own, clock
        self._model: nn.Module | None = None
        self._held: list[_Held] = []
        self._counts: list[tuple[dict[str, Any], int]] = []
        self._state: list[Tensor] = []
        self._unfit = ""

    def refusal(self, args: Any, kwargs: Any) -> str:
        """Why the original has to make this call; empty if the winner may."""
        part, own = self.winner.part, self._own
        if len(args) != part.positional or tuple(sorted(kwargs)) != part.named:
            return "it is called with other arguments than in the task"
        if own is not None:
            if own.training != part.training:
                return f"the module is in {'training' if own.training else 'eval'} mode"
            if any(map(_has_hooks, own.modules())):
                return "the module has hooks"
        if self._is_stale():
            self._build(device_of([args, kwargs]))
        arguments = arguments_of(part, args, kwargs)
        return self._unfit or self.winner.refusal(arguments, self._state)

    def backward_refusal(self, gradient: Tensor, arguments: list[Any]) -> str:
        """Why the original has to make this backward pass; empty if the winner may."""
        if self._is_stale():
            return "the module was changed between the forward and the backward pass"
        given = [gradient, *arguments]
        return self._unfit or self.winner.misfit(given, self._state, self.winner.kinds)

    @property
    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers of the script's module by name."""
        return named_state(self._own) if self._own is not None else {}

    def call(self, arguments: list[Any]) -> Any:
        """The call, made by the winner, after `refusal` has found nothing."""
        assert self._model is not None
        with torch.no_grad():
            return self._model(*arguments)

    def copy_of(self, device: str | torch.device) -> nn.Module:
        """The winner with copies of parameters and buffers as they are now."""
        model = self.winner.made(device)
        share(model, copied(self.state))
        return model

    def _is_stale(self) -> bool:
        """Whether parameters were exchanged or written to since: it may keep packed ones.

        Buffers may be written to, for they are read in every call.
        """
        is_new = self._model is None and not self._unfit
        is_larger = any(len(holder) != count for holder, count in self._counts)
        return (
            is_new
            or is_larger
            or any(
                (one.mark is not None and one.mark != _mark(one.thing))
                or one.holder.get(one.name) is not one.thing
                for one in self._held
            )
        )

    def _build(self, device: str) -> None:
        winner, own = self.winner, self._own
        here, self._unfit = architecture_of(winner.device), ""
        self._held = [] if own is None else list(_held(own))
        self._counts = [(holder, len(holder)) for holder in _holders(own)]
        self._state = [one.thing for one in self._held if isinstance(one.thing, Tensor)]
        try:
            if winner.architecture not in ("", here):
                raise Unfit(f"it was judged on {winner.architecture}, and this is {here}")
            if own is not None and type_of(own) != winner.part.dtype:
                raise Unfit(f"its parameters are not {winner.part.dtype}")
            with self._clock.building():
                winner.load(device)
            self._model = winner.made(device)
            share(self._model, _aliases(self.state) if winner.is_backward else self.state)
        except Unfit as error:
            self._unfit = str(error)


def _has_hooks(module: nn.Module) -> bool:
    """Whether something of the script's is called with the module, or with its gradients."""
    hooks = (
        *(module._forward_hooks, module._forward_pre_hooks),
        *(module._backward_hooks, module._backward_pre_hooks),
    )
    return any(hooks)


def architecture_of(device: str) -> str:
    """Of the current device of this type: `sm_90`, `x86_64`."""
    if device != "cuda" or not torch.cuda.is_available():
        return platform.machine()
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


class _Held(NamedTuple):
    """A parameter, buffer or module in a module, or None; `mark` of a parameter's values."""

    holder: dict[str, Any]
    name: str
    thing: Any
    mark: tuple[Any, ...] | None


def _held(own: nn.Module) -> Iterator[_Held]:
    for holder in _holders(own):
        for name, thing in holder.items():
            mark = _mark(thing) if isinstance(thing, nn.Parameter) else None
            yield _Held(holder, name, thing, mark)


def _holders(own: nn.Module | None) -> Iterator[dict[str, Any]]:
    """Where its modules keep parameters, buffers and modules."""
    for module in own.modules() if own is not None else ():
        yield from (module._parameters, module._buffers, module._modules)


def _mark(parameter: Tensor) -> tuple[Any, ...]:
    """Another one after the values have changed, in place or by `Module.to`."""
    version = -1 if parameter.is_inference() else parameter._version
    return version, parameter.data_ptr(), parameter.dtype


def _aliases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters in the same memory, with a `requires_grad` of their own; buffers themselves."""
    known: dict[int, Tensor] = {}  # one that has two names has one alias
    for one in state.values():
        is_parameter = isinstance(one, nn.Parameter)
        alias = nn.Parameter(one.detach(), requires_grad=False) if is_parameter else one
        known.setdefault(id(one), alias)
    return {name: known[id(one)] for name, one in state.items()}


def share(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Let a model have these tensors for its own of the same names.

    Raises:
        Unfit: it has others.
    """
    if named_state(model).keys() != state.keys():
        raise Unfit("the winner has other parameters than the module")
    for name, tensor in state.items():
        path, _, last = name.rpartition(".")
        holder = model.get_submodule(path)
        holders: tuple[dict[str, Any], ...] = (holder._parameters, holder._buffers)
        for own in holders:
            if last in own:
                own[last] = tensor
