"""Arguments by position, from the forms in which files give them.

A list of arguments is the rule. KernelBook gives a list of positional arguments and a dict of those
by name; others give the dict alone.
"""

import inspect
from typing import Any

from evolve.core.errors import UsageError

_Call = tuple[tuple[Any, ...], dict[str, Any]]


def by_position(task: str, source: str, model: Any, method: str, given: Any) -> list[Any]:
    """The arguments of a call as a list.

    The signature is read for arguments by name alone: Python has none of some functions.

    Args:
        task: Its name.
        source: The function of its file that gave them, in prose.
        model: The file's `Model`.
        method: The name of the method that is called; empty for the constructor.
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
    if not isinstance(given, dict) and not _is_list_and_dict(given):
        return list(given)
    name = f"Model.{method}" if method else "Model"
    signature = _signature(model, method)
    if signature is None:
        if not isinstance(given, dict):
            return list(given)
        raise UsageError(
            f"task {task}: {source} gives arguments by name, and {name} has no signature that "
            "Python can read. Return a list of arguments."
        )
    call = _named_call(given, signature)
    if call is None:
        return list(given)
    try:
        bound = signature.bind(*call[0], **call[1])
    except TypeError as error:
        raise UsageError(
            f"task {task}: {source} does not fit {name}: {error}. Correct its names."
        ) from error
    return _positional(task, name, signature, bound)


def _signature(model: Any, method: str) -> inspect.Signature | None:
    """As it is called, without `self`; None if Python cannot read it."""
    function = model
    if method:
        held = inspect.getattr_static(model, method)  # knows static methods, and those of a class
        function = held.__get__(object(), model) if hasattr(held, "__get__") else held
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _is_list_and_dict(given: Any) -> bool:
    return len(given) == 2 and type(given[0]) in (list, tuple) and type(given[1]) is dict


def _named_call(given: Any, signature: inspect.Signature) -> _Call | None:
    """Positional arguments and those by name; None for a list of arguments."""
    if isinstance(given, dict):
        return (), given
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
    for one in sorted(given):
        if kinds[one] is inspect.Parameter.VAR_KEYWORD:
            names = " and ".join(bound.arguments[one])
            raise UsageError(
                f"task {task}: {name} takes {names} by **{one}, and kernels are called by "
                f"position. Declare {names} in the signature, before the **."
            )
        if kinds[one] is inspect.Parameter.KEYWORD_ONLY:
            raise UsageError(
                f"task {task}: {name} takes {one} by name only, and kernels are called by "
                "position. Remove the * before it from the signature."
            )
    bound.apply_defaults()
    arguments = list(bound.args)
    if any(kinds[one] is inspect.Parameter.VAR_POSITIONAL for one in given):
        return arguments
    ordered = [one for one in signature.parameters if one in bound.arguments]
    last = max((at for at, one in enumerate(ordered) if one in given), default=-1)
    return arguments[: last + 1]
