"""Every cheat that is known, and some that were invented here, as the judge sees it.

Invariants:
- each gets a verdict of its closed set: refused, a class that never wins, or an honest score;
- none becomes the evaluator's own fault, and none gets text of the user's or of the terminal out;
- after all of them the service judges as before, and nothing of them is left.
"""

import re
import time

import pytest

from evolve.core.evaluation import Evaluation, Status
from tests.redteam.conftest import RIVAL
from tests.redteam.corpus import ACCEPTED, HONEST_SCORE, NOT_CUSTOM, Entry, corpus, marked
from tests.worker.serving import HONEST_CPP, alive, family_of

CHEATS = corpus("cheats")
_NOISE = 1.3  # of a quick look; a cheat that works gains several times
_FEEDBACK = 2000
_EVIDENCE = 200
MOVED = re.compile(  # of an error of who looks for a part of ours where it is no more
    r"module 'evolve\S+' has no attribute|No module named 'evolve|KeyError: 'evolve"
    r"|cannot import name .* from 'evolve|type object '{0}' has no attribute"
    r"|'{0}' object has no attribute|\b{0}\.\w+\(\) (missing|takes|got)".format(
        "(Runner|CpuAccess|CudaAccess|Turns|Signals|Calls|Account)"
    )
)


def outcomes(verdict: Evaluation) -> set[str]:
    """All that a verdict counts as; an honest score does not beat an honest kernel beside it."""
    if verdict.status is not Status.CORRECT:
        return {verdict.status.value}
    counts = set() if verdict.custom else {NOT_CUSTOM}
    ratio, eager = verdict.ratios.get(RIVAL), verdict.ratios.get("eager")
    if ratio is not None and (ratio.value < _NOISE or ratio.low < 1):
        counts.add(HONEST_SCORE)
    if eager is not None and eager.high < 1:  # clearly slower than the reference wins nothing
        counts.add(HONEST_SCORE)
    return counts


def shown(verdict: Evaluation) -> str:
    """All text that reaches people and models."""
    return "\n".join([verdict.feedback, *(label.evidence for label in verdict.labels)])


@pytest.mark.flaky(reruns=0)  # who gets through once has got through
@pytest.mark.parametrize(
    "entry",
    # To judge all takes minutes, and those that are timed need the machine to themselves. So half
    # of the cheats of fidelity check are quick and three of the timed, evenly apart in order of
    # their names. That one of the others wins is seen by `make test-all` only, which runs all.
    marked((entry for entry in CHEATS if not entry.alone), timed=3, checked=38),
)
def test_a_cheat_is_refused_set_apart_or_scored_honestly(entry: Entry, judge):
    verdict = judge(entry)
    assert not MOVED.search(verdict.feedback), verdict.feedback  # then it has attacked nothing
    found = outcomes(verdict)
    assert found & set(entry.verdicts), (found, verdict.feedback, verdict.ratios, verdict.labels)
    assert set(entry.verdicts) <= set(ACCEPTED)
    text = shown(verdict)
    assert "sk-secret" not in text
    assert all(char.isprintable() or char in "\n\t" for char in text)
    assert len(verdict.feedback) <= _FEEDBACK
    assert all(len(label.evidence) <= _EVIDENCE for label in verdict.labels)


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("entry", marked((entry for entry in CHEATS if entry.alone), timed=3))
def test_an_attack_on_the_machine_ends_with_its_candidate(entry: Entry, court):
    court.worker.evaluate("ModelNew = None", fidelity="check")  # starts what stays
    before = family_of(court.worker.process.pid)
    verdict = court.verdict(entry)
    assert verdict.status.value in entry.verdicts, verdict.feedback
    until = time.monotonic() + 2
    while left := alive(family_of(court.worker.process.pid) - before):
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["checked", pytest.param("timed", marks=pytest.mark.quiet)])
def test_after_all_of_them_the_service_judges_as_before(court, kind):
    assert court.worker.evaluate(HONEST_CPP, fidelity="check").strict
    assert {zygote["threads"] for zygote in court.worker.ask("doctor")["zygotes"]} == {1}
