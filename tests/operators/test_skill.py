"""A skeleton of a run: which steps are changes, what they are compared with, what is counted."""

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import OPPONENT, Step
from evolve.core.measurement import Ratio
from evolve.core.task import Task
from operators.knowledge import parse, skeleton
from operators.knowledge.skill import RunRecord

SOURCE = "@triton.jit\ndef f(): ...\n\n\nX = '{}'\n"


def around(value: float, spread: float = 0.01) -> Ratio:
    return Ratio(value, value * (1 - spread), value * (1 + spread))


def step(sequence: int, program: str | None, speedup: float | None = None, **fields) -> Step:
    status = fields.pop("status", Status.CORRECT)
    return Step(
        sequence=sequence,
        operator=fields.pop("operator", "edit"),
        program=program,
        status=status,
        custom=fields.pop("custom", status is Status.CORRECT),
        ratios={"eager": around(speedup)} if speedup else {},
        **fields,
    )


def told(*steps: Step, feedback: str = "", **record) -> str:
    known = {
        "name": "a run",
        "task": Task(name="t", source=""),
        "baseline": "eager",
        "device": "cuda: NVIDIA H100",
        "versions": {},
        "steps": steps,
        "source": SOURCE.format,
        "feedback": lambda _: feedback,
    }
    return skeleton(RunRecord(**known | record))


def part(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def helped(text: str) -> list[str]:
    return [line for line in part(text, "What helped").splitlines() if line.startswith("- ")]


def hurt(text: str) -> list[str]:
    found = part(text, "What made it slower").splitlines()
    return [line for line in found if line.startswith("- ")]


def test_a_run_without_anything_says_so():
    text = told()
    assert "No change was faster by its whole interval." in text
    assert "No change was slower by its whole interval." in text
    assert "intervals show: 0." in text
    assert "No program without a parent was measured." in text
    assert "Nothing failed." in text
    assert parse(text, "x.md").id == "skill-a-run"


def test_a_change_is_compared_with_the_best_measurement_of_its_parent_before_it():
    text = told(
        step(0, "a", 1.0),
        step(1, "a", 2.0, assignment={"X": 2}),
        step(2, "b", 4.0, parents=("a",)),
        step(3, "a", 8.0, assignment={"X": 3}),
    )
    [line] = helped(text)
    assert line.startswith("- step 2, edit: 2.000 times as fast (1.972 to 2.028) as step 1")


@pytest.mark.parametrize(
    "child",
    [
        step(1, "b", 4.0, parents=("a",), operator=OPPONENT),
        step(1, "b", 4.0, parents=("a",), operator="verify"),
        step(1, "b", 4.0, parents=("a",), fidelity=Fidelity.SCREEN),
        step(1, "b", 4.0, parents=("a",), custom=False),
        step(1, "b", 4.0, parents=("a",), status=Status.WRONG_VALUE),
        step(1, "b", None, parents=("a",)),
        step(1, "b", 4.0, parents=("z",)),
        step(1, "b", 4.0),
    ],
)
def test_what_was_not_measured_beside_a_measured_parent_is_no_change(child):
    assert helped(told(step(0, "a", 1.0), child)) == []


def test_gains_come_first_by_size_and_losses_by_loss():
    text = told(
        step(0, "a", 1.0),
        *(step(n, f"p{n}", speedup, parents=("a",)) for n, speedup in
          [(1, 1.5), (2, 3.0), (3, 0.5), (4, 0.25), (5, 1.001)]),
    )  # fmt: skip
    assert [line.split(",")[0] for line in helped(text)] == ["- step 2", "- step 1"]
    assert [line.split(",")[0] for line in hurt(text)] == ["- step 4", "- step 3"]
    assert "intervals show: 1." in text


def test_eight_of_many_gains_are_told():
    children = [step(n, f"p{n}", 1 + n, parents=("a",)) for n in range(1, 11)]
    lines = helped(told(step(0, "a", 1.0), *children))
    assert len(lines) == 9
    assert lines[-1] == "- and 2 more"
    assert helped(told(step(0, "a", 1.0), *children[:8]))[-1].startswith("- step 1,")


def test_tunables_that_changed_are_named_and_no_others():
    text = told(
        step(0, "a", 1.0, assignment={"X": 1, "Y": 5}),
        step(1, "a", 2.0, parents=("a",), assignment={"X": 2, "Y": 5, "Z": 7}),
    )
    assert "\nX 1 to 2, Z as written to 7\n" in text
    assert "```diff" not in text  # the same program


def test_the_difference_of_programs_is_shown_up_to_forty_lines():
    long = {"a": "\n".join(f"a{n}" for n in range(30)), "b": "\n".join(f"b{n}" for n in range(30))}
    steps = step(0, "a", 1.0), step(1, "b", 2.0, parents=("a",))
    text = told(*steps, source=long.__getitem__)
    assert "-a29" in text
    assert "+b8" in text
    assert "+b9" not in text
    assert "... 21 more lines" in text
    assert "more lines" not in told(*steps)


def test_starts_are_first_measurements_fastest_first():
    text = told(
        step(0, "a", 1.0, operator="seed", note="# first ``` of them"),
        step(1, "b", 2.0, operator="seed"),
        step(2, "a", 9.0, operator="tune"),
        step(3, "c", 3.0, operator=OPPONENT),
        step(4, "d", 5.0, parents=("a",)),
    )
    lines = part(text, "Where it started").splitlines()
    starts = [line for line in lines if line.startswith("- ")]
    assert starts == [
        "- step 1, seed: 2.000 times eager, 1.980 to 2.020",
        "- step 0, seed: 1.000 times eager, 0.990 to 1.010",
    ]
    assert "first ''' of them" in lines


def test_failures_are_counted_by_status_and_by_their_first_line():
    text = told(
        *(step(n, f"p{n}", status=Status.WRONG_VALUE) for n in range(3)),
        step(3, "q", status=Status.TIMEOUT),
        step(4, "r", status=Status.INFRA),
        step(5, "s", 1.0),
        step(6, "m", status=Status.TIMEOUT, operator=OPPONENT),
        *(step(n, None, status=None, failure="no code\nat all") for n in (7, 8)),
        feedback="\nthe tail\nmore",
    )
    lines = part(text, "What failed").splitlines()
    kept = [line for line in lines if line.lstrip().startswith("- ")]
    assert kept == [
        "- wrong_value: 3", "  - 3 times:", "- timeout: 1", "  - 1 times:",
        "- not proposed: 2", "  - 2 times:",
    ]  # fmt: skip
    assert lines.count("the tail") == 2
    assert lines.count("no code") == 1


def test_a_failure_without_a_word_says_so():
    assert "  - 1 times, without a word" in told(step(0, "a", status=Status.TIMEOUT))


def test_versions_and_tags_are_in_front():
    text = told(
        step(0, "a", 1.0),
        task=Task(name="t", source="", category="scan"),
        versions={"triton": '3.7 "x"', "torch": "2.13"},
    )
    document = parse(text, "x.md")
    assert document.tags["category"] == ("scan",)
    assert document.tags["language"] == ("triton",)
    assert document.checked == {"torch": "2.13", "triton": "3.7  x "}
