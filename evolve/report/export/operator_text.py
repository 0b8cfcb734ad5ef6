"""The parts of `op.py` that differ from task to task, as Python text."""

import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evolve.report.export.examine import Examined, ExaminedCase, schema_kind
from evolve.report.export.trees import argument_text, literal, refusal, tensor_text

_WORDS = """
ALIGNMENT ARCHITECTURE Any CASES Case DEVICE Like Model Sequence Tensor arguments cache case check
choose dataclass device inspect nn op outcome own owned platform reason reference run self state
super tensors_of torch
"""
_TAKEN = frozenset(_WORDS.split())
"""Names that mean something in `op.py` already."""
_LONG = 80
_ANNOTATIONS = {"Tensor": "Tensor", "Tensor?": "Tensor | None", "Tensor[]": "list[Tensor]"}


def operator_name(task: str) -> str:
    """A task's name as a Python identifier.

    >>> operator_name("1_Square matmul"), operator_name("softmax"), operator_name("run")
    ('op_1_square_matmul', 'softmax', 'run_op')
    """
    name = re.sub(r"\W+", "_", task.lower(), flags=re.ASCII).strip("_") or "kernel"
    name = f"op_{name}" if name[0].isdigit() else name
    return f"{name}_op" if name in _TAKEN or keyword.iskeyword(name) else name


def operator_values(name: str, examined: Examined) -> dict[str, Any]:
    """The variables of the template of `op.py`, for an operator of that name.

    Raises:
        UsageError: something in the task has no such text; the message names it.
    """
    first, defaults = examined.cases[0], examined.defaults
    _check_names([*first.arguments, *defaults], name)
    kinds = {argument: schema_kind(examined.cases, argument) for argument in first.arguments}
    tensors = {argument: kind for argument, kind in kinds.items() if kind}
    spelled = iter(_inner_names([*tensors, *first.state], name))
    given = dict(zip(tensors, spelled, strict=False))
    held = dict(zip(first.state, spelled, strict=True))
    own = {state: _attribute(state) for state in first.state}
    count = len(first.outputs)
    texts = {name: literal(value, f"the default of {name}") for name, value in defaults.items()}
    return {
        "cases": [_case_text(case) for case in examined.cases],
        "init": ", ".join(literal(value, "a constructor argument") for value in first.init),
        "schema": _schema({given[name]: kind for name, kind in tensors.items()}, held, count),
        "annotated": [
            *(f"{given[argument]}: {_ANNOTATIONS[kind]}" for argument, kind in tensors.items()),
            *(f"{state}: Tensor" for state in held.values()),
            "case: int",
        ],
        "returns": "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]",
        "given_arguments": _mapping(given, 4),
        "given_state": _mapping(held, 4),
        "accessors": first.accessors,
        "result": ", ".join(f"owned[{index}]" for index in range(count)),
        "parameters": _listed([*first.arguments, *(f"{n}={text}" for n, text in texts.items())]),
        "passed": ", ".join([*first.arguments, *(f"{name}={name}" for name in defaults)]),
        "call": _wrapped("(", [*tensors, *own.values(), "case"], ")", 8),
        "built": first.built,
        "reads_training": any(case.reads_training for case in examined.cases),
        "defaults": [{"name": name, "text": text} for name, text in texts.items()],
        "all_arguments": _mapping({name: name for name in first.arguments}, 8),
        "own_state": _mapping(own, 8),
    }


def _check_names(parameters: Iterable[str], operator: str) -> None:
    for parameter in parameters:
        if parameter in _TAKEN or parameter == operator:
            raise refusal(f"forward has a parameter called {parameter}; rename it in the task")


def _inner_names(names: Sequence[str], operator: str) -> list[str]:
    """Names for the operator's own parameters: `fc.weight` becomes `fc_weight`, each once."""
    found: list[str] = []
    for name in names:
        spelled = re.sub(r"\W", "_", name)
        spelled = f"p{spelled}" if spelled[0].isdigit() else spelled
        while spelled in found or spelled in _TAKEN or spelled == operator or _is_word(spelled):
            spelled += "_"
        found.append(spelled)
    return found


def _is_word(name: str) -> bool:
    return keyword.iskeyword(name)


def _attribute(name: str) -> str:
    """How a module reaches its parameter: `self.fc.weight`, `getattr(self.layers, '0').weight`."""
    text = "self"
    for part in name.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        text = f"{text}.{part}" if plain else f'getattr({text}, "{part}")'
    return text


def _case_text(case: ExaminedCase) -> dict[str, Any]:
    return {
        "plain_name": case.name,
        "name": literal(case.name, "a case"),
        "init": literal(case.init, "a constructor argument (get_init_inputs)"),
        "arguments": {
            name: argument_text(value, f"argument {name} of forward")
            for name, value in case.arguments.items()
        },
        "state": {name: tensor_text(tensor, name) for name, tensor in case.state.items()},
        "outputs": [tensor_text(output, "an outcome") for output in case.outputs],
    }


def _schema(given: Mapping[str, str], held: Mapping[str, str], count: int) -> str:
    """The operator's schema as a Python string, in pieces of a line if it is long."""
    parameters = [f"{kind} {name}" for name, kind in given.items()]
    parameters += [f"Tensor {name}" for name in held.values()]
    returned = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    whole = f"({', '.join([*parameters, 'int case'])}) -> {returned}"
    pieces = textwrap.wrap(whole, _LONG - 12, break_long_words=False, drop_whitespace=False)
    if len(pieces) == 1:
        return f'"{whole}"'
    return "\n".join(["(", *(f'        "{piece}"' for piece in pieces), "    )"])


def _mapping(items: Mapping[str, str], indent: int) -> str:
    return _wrapped("{", [f'"{name}": {text}' for name, text in items.items()], "}", indent)


def _wrapped(start: str, parts: Sequence[str], end: str, indent: int) -> str:
    """The parts on one line, or one on each if that gets long."""
    line = f"{start}{', '.join(parts)}{end}"
    if len(line) + indent <= _LONG:
        return line
    pad = " " * indent
    return "\n".join([start, *(f"{pad}    {part}," for part in parts), f"{pad}{end}"])


def _listed(parameters: Sequence[str]) -> str:
    return "".join(f", {parameter}" for parameter in parameters)
