"""What the red team found wrong in the service while it judged many things at once.

Invariant: an honest kernel is judged the same, whatever was judged before.
"""

import pytest

from evolve.core.evaluation import Status
from tests.redteam.corpus import corpus
from tests.redteam.tasks import TASKS

HONEST = {entry.name: entry for entry in corpus("honest")}
OTHERS = ["pick", "pair", "copy", "half"]  # as many as a judge keeps warm


@pytest.mark.slow
def test_a_task_that_comes_back_after_others_is_judged_by_its_own_weights(court):
    source, task = HONEST["linear_fused"].source, TASKS["linear"]
    assert court.worker.evaluate(source, task, "check").status is Status.CORRECT
    for name in OTHERS:
        court.worker.evaluate("ModelNew = None", TASKS[name], "check")
    assert court.worker.evaluate(source, task, "check").status is Status.CORRECT
