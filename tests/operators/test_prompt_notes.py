"""Notes and directions in prompts: few, quoted, measured, and others for each answer to a state."""

import re
from dataclasses import replace

import pytest

from evolve.core.evaluation import Status
from operators import Edit, RewriteFull
from operators.knowledge import Diagnosis, Knowledge, load, parse
from operators.knowledge.retrieval import is_proven
from operators.prompting.directions import directions_for
from tests.operators.history import prompt_of, request_of
from tests.operators.prompt_states import (
    H100,
    softmax_h100,
)
from tests.operators.state_prompts import prompt


def test_notes_are_few_quoted_and_last():
    said = prompt("matmul", RewriteFull(knowledge=Knowledge()))
    _, _, notes = said.partition("\n# Notes that may help\n")
    assert "# Your answer" not in notes
    assert 0 < len(re.findall(r"^<quoted \w+ note>$", notes, re.MULTILINE)) <= 2
    assert len(notes) <= 6500
    assert "Measured: relative error at 4096^3 on an H200" in notes
    assert "\nassert " not in notes
    for word in ("AMD", "Blackwell", "float8", "(Untested"):
        assert word not in notes


@pytest.mark.parametrize("category", ["attention", "matmul", "softmax", "convolution", "scan"])
def test_notes_for_c_plus_plus_say_nothing_of_gpus_and_show_no_code_that_only_checks(category):
    wanted = Diagnosis(category=category, device="cpu", language="cpp", precision="fp32")
    found = Knowledge(limit=4, budget_tokens=90_000).retrieve(wanted)
    assert category in {tag for each in found for tag in each.document.tags.get("category", ())}
    for text in (each.text for each in found if each.document.id in ("attention", "cpu-gemm")):
        for word in ("warps", "Hopper", "tf32", "int main", "printf", "Triton", "multiprocessor"):
            assert word not in text


def test_the_vectorised_exponential_fits_beside_the_note_on_attention():
    wanted = Diagnosis(category="attention", device="cpu", language="cpp", precision="fp32")
    told = "".join(each.text for each in Knowledge().retrieve(wanted))
    assert "static inline float fast_exp(float x)" in told
    assert "On the CPU" in told


def test_a_note_about_another_operation_or_an_error_that_did_not_happen_is_left_out():
    for excerpt in Knowledge(limit=40, budget_tokens=90_000).retrieve(
        Diagnosis(category="softmax", bottleneck="memory", device="nvidia/hopper",
                  language="triton")
    ):  # fmt: skip
        tags = excerpt.document.tags
        assert "softmax" in tags.get("category", ("softmax",))
        assert "error" not in tags


def test_code_for_gpus_that_was_measured_nowhere_is_told_on_demand_only():
    wanted = Diagnosis(category="matmul", device="nvidia/hopper", language="triton")
    told = {each.document.id for each in Knowledge(limit=9).retrieve(wanted)}
    more = Knowledge(limit=9, budget_tokens=90_000, unmeasured=True).retrieve(wanted)
    assert "hopper-gemm" in {each.document.id for each in more} - told
    by_name = {document.id: document for document in load()}
    assert is_proven(by_name["linearity"], "nvidia/hopper")
    assert not is_proven(by_name["gemm-tiling"], "nvidia/hopper")
    assert not is_proven(by_name["tuning-spaces"], "nvidia/hopper")
    assert is_proven(by_name["debug-compile"], "nvidia/hopper")
    assert is_proven(by_name["cpu-gemm"], "cpu")


def test_figures_are_those_of_the_device():
    text = """\
---
id: mine
title: Mine
part: guidance
measured: {nvidia/hopper: "H100: 61 TFLOP/s"}
sources:
  - {title: a page, url: "https://example.org/page"}
---

Words.
"""
    document = parse(text.replace("part: guidance", "part: guidance\ntested: false"), "mine.md")
    assert document.figures("nvidia/hopper") == "H100: 61 TFLOP/s"
    assert document.figures("nvidia/ampere") == document.figures("nvidia") == ""


# Directions


@pytest.mark.parametrize("category", ["matmul", "attention", "convolution", "reduction", ""])
def test_directions_fit_the_limit_of_the_parent(category):
    """A program at the memory rate was sent to tensor cores, and one at its products to bytes."""
    for limit, foreign in {
        "memory": r"tensor core|arithmetic|split operands|product|larger tiles",
        "compute": r"passes over memory|accesses|bytes in flight|launches",
        "launch": r"tensor core|arithmetic|product|accesses",
    }.items():
        offered = directions_for(Diagnosis(bottleneck=limit, category=category))
        assert offered
        assert not [each for each in offered if re.search(foreign, each)]


def directions_of(state: str, count: int, operator=None) -> list[str]:
    found = []
    for sequence in range(count):
        said = prompt(state, operator, sequence=sequence)
        found += re.findall(r"^Direction for this answer[^:]*: ([^\n]*)", said, re.MULTILINE)
    return found


def test_answers_to_one_state_are_given_different_directions():
    assert len({*directions_of("softmax", 3)}) == 3
    assert directions_of("softmax", 3, RewriteFull(directions=False)) == []
    several = prompt("softmax", RewriteFull(samples=4))
    assert "Several answers are drawn to this prompt" in several


@pytest.mark.parametrize("limit", ["compute", "latency", "parallelism", "memory", ""])
def test_directions_for_cpp_are_about_no_gpu(limit):
    given = directions_for(Diagnosis(bottleneck=limit, category="matmul", language="cpp"))
    assert given
    assert not re.search(r"stages|programs per|shared memory|split operands", " ".join(given))
    assert limit not in ("compute", "latency") or "whole vectors" in " ".join(given)


def test_a_program_that_fails_is_put_right_and_not_sent_elsewhere():
    history = softmax_h100()
    wrong = next(a for a in history.attempts if a.status is Status.WRONG_VALUE)
    elite = replace(history.elites()[0], program=wrong.program)
    asked = request_of(RewriteFull(), history.context([elite], device=H100))
    assert "Direction for this answer" not in prompt_of(asked)


def test_the_job_of_an_edit_may_be_structural():
    assert "as few lines as it takes" not in prompt("matmul", Edit())
    assert "may be structural" in prompt("matmul", Edit())


# Length
