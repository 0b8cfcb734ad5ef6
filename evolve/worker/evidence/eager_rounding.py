"""How eager's convolutions round float32.

If torch lets cuDNN round operands to tf32 it does for most shapes, and for others it does not (on
an H200, of images with 8 channels). Programs are held against the reference's own error, so one
that rounds if the reference does not is wrong.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evolve.core.compiled import EXACT_CONVOLUTIONS, convolution_key
from evolve.core.errors import UsageError
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.base.shortage import is_short_of_memory
from evolve.worker.correctness.convolution import CONVOLUTION, ByProducts
from evolve.worker.correctness.tolerance import relative_error
from evolve.worker.session.candidate_session import CandidateSession
from evolve.worker.session.prepared_task import PreparedTask

CONVOLUTIONS = "eager_convolutions"
"""The fact of a device (`Device.describe`): `tf32` if they may round, else `ieee`."""

_MIN_ERROR = 1e-5  # between errors of sums in float32 (1e-6) and those of rounded operands (2e-4)


def may_round(task: PreparedTask, session: CandidateSession) -> bool:
    """Whether to look: the device would, and the task seems to have a convolution."""
    may = session.device.describe().get(CONVOLUTIONS) == "tf32"
    return may and "conv" in task.task.source.lower()


def described(task: PreparedTask, session: CandidateSession) -> dict[str, str]:
    """The facts of the device, with the precision of its convolutions in this task."""
    facts = session.device.describe()
    if may_round(task, session):
        if _is_exact(task, session):
            facts[CONVOLUTIONS] = "ieee"
        else:
            facts[EXACT_CONVOLUTIONS] = ";".join(_exact_ones(task, session))
    return facts


def _is_exact(task: PreparedTask, session: CandidateSession) -> bool:
    hidden = session.hidden(partial(task.timed[0].check, "task", 0))
    with session.on_device():
        return are_exact(hidden.expected.reference, hidden.expected.truth)


def _exact_ones(task: PreparedTask, session: CandidateSession) -> list[str]:
    """Keys of the convolutions that do not round, as far as there is memory to see."""
    watch = Watch()
    for case in task.cases:
        try:
            with session.on_device():
                case.run_under(watch)
        except (UsageError, torch.OutOfMemoryError) as error:
            if not is_short_of_memory(error):
                raise
    return sorted(key for key, is_exact in watch.found.items() if is_exact)


class Watch(DispatchMode):
    """Inside, each convolution of float32 is held against one in fp64, by its first image.

    Attributes:
        found: by key, whether it is exact. One without any error, of zeros, says nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, bool] = {}

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        if operation is CONVOLUTION and outcome.dtype is torch.float32 and outcome.numel():
            x, weight, bias, *settings = arguments
            key = convolution_key(x.shape, weight.shape, settings)
            if key not in self.found:
                doubled = (x[:1].double(), weight.double(), None if bias is None else bias.double())
                with ByProducts():
                    truth = operation(*doubled, *settings)
                if error := _largest_error([outcome[:1]], [truth]):
                    self.found[key] = error < _MIN_ERROR
        return outcome


def are_exact(outcomes: Sequence[Tensor], truth: Sequence[Tensor]) -> bool:
    """Whether outcomes are nearer to those in fp64 than operands of 11 bits would leave them.

    If there is no error at all, the truth may be the outcome itself.
    """
    return 0 < _largest_error(outcomes, truth) < _MIN_ERROR


def _largest_error(outcomes: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    errors = [
        _usual_error(relative_error(native, exact))
        for native, exact in zip(outcomes, truth, strict=True)
        if native.is_floating_point() or native.is_complex()
    ]
    return max(errors, default=0.0)


def _usual_error(errors: Tensor) -> float:
    """Of blocks that are not right anyway: an activation may leave hardly anything but zeros."""
    wrong = errors[errors > 0]
    return float(wrong.median()) if len(wrong) else 0.0
