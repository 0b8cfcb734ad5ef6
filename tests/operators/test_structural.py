"""The operator that rewrites the structure of Triton programs.

Invariants: the contract of operators; each rewrite of a program is proposed once; a child begins
with the values that its parent was best with, and says what was done to which kernel.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.compiled import Compiled
from evolve.core.errors import UsageError
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import Attempt, Declined, Proposal
from evolve.core.source.tunables import parse
from evolve.testing.operators import OperatorConformance
from evolve.testing.parts import MemoryFacts, make_context, make_elite
from operators.local.inductor import convert
from operators.local.structural import Structural

FIXTURE = json.loads((Path(__file__).parent / "inductor_fixtures/softmax_online.json").read_text())
PARENT = Program(convert(FIXTURE["task"], "softmax", Compiled.from_json(FIXTURE["compiled"])))
KERNEL = "softmax_prepare_softmax_kernel"
BLOCKS = (16, 32, 64, 128)
ALL = {f"{name} of {KERNEL}" for name in ("persistent_grid", "hold_rows", "pipeline_loops")}


class TestStructural(OperatorConformance):
    def make(self):
        return Structural()

    def sources(self):
        """Triton programs that the synthetic judge finds its constants in."""
        return tuple(f"{PARENT.source}\nBLOCK = {b}\nUNROLL = 1\nSTAGES = 1\n" for b in BLOCKS)


class Known(MemoryFacts):
    """Facts of a run that has the parent, and has seen some instances."""

    def __init__(self):
        super().__init__()
        self.instances, self.notes = set(), []

    def source(self, program):
        return {PARENT.digest: PARENT.source}.get(program, "x = 1\n")

    def children(self, program, limit):
        return [Attempt(sequence=at, operator="mine", note=n) for at, n in enumerate(self.notes)]

    def seen(self, instance):
        return instance in self.instances


def propose(facts, operator=None, sequence=0, program=PARENT.digest, assignment=None):
    elite = make_elite(program, assignment=assignment)
    return (operator or Structural()).propose(make_context(facts, [elite], sequence=sequence))


def test_every_rewrite_is_proposed_once_and_then_none():
    facts, notes = Known(), []
    while isinstance(answer := propose(facts, sequence=len(notes)), Proposal):
        notes.append(answer.note)
        facts.instances.add(instance_digest(answer.program.digest, {}))
        assert answer.parents == (PARENT.digest,)
    assert sorted(notes) == sorted(ALL)
    assert isinstance(answer, Declined)


def test_a_persistent_grid_has_multiples_of_the_devices_multiprocessors():
    elite = make_elite(PARENT.digest)
    context = replace(make_context(Known(), [elite]), device={"multiprocessors": "170"})
    child = Structural(["persistent_grid"]).propose(context)
    (programs,) = (t for t in parse(child.program.source) if t.name.endswith("_PROGRAMS"))
    assert programs.choices == (170, 340, 680, 1360, 2720)


def test_a_rewrite_is_not_made_again_when_its_parent_is_best_with_other_values():
    facts = Known()
    first = propose(facts, Structural(["hold_rows"]))
    facts.notes.append(first.note)
    answer = propose(facts, Structural(["hold_rows"]), assignment={"NUM_WARPS": 8})
    assert answer == Declined("no rewrite is left, the last: all that there are have been made")


def test_a_child_begins_where_its_parent_was_best():
    operator = Structural(["pipeline_loops"])
    best = {"XBLOCK": 4, "NUM_WARPS": 8}
    space = parse(PARENT.source)
    assert all(value != space[name].default for name, value in best.items())
    child = propose(Known(), operator, assignment=best)
    found = parse(child.program.source)
    assert {name: found[name].default for name in best} == best
    assert len(found) == len(space) + 1


def test_a_parent_without_triton_kernels_is_left_alone():
    assert propose(Known(), program="other") == Declined("the parent is no Triton program")


def test_an_unknown_rewrite_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"operators\.\*\.rewrites is 'inline'.*hold_rows"):
        Structural(["inline"])
