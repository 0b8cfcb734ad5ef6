"""Bytes of a reference's outputs and temporaries, found out on tensors that have no values.

A convolution whose outcome is pooled at once may need fifty times the memory of its inputs and
outputs. Its processes have to have room for that, and it has to be known before any of them is
started.
"""

import importlib
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evolve.core.errors import UsageError
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.cases import LoadedCase
from evolve.worker.correctness.effects import Effects, judged_model
from evolve.worker.ipc.pytree import dense_parts, flatten
from evolve.worker.ipc.tensor_buffer import Outline
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code

_MAX_OPERATIONS = 5000  # each takes 0.4 ms: of an unrolled recurrence a call may be quicker


@dataclass(frozen=True, slots=True)
class Extent:
    """Of one call, in bytes: its outputs, and the most that is alive at once beside its inputs."""

    outputs: int
    peak: int


def prepare() -> None:
    """Import symbolic shapes, which takes seconds: they are first used under the task lock."""
    for name in ("fx.experimental.symbolic_shapes", "fx.experimental.validator"):
        importlib.import_module(f"torch.{name}")


def extent_of(case: LoadedCase, inputs: Outline, effects: Effects) -> Extent | None:
    """The extent of a call of the reference, without making it; None if it cannot be told.

    The needs of kernels themselves, such as the workspace of a convolution, are not seen.

    Args:
        case: Of a task that is loaded for this alone: what its module keeps has no values.
        inputs: Of one call, with the state behind its arguments if a call changes any.
        effects: Of a call; what it changes counts among the outputs.
    """
    mode: Any = None
    try:
        with task_code(case.task, "its inputs"):
            mode, tree = inputs.without_values(case.place)
        model = effects.conditions.apply(case.constructed(0, mode))
        with task_code(case.task, "Model.forward"), mode, torch.no_grad(), seeded(0):
            if case.dtype is not None:
                cast_module(model, case.dtype)
            given = [*dense_parts(tree), *model.parameters(), *model.buffers()]
            with Alive(given) as alive:
                outputs = flatten(judged_model(model, effects)(*tree))[0]
            return Extent(sum(output.nbytes for output in outputs), alive.most)
    except (
        UsageError
    ):  # it was not written for this; what is wrong with it shows where it is called
        return None


class Alive(DispatchMode):
    """Adds up what operations make, as long as it is referenced. `most` is the most so far.

    Not those `given`, nor views of them.
    """

    def __init__(self, given: Iterable[Tensor]) -> None:
        super().__init__()
        self.most = 0
        self._now = 0
        self._operations = 0
        # Kept, as a model may let go of some, and others in their place would count as given.
        self._given = [tensor.untyped_storage() for tensor in given]
        # Tensors of each piece of memory.
        self._holders = Counter(storage._cdata for storage in self._given)

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        self._operations += 1
        if self._operations > _MAX_OPERATIONS:
            raise RuntimeError("too long to go through all of it")
        made = operation(*arguments, **options)
        for tensor in dense_parts(made if isinstance(made, tuple | list) else [made]):
            self._count(tensor)
        self.most = max(self.most, self._now + _terms_bytes(operation, arguments))
        return made

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._holders[key]:
            self._now += size
            self.most = max(self.most, self._now)
        self._holders[key] += 1
        weakref.finalize(tensor, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            self._now -= size


def _terms_bytes(operation: Any, arguments: tuple[Any, ...]) -> int:
    """Bytes of a loss's terms, one for each element, before it adds them up."""
    is_loss = any(argument.name == "reduction" for argument in operation._schema.arguments)
    return int(arguments[0].nbytes) if is_loss else 0
