"""The operator that proposes compiled references.

Invariants: every variant is proposed once, in order; one that cannot be converted is a recorded
failure and holds up none of the others; a task carries them from process to process unchanged.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.compiled import Compiled
from evolve.core.errors import UsageError
from evolve.core.protocols import Declined, Failed, Proposal
from evolve.core.task import Task
from operators.local.compiler_seed import CompilerSeed
from tests.operators.proposing import propose

FIXTURE = json.loads((Path(__file__).parent / "inductor_fixtures" / "softmax.json").read_text())
COMPILED = Compiled.from_json(FIXTURE["compiled"])
EMPTY = replace(COMPILED.cases[0], code="def call(args):\n    return ()\n")
BROKEN = replace(COMPILED, variant="looped", cases=(EMPTY,))
TASK = Task(name="softmax", source=FIXTURE["task"], compiled=(COMPILED, BROKEN))


def test_each_variant_is_proposed_once_and_a_failure_says_why():
    first, second, third = (propose(CompilerSeed(), TASK, count) for count in range(3))
    assert isinstance(first, Proposal)
    assert "class ModelNew" in first.program.source
    assert first.note == "variant default"
    assert isinstance(second, Failed)
    assert "looped" in second.reason
    assert isinstance(third, Declined)
    assert isinstance(propose(CompilerSeed(), replace(TASK, compiled=())), Declined)


def test_a_task_keeps_what_was_compiled_and_its_revision_does_not_depend_on_it():
    assert Task.from_json(json.loads(json.dumps(TASK.to_json()))) == TASK
    assert replace(TASK, compiled=()).revision == TASK.revision
    old = {key: value for key, value in TASK.to_json().items() if key != "compiled"}
    assert Task.from_json(old).compiled == ()


def test_an_unknown_variant_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"operators\.\*\.variants is 'fast'.*default"):
        CompilerSeed(["default", "fast"])
