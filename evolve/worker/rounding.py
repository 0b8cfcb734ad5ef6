"""What eager's convolutions make of float32.

Where torch lets cuDNN round operands to tf32 it does for most shapes, and for others it does not
(on an H200, of images with 8 channels). Programs are held against the reference's own error, so one
that rounds where the reference does not is wrong.
"""

from functools import partial

from evolve.worker.blocks import relative_error
from evolve.worker.expected import Expected
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
            errors = _usual_errors(hidden.expected)
        if errors and max(errors) < _LEAST:
            facts[CONVOLUTIONS] = "ieee"
    return facts


def _usual_errors(expected: Expected) -> list[float]:
    """How far an outcome's blocks are from those in fp64; not of blocks that are right anyway.

    An activation may leave nearly nothing but zeros.
    """
    found = []
    for native, exact in zip(expected.reference, expected.truth, strict=True):
        if native.is_floating_point() or native.is_complex():
            errors = relative_error(native, exact)
            found += [float(errors[errors > 0].median())] if bool((errors > 0).any()) else []
    return found
