"""How objects were made: the constructor's arguments of every module, kept with the module.

`copy.deepcopy` copies them too, so clones of a layer know theirs.
"""

import enum
import functools
import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evolve.capture.withheld import is_withheld, names_of_arguments
from evolve.tasks.values import literal, nesting_fault

_KEPT = "_evolve_constructor"
_CONTAINERS = (list, tuple, dict)  # which may hold secrets


class Constructor(NamedTuple):
    """Arguments that a constructor got; `withheld` are names of those that None stands for."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    withheld: tuple[str, ...] = ()


def keep_constructors() -> None:
    """From now on every new module keeps the arguments of its constructor."""

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        module: Any = object.__new__(cls)
        object.__setattr__(module, _KEPT, Constructor(args, kwargs))
        return module

    nn.Module.__new__ = new  # type: ignore[method-assign]


def constructor_of(module: nn.Module) -> Constructor | None:
    """The arguments, if they were kept, without secrets."""
    made: Constructor | None = vars(module).get(_KEPT)
    if made is None:
        return None
    names = names_of_arguments(type(module), len(made.args))
    args = list(zip(names, made.args, strict=True))
    return Constructor(
        tuple(open_value(name, value) for name, value in args),
        {name: open_value(name, value) for name, value in made.kwargs.items()},
        tuple(name for name, value in [*args, *made.kwargs.items()] if is_withheld(name, value)),
    )


def open_value(name: object, value: Any) -> Any:
    """The value of this name; None for a secret."""
    return None if is_withheld(name, value) else value


def text_of(value: Any) -> str:
    """A value as a text that is the same in every process, to tell constructors apart."""
    if not isinstance(value, _CONTAINERS) and (text := literal(value)) is not None:
        return text
    if isinstance(value, nn.Module):
        return module_text(value)
    if isinstance(value, Tensor):
        return f"<tensor {value.dtype} {tuple(value.shape)}>"
    if isinstance(value, enum.Enum | torch.device):
        return str(value)
    if said := nesting_fault(value):
        return f"<{said}>"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {text_of(open_value(key, one))}" for key, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, functools.partial):
        return f"partial({text_of(value.func)}, {text_of(value.args)}, {text_of(value.keywords)})"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    fields = sorted(vars(value).items()) if hasattr(value, "__dict__") else ()
    pairs = ((name, open_value(name, one)) for name, one in fields)
    inner = ", ".join(f"{name}={_attribute_text(one)}" for name, one in pairs)
    return f"{type(value).__qualname__}({inner})"


def _attribute_text(value: Any) -> str:
    is_shown = isinstance(value, _CONTAINERS) or literal(value) is not None
    return text_of(value) if is_shown else type(value).__name__


def module_text(module: nn.Module) -> str:
    """The call of the constructor, with `?` for arguments that are unknown."""
    made = constructor_of(module)
    if made is None:
        return f"{type(module).__qualname__}(?)"
    words = [text_of(value) for value in made.args]
    words += [f"{name}={text_of(value)}" for name, value in sorted(made.kwargs.items())]
    return f"{type(module).__qualname__}({', '.join(words)})"


def type_of(module: nn.Module) -> str:
    """Dtype of the first floating parameter or buffer, `none` without any."""
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        if tensor.is_floating_point():
            return str(tensor.dtype).removeprefix("torch.")
    return "none"
