"""What eager's convolutions make of float32.

Where torch lets cuDNN round operands to tf32 it does for most shapes, and for others it does not
(on an H200, of images with 8 channels). Programs are held against the reference's own error, so one
that rounds where the reference does not is wrong.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from evolve.worker.blocks import relative_error
from evolve.worker.warm import WarmTask
from evolve.worker.workshop import Workshop

CONVOLUTIONS = "eager_convolutions"
"""The fact of a device (`Device.describe`): `tf32` where they may round, else `ieee`."""

_LEAST = 1e-5  # between errors of sums in float32 (1e-6) and those of rounded operands (2e-4)


def may_round(task: WarmTask, workshop: Workshop) -> bool:
    """Whether to look: the device would, and the task seems to have a convolution."""
    may = workshop.device.describe().get(CONVOLUTIONS) == "tf32"
    return may and "conv" in task.task.source.lower()


def described(task: WarmTask, workshop: Workshop) -> dict[str, str]:
    """The facts of the device, with what its convolutions do in this task."""
    facts = workshop.device.describe()
    if may_round(task, workshop):
        hidden = workshop.hidden(partial(task.timed[0].check, "task", 0))
        with workshop.on_device():
            if are_exact(hidden.expected.reference, hidden.expected.truth):
                facts[CONVOLUTIONS] = "ieee"
    return facts


def are_exact(outcomes: Sequence[Tensor], truth: Sequence[Tensor]) -> bool:
    """Whether outcomes are nearer to those in fp64 than operands of 11 bits would leave them."""
    errors = [
        _usual_error(relative_error(native, exact))
        for native, exact in zip(outcomes, truth, strict=True)
        if native.is_floating_point() or native.is_complex()
    ]
    return 0 < max(errors, default=0.0) < _LEAST


def _usual_error(errors: Tensor) -> float:
    """Of blocks that are not right anyway: an activation may leave hardly anything but zeros."""
    wrong = errors[errors > 0]
    return float(wrong.median()) if len(wrong) else 0.0
