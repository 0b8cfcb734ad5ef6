"""compute-sanitizer at verification, where the host has it.

Invariants:
- a kernel that reads out of bounds is refused although its outcome is right;
- an honest one is labelled clean.
"""

import pytest

from evolve.core.evaluation import Status
from evolve.worker.sanitizer import find_tool
from tests.gpu.programs import RIGHT, SMALL, triton_program

needs_tool = pytest.mark.skipif(find_tool() is None, reason="no compute-sanitizer on this host")
# Reads on behind the input, and stores nothing of it.
READS_ON = triton_program(before="", grid="(triton.cdiv(x.numel(), BLOCK) + 4,)").replace(
    "mask=at < n, other", "mask=at < 2 * n, other"
)


@needs_tool
@pytest.mark.slow
def test_reads_out_of_bounds_are_refused(worker):
    verdict = worker.evaluate(READS_ON, SMALL, fidelity="verify")
    print(verdict.feedback, verdict.durations_s, verdict.labels)
    assert verdict.status is Status.ILLEGAL_ACCESS
    assert "compute-sanitizer" in verdict.feedback


@needs_tool
@pytest.mark.slow
def test_an_honest_kernel_is_labelled_clean(worker):
    verdict = worker.evaluate(RIGHT + "\n# verified\n", SMALL, fidelity="verify")
    print(verdict.durations_s, verdict.labels)
    assert verdict.status is Status.CORRECT
    found = {label.name: label.evidence for label in verdict.labels}
    assert found["memcheck"] == "no error in one call"
