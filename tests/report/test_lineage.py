"""Lineage.

1. One node per program; edges lead from earlier to later programs, whatever steps say.
2. Only strictly correct, fully timed steps give a program a speedup.
3. A verification decides on the instance that it measures again: its speedup, or its fault.
4. The best path ends at the champion, begins at a root, and its gains multiply to the whole gain.
5. Exports can be read back, however hostile the names.
"""

import json
import math
from pathlib import Path

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import Step
from evolve.core.protocols import AddStatus
from evolve.report.lineage import (
    ancestors,
    best_path,
    export,
    graph,
    operator_contribution,
)
from evolve.store.champion import champion
from tests.report.filling import Filling, ratio


def step(sequence: int, program: str, *parents: str, speedup: float = 1.0, **fields) -> Step:
    values = {
        "operator": "improve",
        "status": Status.CORRECT,
        "custom": True,
        "ratios": {"eager": ratio(math.log(speedup), 0.02)},
    }
    return Step(sequence=sequence, program=program, parents=parents, **values | fields)


PROGRAMS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(
        st.one_of(st.none(), PROGRAMS),
        st.lists(PROGRAMS, max_size=3),
        st.sampled_from((None, *Status)),
        st.sampled_from(Fidelity),
        st.floats(0.1, 10),
    ),
    max_size=25,
).map(
    lambda rows: [
        Step(
            sequence=number,
            operator="any",
            program=program,
            parents=tuple(parents),
            status=status,
            custom=True,
            fidelity=fidelity,
            ratios={"eager": ratio(math.log(value), 0.1)} if status is Status.CORRECT else {},
        )
        for number, (program, parents, status, fidelity, value) in enumerate(rows)
    ]
)


@given(STEPS)
def test_any_steps_make_a_graph_without_cycles(steps: list[Step]) -> None:
    made = graph(steps)
    assert networkx.is_directed_acyclic_graph(made)
    assert set(made) == {step.program for step in steps if step.program}
    for parent, child in made.edges:
        assert made.nodes[parent]["sequence"] < made.nodes[child]["sequence"]


@given(STEPS)
def test_any_steps_have_a_best_path_whose_gains_multiply(steps: list[Step]) -> None:
    path = best_path(steps)
    timed = [
        s.ratios["eager"].value
        for s in steps
        if s.program and s.status is Status.CORRECT and s.fidelity is not Fidelity.SCREEN
    ]
    if not timed:
        assert path == []
        return
    assert path[-1].ratio is not None
    assert path[-1].ratio.value == max(timed)
    assert path[0].before is None
    if all(station.ratio for station in path):
        gain = math.prod(s.indirect_gain.value for s in path[1:] if s.indirect_gain)
        assert gain == pytest.approx(path[-1].ratio.value / path[0].ratio.value)  # type: ignore[union-attr]


def test_screens_plain_torch_and_failures_give_no_speedup() -> None:
    made = graph(
        [
            step(0, "screened", fidelity=Fidelity.SCREEN, speedup=9),
            step(1, "torch", custom=False, speedup=9),
            step(2, "unjudged", status=None, ratios={}),
            step(3, "baseline", operator="baseline", speedup=9),
        ]
    )
    assert not any("speedup" in node for _, node in made.nodes(data=True))
    assert "status" not in made.nodes["unjudged"]
    assert made.nodes["unjudged"]["evaluations"] == 0


VERIFIES = {"operator": "verify", "fidelity": Fidelity.VERIFY}
REFUTES = {"status": Status.WRONG_VALUE, "custom": None, "ratios": {}}


def test_a_node_has_the_verified_speedup_and_not_the_lucky_one() -> None:
    steps = [
        step(0, "a", speedup=3.0),
        step(1, "a", speedup=2.8, assignment={"BLOCK": 64}),  # another instance, not verified
        step(2, "a", speedup=1.5, **VERIFIES),
        step(3, "a", speedup=1.4, **VERIFIES),
        step(4, "a", speedup=3.5),
        step(5, "a", **VERIFIES | {"status": Status.INFRA, "custom": None, "ratios": {}}),
    ]
    node = graph(steps).nodes["a"]
    assert (node["best_sequence"], node["status"], node["evaluations"]) == (3, "correct", 6)
    assert node["speedup"] == pytest.approx(1.4)
    assert node["speedup_low"] < 1.4 < node["speedup_high"]


@pytest.mark.parametrize("later", [VERIFIES | REFUTES, REFUTES], ids=["verification", "search"])
def test_a_program_that_a_later_evaluation_refutes_is_not_correct(later: dict) -> None:
    refuted = [step(0, "a", speedup=3.0), step(1, "a", **later)]
    node = graph(refuted).nodes["a"]
    assert node["status"] == "wrong_value"
    assert "speedup" not in node
    tuned = graph([*refuted, step(2, "a", speedup=2.0, assignment={"BLOCK": 64})]).nodes["a"]
    assert (tuned["status"], tuned["best_sequence"]) == ("correct", 2)


