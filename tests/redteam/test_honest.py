"""Honest kernels of many kinds: the judge has to leave them alone.

Invariants: each is correct, counts as custom, has no label that holds anything against it, and
where it is timed has an interval.
"""

import pytest

from evolve.core.evaluation import Status
from tests.redteam.corpus import Entry, corpus, marked

HONEST = corpus("honest")
AGAINST = {
    "aten_compute", "decoy_kernel", "timing_mismatch", "introspection", "evaluator_access",
    "library_call", "library_at_work", "torch_compute", "torch_internals", "dynamic_code",
    "subclasses_reference",
}  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    # To judge all takes minutes, and those that are timed need the machine to themselves. So about
    # a quarter of the kernels of fidelity check are quick and the first of the timed. That one of
    # the others is refused is seen by `make test-all` only, which runs all. Blocks of inputs of
    # 16 MB take seconds: those come last.
    marked(sorted(HONEST, key=lambda entry: entry.task == "energy"), timed=1, checked=8),
)
def test_an_honest_kernel_is_neither_failed_nor_flagged(entry: Entry, judge):
    verdict = judge(entry)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom, verdict.labels
    assert not {label.name for label in verdict.labels} & AGAINST, verdict.labels
    assert verdict.suite
    if entry.fidelity != "check":
        ratio = verdict.ratios["eager"]
        assert 0 < ratio.low <= ratio.value <= ratio.high


def test_there_are_at_least_thirty_of_them_without_a_gpu():
    assert len([entry for entry in HONEST if entry.device == "cpu"]) >= 30
