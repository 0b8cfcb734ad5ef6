"""The cases of a task as a judge uses them: with input families, references and the truth."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.task import Task
from evolve.worker.correctness.input_families import applicable_families, family_named, transform
from evolve.worker.correctness.oracle import (
    Expected,
    Truth,
    evaluate_reference,
    evaluate_truth,
    expect,
)
from evolve.worker.ipc.pytree import flatten
from evolve.worker.reference.placing import CPU
from evolve.worker.reference.task_file import TaskCase, TaskFile, load_task_file


class LoadedCase(TaskCase):
    """See `TaskCase`."""

    def inputs(self, seed: int, family: str = "task") -> list[Any]:
        """Arguments of `forward`, of the named input family (see `families`)."""
        return self.cast(transform(self.own_inputs(seed), family, seed))

    def families(self) -> tuple[str, ...]:
        """Input families in which this case can be judged, `task` first."""
        return self._families

    @cached_property
    def _families(self) -> tuple[str, ...]:
        return applicable_families(self)

    def reference(self, model: nn.Module, inputs: list[Any]) -> list[Tensor]:
        """Outputs of the reference in native precision, flattened."""
        return flatten(evaluate_reference(self.task, model, inputs))[0]

    def truth(self, model: nn.Module, inputs: list[Any], reference: list[Tensor]) -> Truth:
        """Outputs computed in fp64, flattened; `reference` stands in if that is impossible."""
        return evaluate_truth(model, inputs, reference)

    def expected(self, model: nn.Module, inputs: list[Any], family: str = "task") -> Expected:
        """All that `judge` needs to know about these inputs; can be kept and used again.

        `family` is the one that the inputs come from: some make rounding errors systematic.
        """
        even = family_named(family).even
        return expect(self.task, model, inputs, accumulation=self.accumulation, even=even)


LoadedTask = TaskFile[LoadedCase]


def load_task(task: Task, place: torch.device = CPU) -> LoadedTask:
    """The task's file, executed; `place` is the device where inputs and models will be made.

    Raises:
        UsageError: see `load_task_file`.
    """
    return load_task_file(task, place, LoadedCase)