def test_a_tuned_instance_is_a_station_of_its_own() -> None:
    steps = [
        step(0, "root", speedup=1.5),
        step(1, "root", "root", operator="tune", speedup=2.0, assignment={"BLOCK": 64}),
        step(2, "child", "root", speedup=3.0),
        step(3, "root", "root", operator="tune", speedup=2.9, assignment={"BLOCK": 128}),
    ]
    path = best_path(steps)
    assert [station.step.sequence for station in path] == [0, 1, 2]
    assert path[2].indirect_gain is not None
    assert path[2].indirect_gain.value == pytest.approx(1.5)
    assert path[2].indirect_gain.half_width > 0.02  # wider than either measurement


def test_the_path_ends_with_the_verification_that_the_headline_rests_on(
    searched: Filling,
) -> None:
    winner = champion(searched.store, searched.run)
    assert winner is not None
    assert winner.verified
    path = best_path(searched.store.steps(searched.run.id), "eager", winner.sequence)
    assert path[-1].step.sequence == winner.sequence
    assert path[-1].verifies
    assert path[-2].step.program == winner.program
    assert dict(path[-2].step.assignment) == dict(winner.assignment)
    assert path[0].step.operator == "seed"


def test_operators_are_credited_with_what_they_did(searched: Filling) -> None:
    steps = list(searched.store.steps(searched.run.id))
    found = {entry.operator: entry for entry in operator_contribution(steps)}
    assert sum(entry.proposals for entry in found.values()) == len(steps)
    assert found["seed"].path_gain is None
    assert found["seed"].path_steps == 1
    total = math.prod(entry.path_gain.value for entry in found.values() if entry.path_gain)
    path = best_path(steps)
    assert path[-1].ratio is not None
    assert path[0].ratio is not None
    assert total == pytest.approx(path[-1].ratio.value / path[0].ratio.value)


def test_what_an_operator_did_is_counted_by_how_it_ended() -> None:
    [found] = operator_contribution(
        [
            step(0, "a", device_time_s=1.5, offer=AddStatus.NEW),
            step(1, "b", custom=False, device_time_s=2.0, offer=AddStatus.NOT_ADDED),
            step(2, "c", status=Status.TIMEOUT, custom=None, ratios={}),
            step(3, "d", status=None, custom=None, ratios={}),
        ]
    )
    assert (found.proposals, found.judged, found.correct, found.archived) == (4, 3, 1, 1)
    assert found.device_time_s == 3.5


def test_ancestors_agree_with_the_store(searched: Filling) -> None:
    made = graph(searched.store.steps(searched.run.id))
    program = max(made, key=lambda digest: made.nodes[digest]["sequence"])
    stored = {step.program for step in searched.store.ancestors(searched.run.id, program)}
    assert set(ancestors(made, program)) == stored - {program}


def test_ancestors_of_an_unknown_program_say_where_to_look() -> None:
    with pytest.raises(UsageError, match="evolve show"):
        ancestors(graph([]), "nobody")


HOSTILE = 'im"prove\\ \n</data>\x00\x1b\u202e<b>'


@pytest.fixture
def hostile(tmp_path: Path) -> networkx.DiGraph:
    return graph(
        [
            step(0, "root", operator=HOSTILE),
            step(1, "child", "root", operator=HOSTILE, status=None, ratios={}),
        ]
    )


def test_graphml_is_read_back(hostile: networkx.DiGraph, tmp_path: Path) -> None:
    read = networkx.read_graphml(export(hostile, tmp_path / "g.graphml"))
    assert dict(read.nodes(data=True)) == dict(hostile.nodes(data=True))
    assert list(read.edges(data=True)) == list(hostile.edges(data=True))


def test_json_is_read_back(hostile: networkx.DiGraph, tmp_path: Path) -> None:
    data = json.loads(export(hostile, tmp_path / "g.json").read_text(encoding="utf-8"))
    read = networkx.node_link_graph(data, edges="edges")
    assert networkx.utils.graphs_equal(read, hostile)


def test_dot_quotes_what_names_contain(hostile: networkx.DiGraph, tmp_path: Path) -> None:
    text = export(hostile, tmp_path / "g.dot").read_text(encoding="utf-8")
    assert text.count("->") == 1
    outside = []
    quoted = escaped = False
    for character in text:
        if quoted and not escaped and character == "\\":
            escaped = True
            continue
        if character == '"' and not escaped:
            quoted = not quoted
        elif not quoted:
            outside.append(character)
        escaped = False
    assert not quoted
    assert "</data>" not in "".join(outside)
    assert "\x00" not in text


@pytest.mark.parametrize("name", ["g.svg", "g", "missing/g.json"])
def test_a_path_that_cannot_be_served_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="output"):
        export(graph([]), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
