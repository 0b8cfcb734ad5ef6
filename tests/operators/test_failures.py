"""Which attempts a prompt shows as what did not help.

Invariant: a step counts as a failure only if it is known to be one; what has not been measured, or
has no parent to be compared with, is none.
"""

from evolve.core.evaluation import Status
from evolve.core.measurement import Ratio
from evolve.core.protocols import Attempt
from evolve.testing.facts import MemoryFacts
from evolve.testing.parts import make_context, make_elite
from operators.base import Base
from operators.prompting.inspirations import failures_of


def test_a_child_is_shown_as_a_failure_only_if_it_is_known_to_be_no_faster():
    parent, facts = make_elite("parent", speedup=2.0), MemoryFacts()
    child = {"program": "child", "parents": ("parent",)}
    right = {**child, "status": Status.CORRECT, "custom": True}
    facts.attempts += [
        Attempt(sequence=1, operator="mine", **right, ratio=Ratio(1.5, 1.4, 1.6)),
        Attempt(sequence=2, operator="mine", **right, ratio=Ratio(3.0, 2.9, 3.1)),
        Attempt(sequence=3, operator="mine", **right),  # not timed beside the baseline
        Attempt(sequence=4, operator="mine", **child, status=Status.WRONG_VALUE),
        Attempt(sequence=5, operator="mine", **child),  # under way
    ]
    base = Base.of([parent])
    shown = failures_of(make_context(facts, [parent]), base, 9)
    assert {each.sequence for each in shown} == {1, 4}
    without_its_speedup = failures_of(make_context(facts, []), base, 9)
    assert {each.sequence for each in without_its_speedup} == {4}
