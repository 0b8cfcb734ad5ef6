"""Gluon and NVRTC under the judge, on a GPU.

Invariants: the example of each language's prompt is right, custom, and its kernel is its own in the
profile; a text that its compiler refuses fails with the compiler's words; what NVRTC
compiled is kept, so that later processes of the candidate compile nothing; a program for another
GPU is `invalid_interface`, with the remedy.

The honest kernels and the cheats in both are in `tests/redteam`.
"""

import re
from dataclasses import replace

import pytest

from evolve.core.evaluation import Evaluation, Status
from evolve.languages.gluon import GLUON
from evolve.languages.nvrtc import NVRTC
from evolve.worker.base.host_facts import examine_host
from tests.gpu.programs import TASK
from tests.languages.programs import example_of

DOUBLED = replace(
    TASK, name="doubled", source=TASK.source.replace("torch.relu(x) * 2 + x", "x * 2")
)


def labels(verdict: Evaluation) -> dict[str, str]:
    return {label.name: label.evidence for label in verdict.labels}


@pytest.mark.parametrize("language", [GLUON, NVRTC], ids=str)
def test_the_interpreter_that_judges_can_build_it(language):
    assert examine_host()["languages"][language.name] == ""


@pytest.mark.parametrize("language", [GLUON, NVRTC], ids=str)
def test_the_example_of_the_prompt_is_right_and_its_kernel_its_own(worker, language):
    verdict = worker.evaluate(example_of(language), DOUBLED, fidelity="reward")
    print(verdict.labels, verdict.descriptors, verdict.feedback, verdict.durations_s, sep="\n")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom
    assert verdict.descriptors["language"] == language.name
    assert verdict.descriptors["coverage"] > 0.95
    assert verdict.descriptors["registers"] > 0
    assert "(own)" in labels(verdict)["kernels"]


@pytest.mark.parametrize(
    ("language", "right", "wrong"),
    [
        (GLUON, "gl.load(x + at", "gl.loads(x + at"),
        (NVRTC, "static_cast<float>(factor)", "static_cast<flaot>(factor)"),
    ],
    ids=str,
)
def test_what_the_compiler_refuses_is_told_in_its_words(worker, language, right, wrong):
    source = example_of(language)
    assert right in source
    verdict = worker.evaluate(source.replace(right, wrong), DOUBLED, fidelity="check")
    early = Status.COMPILE_ERROR if language is NVRTC else Status.RUNTIME_EXCEPTION
    assert verdict.status in (Status.COMPILE_ERROR, early), verdict.feedback
    assert {"loads", "flaot"} & {*re.findall(r"\w+", verdict.feedback)}, verdict.feedback


# Fails where a later process compiles: its cache of the program's own would be empty.
COUNTED = """
from torch.cuda import _utils

plain = _utils._get_gpu_rtc_library
made = []
def library():
    made.append(1)
    return plain()
_utils._get_gpu_rtc_library = library
"""
REFUSES = """
import os
if made and os.path.exists("build") is False:
    raise RuntimeError("compiled again")
"""


def test_later_processes_of_a_candidate_compile_nothing(worker):
    source = f"{COUNTED}{example_of(NVRTC)}{REFUSES}"
    verdict = worker.evaluate(source, DOUBLED, fidelity="screen")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom


@pytest.mark.parametrize(
    ("language", "line"),
    [
        (GLUON, "from triton.experimental.gluon.language.nvidia.blackwell import tcgen05_mma\n"),
        (NVRTC, 'other = torch.cuda._compile_kernel(SOURCE, "scale", compute_capability="75")\n'),
    ],
    ids=str,
)
def test_a_program_for_another_gpu_is_refused_with_the_remedy(worker, language, line):
    verdict = worker.evaluate(example_of(language) + line, DOUBLED, fidelity="check")
    assert verdict.status is Status.INVALID_INTERFACE, verdict.feedback
    assert "leave it out" in verdict.feedback
