"""Arguments by position, from the forms in which files give them.

A list of arguments is the rule. KernelBook gives a list of positional arguments and a dict of those
by name; others give the dict alone.
"""

import inspect
from collections.abc import Callable
from typing import Any

from evolve.core.errors import UsageError

_Call = tuple[tuple[Any, ...], dict[str, Any]]


def by_position(task: str, source: str, function: Callable[..., Any], given: Any) -> list[Any]:
    """The arguments of a call of `function` as a list.

    Args:
        task: Its name.
        source: The function of its file that gave them, in prose.
        function: A class, or an unbound method.
        given: A list or tuple of arguments; a dict of arguments by name; or `[list, dict]`, where
            the names are those of parameters.

    Raises:
        UsageError: they are none of these, do not fit the signature, or have to be given by name.
    """
    if not isinstance(given, list | tuple | dict):
        raise UsageError(
            f"task {task}: {source} gives a {type(given).__name__}, not a list. "
            "Return a list of arguments, or a dict of arguments by name."
        )
    signature = _signature(function)
    call = _named_call(given, signature)
    if call is None:
        return list(given)
    try:
        bound = signature.bind(*call[0], **call[1])
    except TypeError as error:
        raise UsageError(
            f"task {task}: {source} does not fit {function.__qualname__}: {error}. Correct its "
            "names."
        ) from error
    return _positional(task, function.__qualname__, signature, bound)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Without `self`."""
    own = inspect.signature(function)
    if isinstance(function, type):
        return own
    return own.replace(parameters=list(own.parameters.values())[1:])


def _named_call(given: Any, signature: inspect.Signature) -> _Call | None:
    """Positional arguments and those by name; None for a list of arguments."""
    if isinstance(given, dict):
        return (), given
    if len(given) != 2 or type(given[0]) not in (list, tuple) or type(given[1]) is not dict:
        return None
    args, kwargs = tuple(given[0]), given[1]
    if kwargs and not set(kwargs) <= set(signature.parameters):
        return None
    if not kwargs and _fits(signature, given):
        return None  # a list and an empty dict
    return args, kwargs


def _fits(signature: inspect.Signature, given: Any) -> bool:
    try:
        signature.bind(*given)
    except TypeError:
        return False
    return True


def _positional(
    task: str, name: str, signature: inspect.Signature, bound: inspect.BoundArguments
) -> list[Any]:
    """All up to the last that is given; those between have their defaults."""
    given = set(bound.arguments)
    kinds = {one.name: one.kind for one in signature.parameters.values()}
    by_name = [
        one for one in given
        if kinds[one] in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    ]  # fmt: skip
    if by_name:
        raise UsageError(
            f"task {task}: {name} takes {sorted(by_name)[0]} by name only, and kernels are called "
            "by position. Remove the * before it from the signature."
        )
    bound.apply_defaults()
    arguments = list(bound.args)
    ordered = [one for one in signature.parameters if one in bound.arguments]
    if kinds.get(ordered[-1] if ordered else "") is inspect.Parameter.VAR_POSITIONAL:
        return arguments
    last = max((at for at, one in enumerate(ordered) if one in given), default=-1)
    return arguments[: last + 1]
