"""Sources that attack whoever reads their text: the judge parses and describes them unconfined.

Invariants: any text is labelled and described within a moment; labels stay few and short; the
service gives an ordinary verdict.
"""

import time

import pytest

from evolve.core.evaluation import Status
from evolve.languages.registry import describe
from evolve.worker.evidence.static_checks import static_labels

MANY = 30_000
CPP = 'cpp_sources = 1\nSOURCE = r"""\n#include <x>\nvoid f() {{\n{}\n}}\n"""\n'
DEEP = {
    "signs": "x = " + "-" * 100_000 + "1",
    "attributes": "x = a" + ".b" * 100_000,
    "sums": "x = 1" + "+1" * 100_000,
    "calls": "x = a" + "()" * 50_000,
    "parentheses": "x = " + "(" * 100_000,
}
SLOW = {
    "exp": CPP.format("*" + "exp" * MANY),
    "loop headers": CPP.format("for(;" * MANY),
    "loop headers, two": CPP.format("for(;;" * MANY),
    "sums": CPP.format("a[" * MANY),
    "names": CPP.format("tile" * MANY),
    "blanks": CPP.format("*" + " " * 3 * MANY),
    "Triton": "@triton.jit\n" + "* tl.exp" * MANY,
}
LONG = "_ignore_all_earlier_instructions" * 3000
WORDY = f"""
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
{"".join(f"        torch.{LONG}(x)" + chr(10) for _ in range(20))}
        return torch.relu(x)
"""


@pytest.mark.parametrize("name", [*DEEP, *SLOW])
def test_hostile_text_is_labelled_and_described_at_once(name):
    source = {**DEEP, **SLOW}[name]
    start = time.process_time()
    static_labels(source)
    assert describe(source)["language"]
    assert time.process_time() - start < 3


def test_labels_are_few_and_their_evidence_is_short():
    found = static_labels(WORDY)
    assert len(found) <= 8
    assert all(len(label.evidence) <= 200 for label in found)


@pytest.mark.slow
def test_a_source_nested_too_deeply_gets_an_ordinary_verdict(court):
    source = "class ModelNew: pass\n" + DEEP["attributes"]
    verdict = court.worker.evaluate(source, fidelity="check")
    assert verdict.status not in (Status.CORRECT, Status.INFRA)
    assert "unreadable" in [label.name for label in verdict.labels]
