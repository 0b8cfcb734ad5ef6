"""Loading a task: the user's reference file as cases that give inputs, models and outcomes.

The file follows the KernelBench convention (`Model`, `get_inputs`, `get_init_inputs`) and runs
unmodified. Optional in it: `SIZES` (module constants by size), `get_input_groups` (a list of input
lists, each a case, as in MultiKernelBench), `check(output, reference, inputs)`,
`suite_check` (its suite's rule, reported beside the judge's), `PRECISION`, `ACCUMULATION`,
`TIMING`, `MODE` and `NAN`.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from evolve.core.errors import UsageError
from evolve.core.task import ACCUMULATIONS, ONLY_CASE, PRECISIONS, Case, Task
from evolve.worker.ipc.pytree import cast_floating, map_tensors, resolved
from evolve.worker.reference.arguments import by_position
from evolve.worker.reference.conditions import MODES, Conditions
from evolve.worker.reference.parameters import cast_module, randomise
from evolve.worker.reference.placing import CPU, made_on
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_files import folder_of
from evolve.worker.reference.task_module import Constants, execute, task_code
from evolve.worker.reference.torch_settings import TaskName

NAN_RULES = (NAN_LABEL, NAN_EQUAL) = ("label", "equal")
"""If an output has NaN or infinities in other places than the reference: `label` names it, `equal`
makes it wrong."""
TIMINGS = ("calls", "graph")
"""The timed form of calls: as a program makes them, or recorded as a CUDA graph."""
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


CaseT = TypeVar("CaseT", bound="TaskCase")


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskCase:
    """One case of a task, ready to run. Everything drawn from a seed is a function of the seed.

    `group` is the place of the case in `get_input_groups()`, None if the file has none; `place`
    the device on which inputs and models are made; `mode` (of `MODES`) the file's `MODE`,
    `nan` (of `NAN_RULES`) its `NAN`.
    No method disturbs the global random state.
    """

    task: str
    name: str
    weight: float
    timed: bool
    precision: str
    accumulation: str
    module: ModuleType
    group: int | None = None
    place: torch.device = CPU
    mode: str = MODES[0]
    nan: str = NAN_LABEL

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of floating tensors; None leaves them as the file makes them."""
        return _DTYPES.get(self.precision)

    @property
    def check(self) -> Callable[..., Any] | None:
        """The file's own `check(output, reference, inputs)`, if it has one."""
        return getattr(self.module, "check", None)

    @property
    def suite_check(self) -> Callable[..., Any] | None:
        """The rule of the suite that the task is from, of the same form, if it has one."""
        return getattr(self.module, "suite_check", None)

    def init_inputs(self, seed: int) -> list[Any]:
        """Arguments of the constructor of `Model` and `ModelNew`."""
        with task_code(self.task, "get_init_inputs()"), seeded(seed):
            made = made_on(self.place, self.module.get_init_inputs, seed, self._init_arguments)
            return self.cast(made)

    def _init_arguments(self, made: Any) -> list[Any]:
        given = by_position(self.task, "get_init_inputs()", self.module.Model, "", made)
        return _resolved(given)

    def made(self, seed: int, conditions: Conditions) -> nn.Module:
        """The reference as it is called under these conditions, all its parameters randomised.

        Constructed under `torch.manual_seed(seed)`; a candidate gets the same weights by
        `load_state_dict(model.state_dict())`.
        """
        model = conditions.apply(self.constructed(seed))
        randomise(model, seed)
        if self.dtype is not None:
            cast_module(model, self.dtype)
        return model

    def constructed(
        self, seed: int, mode: AbstractContextManager[Any] | None = None, draws: int | None = None
    ) -> nn.Module:
        """The same as its constructor leaves it, in a mode of torch if one is given.

        `draws` seeds the constructor, in place of `seed`.
        """
        with mode or contextlib.nullcontext():
            arguments = self.init_inputs(seed)
            draws = seed if draws is None else draws
            with task_code(self.task, "Model(*get_init_inputs())"), seeded(draws):
                model = made_on(self.place, lambda: self.module.Model(*arguments), draws)
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"task {self.task}: Model is a {type(model).__name__}, not a torch.nn.Module. "
                "Derive it from torch.nn.Module."
            )
        return self._materialised(model, seed, draws)

    def _materialised(self, model: nn.Module, seed: int, draws: int) -> nn.Module:
        """The model once its lazy parameters have a shape, which the first call gives them."""
        if not _has_lazy(model):
            return model
        inputs = self.own_inputs(seed)
        with torch.no_grad(), task_code(self.task, "Model.forward"), seeded(draws):
            model(*inputs)
        if _has_lazy(model):
            raise UsageError(
                f"task {self.task}: Model has lazy parameters that its forward does not use. Give "
                "them a shape, or leave them out."
            )
        return model

    def own_inputs(self, seed: int) -> list[Any]:
        """Arguments of `forward` as the file makes them, not cast."""
        with task_code(self.task, self._input_function), seeded(seed):
            return list(made_on(self.place, self._drawn, seed, _resolved))

    def argument_sets(self, seed: int, count: int) -> list[list[Any]]:
        """Arguments of `forward` for several calls, as the file draws them one after the other."""
        with task_code(self.task, self._input_function), seeded(seed):
            sets = made_on(
                self.place,
                lambda: [self._drawn() for _ in range(count)],
                seed,
                lambda drawn: [*map(_resolved, drawn)],
            )
        return [self.cast(inputs) for inputs in sets]

    @property
    def _input_function(self) -> str:
        return "get_inputs()" if self.group is None else "get_input_groups()"

    def _drawn(self) -> list[Any]:
        """Arguments of one call, in containers of their own: a file may fill its own anew."""
        if self.group is None:
            made = self.module.get_inputs()
        else:
            made = self.module.get_input_groups()[self.group]
        source = self._input_function
        given = by_position(self.task, source, self.module.Model, "forward", made)
        return list(map_tensors(_itself, given, "arguments"))

    def cast(self, values: list[Any]) -> list[Any]:
        """Floating tensors in the task's precision."""
        return values if self.dtype is None else cast_floating(values, self.dtype)


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _resolved(arguments: list[Any]) -> list[Any]:
    return list(map_tensors(resolved, arguments, "arguments"))


