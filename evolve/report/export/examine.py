"""Facts of a task for an exported operator: arguments, state and outcomes of its cases.

The reference runs on fake tensors (shapes without values), so that a task of many gigabytes is
examined on any machine; one that looks at values runs for real.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.report.export.trees import accessors, builder, refusal, tensors_within
from evolve.worker.correctness.cases import LoadedCase, LoadedTask, load_task
from evolve.worker.correctness.reduction import ReductionTrace
from evolve.worker.ipc.pytree import cast_floating, map_tensors
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code


@dataclass(frozen=True, eq=False, kw_only=True)
class ExaminedCase:
    """One case as the reference takes it.

    `arguments` are those that `get_inputs` gives, by the names of forward's parameters; `state`
    holds parameters and buffers by their names in the module; tensors have no values.
    """

    name: str
    group: int | None
    constants: Mapping[str, int | float | str]
    init: tuple[Any, ...]
    arguments: Mapping[str, Any]
    state: Mapping[str, Tensor]
    outputs: list[Tensor]
    accessors: list[str]
    built: str
    reads_training: bool
    terms: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Examined:
    """A task that can become an operator, with the defaults of parameters that no case passes."""

    loaded: LoadedTask
    cases: tuple[ExaminedCase, ...]
    defaults: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class _Observed:
    init: list[Any]
    inputs: list[Any]
    state: dict[str, Tensor]
    tree: Any
    reads_training: bool
    terms: int
    parameters: list[inspect.Parameter]


def examine(task: Task) -> Examined:
    """All cases of a task.

    Raises:
        UsageError: the task does not run, or is none that a functional operator can stand for;
            the message says why.
    """
    loaded = load_task(task)
    constants = {case.name: dict(case.constants) for case in task.cases}
    cases: list[ExaminedCase] = []
    defaults: Mapping[str, Any] = {}
    for case in loaded.cases:
        observed = _observe(case)
        own = constants.get(case.name.partition("/group")[0], {})
        cases.append(_examined(case, own, observed))
        defaults = _defaults(observed)
    _check_alike(cases)
    return Examined(loaded=loaded, cases=tuple(cases), defaults=defaults)


def _observe(case: LoadedCase) -> _Observed:
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _run(case)
    except UsageError:  # an operation that needs values; a real fault comes again
        return _run(case)


@torch.no_grad()
def _run(case: LoadedCase) -> _Observed:
    init = case.init_inputs(0)
    with task_code(case.task, "the reference"), seeded(0):
        model, inputs = case.module.Model(*init), _inputs(case)
        if case.dtype is not None:
            cast_module(model, case.dtype)
            inputs = cast_floating(inputs, case.dtype)
        model.eval()
        state = dict(model.named_parameters(remove_duplicate=False))
        state |= dict(model.named_buffers(remove_duplicate=False))
        before = _versions(inputs, state)
        with _recorded_reads(model) as reads, ReductionTrace() as trace:
            tree = model(*inputs)
    after = _versions(inputs, state)
    changed = [name for name in after if after[name] != before[name]]
    if changed:
        raise refusal(
            f"the reference of {case.task} writes into its {changed[0]}, "
            "and a functional operator changes nothing"
        )
    parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    return _Observed(init, inputs, state, tree, bool(reads), trace.length, parameters)


def _inputs(case: LoadedCase) -> list[Any]:
    if case.group is None:
        return list(case.module.get_inputs())
    return list(case.module.get_input_groups()[case.group])


def _versions(inputs: list[Any], state: Mapping[str, Tensor]) -> dict[str, int]:
    """How often each tensor was written to."""
    found = {f"{name} (state)": tensor._version for name, tensor in state.items()}
    for index, value in enumerate(inputs):
        for tensor in tensors_within(value):
            found[f"argument {index}"] = found.get(f"argument {index}", 0) + tensor._version
    return found


@contextmanager
def _recorded_reads(model: nn.Module) -> Iterator[list[str]]:
    """Collects the classes of modules whose forward looks at `training`."""
    reads: list[str] = []

    def in_eval_mode(module: nn.Module) -> bool:
        reads.append(type(module).__name__)
        return False

    classes = {module: type(module) for module in model.modules()}
    for module, own in classes.items():
        module.__class__ = type(own.__name__, (own,), {"training": property(in_eval_mode)})
    try:
        yield reads
    finally:
        for module, own in classes.items():
            module.__class__ = own


def _examined(case: LoadedCase, constants: Mapping[str, Any], seen: _Observed) -> ExaminedCase:
    for parameter in seen.parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise refusal(f"the reference's forward takes {parameter}, which no schema can say")
    names = [parameter.name for parameter in seen.parameters]
    arguments = dict(zip(names, seen.inputs, strict=False))
    if not any(tensors_within(value) for value in arguments.values()):
        raise refusal(f"forward of {case.task} takes no tensor")
    outputs = accessors(seen.tree, "outcome")
    if not outputs:
        raise refusal(f"the reference of {case.task} returns no tensor")
    return ExaminedCase(
        name=case.name,
        group=case.group,
        constants=constants,
        init=tuple(seen.init),
        arguments=arguments,
        state=seen.state,
        outputs=[_meta(output) for output in outputs.values()],
        accessors=list(outputs),
        built=builder(seen.tree, _output_names(len(outputs))),
        reads_training=seen.reads_training,
        terms=seen.terms,
    )


def _output_names(count: int) -> list[str]:
    return ["outcome"] if count == 1 else [f"outcome[{index}]" for index in range(count)]


def _meta(output: Tensor) -> Tensor:
    """The outcome as the operator gives it: contiguous."""
    return torch.empty(output.shape, dtype=output.dtype, device="meta")


def _defaults(seen: _Observed) -> dict[str, Any]:
    """Defaults of the parameters of forward that no input is passed for."""
    rest = seen.parameters[len(seen.inputs) :]
    return {parameter.name: parameter.default for parameter in rest}


def _check_alike(cases: list[ExaminedCase]) -> None:
    """Cases differ in sizes, dtypes and plain values; their structure has to be one."""
    first = cases[0]
    for case in cases[1:]:
        if _structure(case) != _structure(first):
            raise refusal(f"cases {first.name} and {case.name} differ in what they take or return")


def _structure(case: ExaminedCase) -> tuple[list[str], list[str], str]:
    return list(case.arguments), list(case.state), case.built


def schema_kind(cases: tuple[ExaminedCase, ...], name: str) -> str:
    """The schema type of a parameter of forward; empty if it is a plain value, as judged."""
    values = [case.arguments[name] for case in cases]
    kinds = {_kind(value) for value in values}
    if kinds == {"Tensor", "None"}:
        return "Tensor?"
    if kinds <= {"plain", "None"}:
        return ""
    if len(kinds) == 1:
        return kinds.pop()
    raise refusal(f"argument {name} is a tensor in some cases and something else in others")


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return "Tensor"
    if value is None:
        return "None"
    nested: list[Tensor] = []
    map_tensors(nested.append, value)
    if not nested:
        return "plain"
    if len(tensors_within(value)) != len(nested):
        raise refusal("an argument of forward is a nesting that a schema cannot say")
    return "Tensor[]"
