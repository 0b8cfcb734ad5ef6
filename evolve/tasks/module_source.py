"""The text of a task file from a `torch.nn.Module` class or a function, and those of its inputs."""

import builtins
import inspect
import symtable
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from evolve.core.errors import UsageError
from evolve.tasks.definitions import Definition, NoSource, find_definition, namespace
from evolve.tasks.functions import ENTRY
from evolve.tasks.values import import_of, import_of_module, literal, nesting_fault

NO_INIT_INPUTS = "def get_init_inputs():\n    return []\n"
FUTURE = "from __future__ import annotations"


def task_source(
    task: type | FunctionType,
    inputs: Callable[[], Any] | None,
    init_inputs: Callable[[], Any] | None = None,
) -> str:
    """A self-contained task file: a module in the KernelBench convention, or a function task.

    It holds the text of the class as `Model`, or of the function as `reference`; of the functions
    of its inputs, as `get_inputs` and `get_init_inputs`; and of all that they use: constants,
    functions and classes of the user's own, and imports of installed modules. Nothing is executed
    here.

    Args:
        task: a subclass of `torch.nn.Module` or a function, from a file or a notebook's cell.
        inputs: a function without arguments that returns the list of the arguments of `forward`
            or of the function; for a function it may be a dict of arguments by name.
        init_inputs: the same for the constructor's; None: it has none.

    Raises:
        UsageError: something whose text cannot be had or that no text can stand for; the message
            names it and the remedy.
    """
    is_class = isinstance(task, type)
    if isinstance(task, type):
        _check_model(task)
    else:
        _check_function(task)
    if inputs is None:
        raise UsageError(
            f"inputs is not given: {task.__name__} is a {'class' if is_class else 'function'}, so "
            "name the function that makes its arguments, e.g. inputs=make_inputs"
        )
    text = ModuleText(task.__name__)
    text.define(task, "Model" if is_class else ENTRY, "task")
    text.define(_checked(inputs, "inputs"), "get_inputs", "inputs")
    if not is_class:
        if init_inputs is not None:
            raise UsageError(
                f"init_inputs={init_inputs!r} has no effect: {task.__name__} is a function, which "
                "has no constructor; leave init_inputs out"
            )
        text.claim("Model", None, "task")  # the name of the class that is put around it
    elif init_inputs is None:
        text.parts.append(NO_INIT_INPUTS)
    else:
        text.define(_checked(init_inputs, "init_inputs"), "get_init_inputs", "init_inputs")
    return text.whole()


def _check_model(model: type) -> None:
    bases = {f"{base.__module__}.{base.__qualname__}" for base in model.__mro__}
    if "torch.nn.modules.module.Module" not in bases:
        raise UsageError(
            f"task={model.__name__}: the class is no torch.nn.Module; give one, or the path of a "
            "task file"
        )


def _check_function(task: FunctionType) -> None:
    if task.__name__ == "<lambda>":
        raise UsageError(f"task={task!r}: a lambda has no text of its own; write it with def")
    if import_of(task.__name__, task):
        raise UsageError(
            f"task={task.__module__}.{task.__name__}: it is part of an installed package; write a "
            "function that calls it"
        )


def _checked(function: Callable[[], Any], field: str) -> FunctionType:
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(
            f"{field}={function!r}: it is no function with a name; write one with def, without "
            "arguments, that returns a list"
        )
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed):
        raise UsageError(
            f"{field}={function.__name__}: it is called without arguments, but needs "
            f"{', '.join(p.name for p in needed)}; give each a default"
        )
    return function


class ModuleText:
    """A module under construction: every name is defined before the text that uses it.

    Args:
        user: purpose of the names, for messages.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._bound: dict[str, Any] = {}
        self._imports: dict[str, None] = {}
        self._future = False
        self.parts: list[str] = []

    def whole(self) -> str:
        future = [FUTURE] if self._future else []
        return "\n\n".join(["\n".join([*future, *self._imports]), *self.parts])

    def define(self, thing: Any, name: str, field: str) -> None:
        """Add the text of a class or function as `name`, behind all that it uses.

        Raises:
            UsageError: its text, or that of a name it uses, is not available.
        """
        try:
            found = find_definition(thing)
        except NoSource as error:
            raise UsageError(
                f"{field}={thing.__name__}: its source cannot be read ({error}); define it in a "
                "file or a notebook's cell"
            ) from error
        self.claim(name, thing, field)
        if found.name != name:
            self.claim(found.name, thing, field)
        self._future |= found.postpones_annotations
        names = namespace(thing)
        for used in sorted(_used_names(found)):
            self._use(used, names, thing, field)
        alias = f"\n\n{found.name} = {name}\n" if found.name != name else ""
        self.parts.append(found.text_as(name) + alias)

    def claim(self, name: str, value: Any, field: str) -> None:
        """Raise UsageError if the name is bound to something else; from now on it is taken."""
        known = self._bound.setdefault(name, value)
        if known is not value:
            raise UsageError(
                f"{field}: {self._user} uses two different things that are called {name}; rename "
                "one of them"
            )

    def _use(self, name: str, names: Mapping[str, Any], user: Any, field: str) -> None:
        if name.startswith("__") or (name not in names and hasattr(builtins, name)):
            return
        if name not in names:
            raise UsageError(
                f"{field}={user.__name__}: it uses {name}, which is defined nowhere outside of "
                "it; define it at the top of the file or in a cell"
            )
        self.bind(name, names[name], user, field)

    def need(self, statement: str) -> None:
        """Add an import."""
        self._imports[statement] = None

    def bind(self, name: str, value: Any, user: Any, field: str) -> None:
        """Let a name have a value: by an import, a definition or a literal.

        Raises:
            UsageError: no text can stand for it.
        """
        if name in self._bound and _is_same(self._bound[name], value):
            return
        is_own = isinstance(value, type | FunctionType)
        imported = import_of_module(name, value) if isinstance(value, ModuleType) else None
        imported = imported or import_of(name, value)
        if imported:
            self.claim(name, value, field)
            self.need(imported)
        elif is_own and value.__name__ != "<lambda>":
            self.define(value, name, field)
        elif (text := literal(value)) is not None:
            self.claim(name, value, field)
            if text.startswith("torch."):
                self.need("import torch")
            self.parts.append(f"{name} = {text}\n")
        else:
            raise UsageError(
                f"{field}={user.__name__}: it uses {name}, {_described(value)}, which a task file "
                f"cannot hold; {_remedy(value)}"
            )


def _is_same(known: Any, value: Any) -> bool:
    return known is value or (
        type(known) is type(value) and literal(value) is not None and bool(known == value)
    )


def _described(value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"the module {value.__name__} of your own"
    if isinstance(value, FunctionType):
        return "a lambda"
    return nesting_fault(value) or f"a {type(value).__name__}"


def _remedy(value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"import what it uses by name: from {value.__name__} import ..."
    if isinstance(value, FunctionType):
        return "write it with def"
    return "make it a plain constant, or create it inside of the class or function"


def _used_names(found: Definition) -> set[str]:
    """Names that a definition takes from outside, in any of its scopes."""
    prefix = f"{FUTURE}\n" if found.postpones_annotations else ""
    table = symtable.symtable(prefix + found.text, "task", "exec")
    outside = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    for scope in _scopes(table):
        outside |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return outside - {"annotations"}


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _scopes(child)