def _has_lazy(model: nn.Module) -> bool:
    return any(map(is_lazy, (*model.parameters(), *model.buffers())))


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskFile(Generic[CaseT]):
    """A task whose file has been executed; with its effective `precision` and `accumulation`.

    The file's `PRECISION` applies if the task says `task`, its `ACCUMULATION` if the task keeps the
    default (`ieee`). Its `TIMING` names the times that fitness is by, of `TIMINGS`.
    """

    task: Task
    precision: str
    accumulation: str
    timing: str
    cases: tuple[CaseT, ...]


def load_task_file(task: Task, place: torch.device, case_type: type[CaseT]) -> TaskFile[CaseT]:
    """Executes the task's source, once for every case, and checks its structure.

    `place` is the device on which its inputs and models will be made, `case_type` the class of the
    cases.

    The inputs and outputs themselves are checked where they are first made
    (`inputs`, `model`), with the same kind of error.

    Raises:
        UsageError: the file does not import, lacks a function, has a bad `SIZES`, or a size, case
            or constant is asked for that it does not define; the message names it and the remedy.
    """
    folder, name = folder_of(task), TaskName(task.name)
    plain = execute(name, task.source, {}, folder)
    for member in ("Model", "get_inputs", "get_init_inputs"):
        _require(name, plain, member)
    precision = _rule(task, plain, "PRECISION", task.precision, PRECISIONS)
    accumulation = _rule(task, plain, "ACCUMULATION", task.accumulation, ACCUMULATIONS)
    timing = _rule(task, plain, "TIMING", TIMINGS[0], TIMINGS)
    mode = _rule(task, plain, "MODE", MODES[0], MODES)
    nan = _rule(task, plain, "NAN", NAN_LABEL, NAN_RULES)
    sized = _size_constants(task, plain)
    cases: list[CaseT] = []
    for case in task.cases or (Case(name=ONLY_CASE),):
        constants = {**sized, **case.constants}
        module = execute(name, task.source, constants, folder) if constants else plain
        for group in _groups(name, module, place):
            suffix = "" if group is None else f"/group{group}"
            cases.append(
                case_type(
                    task=name,
                    name=case.name + suffix,
                    weight=case.weight,
                    timed=case.timed,
                    precision=precision,
                    accumulation=accumulation,
                    module=module,
                    group=group,
                    place=place,
                    mode=mode,
                    nan=nan,
                )
            )
    return TaskFile(
        task=task,
        precision=precision,
        accumulation=accumulation,
        timing=timing,
        cases=tuple(cases),
    )


def _require(task: str, module: ModuleType, name: str) -> None:
    alternative = name == "get_inputs" and hasattr(module, "get_input_groups")
    if not callable(getattr(module, name, None)) and not alternative:
        kind = "class" if name == "Model" else "function"
        raise UsageError(
            f"task {task}: the file defines no {kind} {name}. A task file has a class Model and "
            "functions get_inputs() and get_init_inputs() (the KernelBench convention)."
        )


def _rule(task: Task, module: ModuleType, name: str, asked: str, allowed: tuple[str, ...]) -> str:
    value = asked if asked != allowed[0] else getattr(module, name, asked)
    if value not in allowed:
        raise UsageError(
            f"task {task.name}: {name.lower()} is {value!r}; choose one of {', '.join(allowed)}."
        )
    return str(value)


def _size_constants(task: Task, module: ModuleType) -> Constants:
    sizes = getattr(module, "SIZES", None)
    if sizes is None:
        return {}
    if not isinstance(sizes, dict) or not all(isinstance(size, dict) for size in sizes.values()):
        raise UsageError(
            f"task {task.name}: SIZES is not a dict of dicts. "
            'Write it as SIZES = {"tiny": {"N": 64}, "cpu": {"N": 4096}, "gpu": {"N": 16384}}.'
        )
    if task.size not in sizes:
        raise UsageError(
            f"task {task.name}: size {task.size!r} is not in SIZES of the file "
            f"(there: {', '.join(map(str, sizes)) or 'none'}). Choose one of these or add it."
        )
    for name, value in sizes[task.size].items():
        if not isinstance(value, int | float | str):
            raise UsageError(
                f"task {task.name}: SIZES[{task.size!r}][{name!r}] is a {type(value).__name__}. "
                "Use a number or a string."
            )
    return dict(sizes[task.size])


def _groups(task: str, module: ModuleType, place: torch.device) -> list[int] | list[None]:
    if not hasattr(module, "get_input_groups"):
        return [None]
    with task_code(task, "get_input_groups()"), seeded(0):
        # Where inputs are made: some call a kernel, which runs there only.
        groups = made_on(place, module.get_input_groups, 0)
    if not isinstance(groups, list | tuple) or not groups:
        raise UsageError(
            f"task {task}: get_input_groups() gives no list of input lists. Return at least one."
        )
    return list(range(len(groups)))
