"""The cases of a task as a judge uses them: with input families, references and the truth."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.base.shortage import is_short_of_memory
from evolve.worker.correctness.effects import (
    Effects,
    find_effects,
    initial_state,
    judged_model,
)
from evolve.worker.correctness.fp64_truth import Truth, evaluate_truth
from evolve.worker.correctness.input_families import applicable_families, family_named, transform
from evolve.worker.correctness.oracle import Expected, expect
from evolve.worker.correctness.reference_runs import evaluate_reference
from evolve.worker.ipc.pytree import flatten, map_tensors
from evolve.worker.reference.placing import CPU
from evolve.worker.reference.task_file import TaskCase, TaskFile, load_task_file
from evolve.worker.reference.torch_settings import settings_of


class LoadedCase(TaskCase):
    """See `TaskCase`."""

    @cached_property
    def effects(self) -> Effects:
        """The effects of a call besides its outputs; found out when they are first asked for.

        Raises:
            UsageError: the reference fails, or no candidate can be judged by it.
        """
        try:
            return find_effects(self, self.mode)
        except UsageError as error:
            if not is_short_of_memory(error):
                raise
        torch.cuda.empty_cache()  # others may have held it for a moment
        return find_effects(self, self.mode)

    def model(self, seed: int) -> nn.Module:
        """The reference, called as the judge does: changed tensors follow those returned."""
        return judged_model(self.made(seed, self.effects.conditions), self.effects)

    def inputs(self, seed: int, family: str = "task") -> list[Any]:
        """Inputs of a call, of the named family (see `families`): arguments, then state."""
        return [*self.cast(transform(self.own_inputs(seed), family, seed)), *self.state(seed)]

    def input_sets(self, seed: int, count: int) -> list[list[Any]]:
        """The same for several calls, as the file draws them one after the other."""
        state = self.state(seed)
        sets = [[*arguments, *state] for arguments in self.argument_sets(seed, count)]
        if self.effects.changed:  # no call may see the writes of another in its inputs
            sets = [list(map_tensors(Tensor.clone, inputs)) for inputs in sets]
        return sets

    def arguments(self, seed: int) -> list[Any]:
        """Arguments of `forward`."""
        return self.cast(self.own_inputs(seed))

    def state(self, seed: int) -> list[tuple[Tensor, ...]]:
        """The state before a call, as one argument, if calls change any."""
        has_state = bool(self.effects.conditions.state)
        return [initial_state(self, seed, self.effects)] if has_state else []

    def families(self) -> tuple[str, ...]:
        """Input families in which this case can be judged, `task` first."""
        return self._families

    @cached_property
    def _families(self) -> tuple[str, ...]:
        return applicable_families(self)

    def tree(self, model: nn.Module, inputs: list[Any]) -> Any:
        """Outputs of the reference in native precision."""
        return evaluate_reference(self.task, model, inputs)

    def reference(self, model: nn.Module, inputs: list[Any]) -> list[Tensor]:
        """The same, flattened."""
        return flatten(self.tree(model, inputs))[0]

    def truth(self, model: nn.Module, inputs: list[Any], reference: list[Tensor]) -> Truth:
        """Outputs computed in fp64, flattened; `reference` stands in if that is impossible."""
        with settings_of(self.task):
            return evaluate_truth(model, inputs, reference)

    def expected(self, model: nn.Module, inputs: list[Any], family: str = "task") -> Expected:
        """All that `judge` needs to know about these inputs; can be kept and used again.

        `family` is the one that the inputs come from: some make rounding errors systematic.
        """
        even = family_named(family).even
        return expect(
            self.task,
            model,
            inputs,
            accumulation=self.accumulation,
            even=even,
            changed=self.effects.names if self.effects.any else None,
        )


LoadedTask = TaskFile[LoadedCase]


def load_task(task: Task, place: torch.device = CPU) -> LoadedTask:
    """The task's file, executed; `place` is the device where inputs and models will be made.

    Raises:
        UsageError: see `load_task_file`.
    """
    return load_task_file(task, place, LoadedCase)
