"""`Model` of a part's task file: a module as the script made it, or a function of torch."""

import enum
import functools
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import nn

from evolve.capture.jobs import Part
from evolve.capture.origin import constructor_of
from evolve.capture.own_functions import original_of
from evolve.capture.parts import parameter_names
from evolve.capture.reads import ALL
from evolve.capture.task_file import GRADIENTS, HELPER, RESERVED
from evolve.capture.withheld import without_secrets
from evolve.core.errors import UsageError
from evolve.tasks.module_source import ModuleText
from evolve.tasks.values import import_of, literal, nesting_fault

RENAMED = "Captured"  # of a class that is called Model itself
_FORWARD = "Forward"  # the class that a backward task is about
_BACKWARD = '''\
class Model(Backward, {forward}):
    """From the gradient of the outcome, and the arguments, those of all inputs."""

    def forward(self, {given}):
        return super().forward({given})
'''
_CONTAINERS: dict[type, str] = {list: "[{}]", tuple: "({},)", dict: "{{{}}}"}


class TaskText(ModuleText):
    """The part of a task's file that makes `Model`.

    Args:
        part: whose task it is.
        read: names of the attributes that are written, by the object's identity; all of an object
            that is not in it.
        is_backward: whether the task is of the backward pass.

    Attributes:
        withheld: names of secrets for which None stands.
        objects: with attributes, in the order in which the text makes them.
    """

    def __init__(
        self, part: Part, read: Mapping[int, set[str]] | None = None, *, is_backward: bool = False
    ) -> None:
        super().__init__(part.title)
        self._part, self._read = part, read or {}
        self._name = _FORWARD if is_backward else "Model"
        self.withheld: set[str] = set()
        self.objects: list[Any] = []
        self._given: list[str] = []  # parameters of the part
        for name in (*RESERVED, *([_FORWARD, "Backward"] * is_backward)):
            self.claim(name, RESERVED, part.title)
        self.need("from torch import nn")
        self.need(f"from {HELPER} import drawn")

    def model(self, module: nn.Module) -> str:
        """The whole text.

        Raises:
            UsageError: no text can stand for the class, or for an argument of its constructor.
        """
        made = constructor_of(module)
        if made is None:
            raise UsageError("the arguments of its constructor are unknown")
        base = self._class(type(module))
        words = self._words(made.args, made.kwargs)
        self.parts.append(self._class_text(base, words, type(module).forward))
        return self._open_text(made.withheld)

    def bind(self, name: str, value: Any, user: Any, field: str) -> None:
        super().bind(name, original_of(value), user, field)

    def _open_text(self, withheld: Iterable[str] = ()) -> str:
        """The whole text without secrets, whose names are kept in `withheld`."""
        if self._name == _FORWARD:
            self.need(f"from {GRADIENTS} import Backward")
            gradient = "grad_output" if "grad_output" not in self._given else "grad_output_"
            given = ", ".join([gradient, *self._given])
            self.parts.append(_BACKWARD.format(forward=_FORWARD, given=given))
        text, names = without_secrets(self.whole())
        self.withheld |= names | set(withheld)
        return text

    def function(self, function: Any) -> str:
        """The whole text of a function's task."""
        name = self._part.title
        if self._part.name.startswith("torch."):
            self.need(f"from {self._part.name.rpartition('.')[0]} import {name}")
        else:
            self.define(function, name, "its function")
        names = parameter_names(function, self._part.positional)
        self._given = [*names, *self._part.named]
        given, passed = self._signature(names)
        self.parts.append(
            f"class {self._name}(nn.Module):\n"
            f'    """The function `{name}`, as a module without state."""'
            f"\n\n    def forward({given}):\n        return {name}({passed})\n"
        )
        return self._open_text()

    def _signature(self, names: list[str]) -> tuple[str, str]:
        named = self._part.named
        given = ["self", *names, *named]
        return ", ".join(given), ", ".join([*names, *(f"{one}={one}" for one in named)])

    def _class_text(self, base: str, words: str, forward: Any) -> str:
        lines = [
            f"class {self._name}({base}):",
            f'    """`{self._part.title}`, as the script makes it."""',
        ]
        lines += ["", "    def __init__(self):", f"        super().__init__({words})"]
        if self._part.dtype not in ("float32", "none"):
            self.need("import torch")
            lines.append(f"        self.to(torch.{self._part.dtype})")
        names = parameter_names(forward, self._part.positional + 1)[1:]
        self._given = [*names, *self._part.named]
        every = parameter_names(forward, len(names) + len(self._part.named) + 1)[1:]
        if every != [*names, *self._part.named]:
            given, passed = self._signature(names)
            lines += ["", f"    def forward({given}):", f"        return super().forward({passed})"]
        return "\n".join(lines) + "\n"

    def _class(self, kind: type) -> str:
        name = RENAMED if kind.__name__ == "Model" else kind.__name__
        if imported := import_of(name, kind):
            self.claim(name, kind, self._part.title)
            self.need(imported)
        elif name in self._bound:
            self.claim(name, kind, self._part.title)
        else:
            self.define(kind, name, "its class")
        return name

    def _words(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        words = [self._expression(value) for value in args]
        words += [f"{name}={self._expression(value)}" for name, value in kwargs.items()]
        return ", ".join(words)

    def _expression(self, value: Any) -> str:
        """An expression for an argument of a constructor."""
        if (text := literal(value)) is not None:
            if text.startswith("torch."):
                self.need("import torch")
            return text
        if isinstance(value, torch.device):
            self.need("import torch")
            return f"torch.device({value.type!r})"
        if isinstance(value, enum.Enum):
            return f"{self._class(type(value))}.{value.name}"
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, functools.partial):
            self.need("import functools")
            words = self._words((value.func, *value.args), value.keywords)
            return f"functools.partial({words})"
        if type(value) in _CONTAINERS:
            return self._container(value)
        if isinstance(value, type):
            return self._class(value)
        if callable(value) and hasattr(value, "__name__"):
            self.bind(value.__name__, value, type(self), "its constructor")
            return str(value.__name__)
        return self._object(value)

    def _container(self, value: Any) -> str:
        if said := nesting_fault(value):
            raise UsageError(f"its constructor got {said}, which a task file cannot hold")
        if isinstance(value, dict):
            inner = ", ".join(f"{key!r}: {self._expression(one)}" for key, one in value.items())
        else:
            inner = ", ".join(map(self._expression, value))
        return _CONTAINERS[type(value)].format(inner)

    def _module(self, value: nn.Module) -> str:
        made = constructor_of(value)
        if made is None:
            raise UsageError(f"the arguments that made its {type(value).__name__} are unknown")
        self.withheld |= set(made.withheld)
        return f"{self._class(type(value))}({self._words(made.args, made.kwargs)})"

    def _object(self, value: Any) -> str:
        """An object that has attributes only: a configuration."""
        if not hasattr(value, "__dict__") or isinstance(value, torch.Tensor | FunctionType):
            raise UsageError(
                f"its constructor got a {type(value).__name__}, which a task file cannot hold"
            )
        self.need(f"from {HELPER} import with_attributes")
        read = self._read.get(id(value), {ALL})
        kept = {name: one for name, one in vars(value).items() if name in read or ALL in read}
        attributes = self._container(kept)
        self.objects.append(value)
        return f"with_attributes({self._class(type(value))}, {attributes})"
