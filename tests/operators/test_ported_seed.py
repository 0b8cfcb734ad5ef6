"""The operator that proposes compiled references in another language.

Invariants: each compiled reference for a GPU is proposed once, in the language that is named; one
that cannot be rewritten, or whose products the GPU cannot run, is a recorded failure, and so is a
language that the judge lacks; what a task
allows decides into how many parts a float32 is cut first.
"""

from dataclasses import replace

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.protocols import Declined, Failed, Proposal
from evolve.core.source import tunables
from evolve.core.task import Task
from evolve.languages.registry import find_language, languages_in
from operators.local.ported_seed import PortedSeed
from operators.local.ports import PORTS
from tests.operators import port_cases, proposing
from tests.operators.output_code import TASK, compiled, matrix, pointwise, room

LINES = [
    "with torch.cuda._DeviceGuard(0):",
    "    " + room("buf0", matrix(80, 90)),
    "    extern_kernels.mm(a, b, out=buf0)",
]
PRODUCT = compiled({"a": matrix(80, 70), "b": matrix(70, 90)}, LINES, "buf0")


def task_of(*found, accumulation="ieee") -> Task:
    return Task(
        name="t", source=TASK.format(names="a, b"), compiled=found, accumulation=accumulation
    )


def on_gpu(name: str):
    """A fixture as if it had been compiled for a GPU."""
    task, found = port_cases.read(name)
    (case,) = found.cases
    code = f"# torch.cuda._DeviceGuard(0)\n{case.code}"
    return Task(
        name=name, source=task, compiled=(replace(found, cases=(replace(case, code=code),)),)
    )


@pytest.mark.parametrize("language", PORTS)
def test_without_a_gpu_it_declines_and_says_that_the_language_needs_one(language):
    on_cpu = {"device_class": "cpu-x86_64-16", "languages": ""}
    declined = proposing.propose(PortedSeed(language), on_gpu("softmax"), **on_cpu)
    assert isinstance(declined, Declined)
    assert declined.reason == f"{language} runs on a GPU only, and device=cpu is none"


@pytest.mark.parametrize("language", PORTS)
def test_a_reference_is_proposed_once_in_the_language_that_is_named(language):
    for task in (on_gpu("softmax"), task_of(PRODUCT)):
        proposal = proposing.propose(PortedSeed(language), task)
        assert isinstance(proposal, Proposal)
        assert [each.name for each in languages_in(proposal.program.source)] == [language]
        assert proposal.note == f"variant default, in {language}"
        least = 1 if language == "cutile" else 2  # whose compiler chooses the warps
        assert len(tunables.parse(proposal.program.source)) >= least
        assert isinstance(proposing.propose(PortedSeed(language), task, count=1), Declined)


@pytest.mark.parametrize("language", PORTS)
def test_equal_programs_are_proposed_once_and_other_variants_not_at_all(language):
    task = task_of(PRODUCT, replace(PRODUCT, variant="looped"), replace(PRODUCT, variant="tiled"))
    assert len([*proposing.proposals(PortedSeed(language), task)]) == 1


def test_half_precision_is_proposed_in_gluon_with_tiles_by_tma_too():
    a, b = matrix(80, 72).to(torch.bfloat16), matrix(72, 96).to(torch.bfloat16)
    out = torch.empty(80, 96, device="meta", dtype=torch.bfloat16)
    lines = [LINES[0], "    " + room("buf0", out), LINES[2]]
    task = task_of(compiled({"a": a, "b": b}, lines, "buf0"))
    for language, count in (("gluon", 2), ("nvrtc", 1)):
        found = [*proposing.proposals(PortedSeed(language), task)]
        assert len(found) == count
        sources = [one.program.source for one in found]
        assert ["tma.async_copy" in one for one in sources] == [False, True][:count]


def test_large_products_of_float32_are_proposed_in_gluon_with_operands_cut_beforehand_too():
    a, b = matrix(2048, 1024), matrix(1024, 2048)
    out = torch.empty(2048, 2048, device="meta")
    lines = [LINES[0], "    " + room("buf0", out), LINES[2]]
    task = task_of(compiled({"a": a, "b": b}, lines, "buf0"))
    found = [*proposing.proposals(PortedSeed("gluon"), task)]
    assert ["packed_product_kernel" in one.program.source for one in found] == [False, True, True]
    begun = [tunables.parse(one.program.source).defaults for one in found[1:]]
    assert [one["PACKED_PRODUCT_INPUT_PRECISION"] for one in begun] == ["fp16x3", "fp16x2"]


def test_code_for_the_cpu_is_left_alone():
    task, found = port_cases.read("softmax")
    task = Task(name="t", source=task, compiled=(found,))
    assert isinstance(proposing.propose(PortedSeed(), task), Declined)


def test_what_cannot_be_rewritten_is_a_recorded_failure():
    failed = proposing.propose(PortedSeed("nvrtc"), on_gpu("argmax"))
    assert isinstance(failed, Failed)
    assert "is_exceeded" in failed.reason


@pytest.mark.parametrize(
    ("language", "capability", "fits"),
    [
        ("gluon", "9.0", True),
        ("gluon", "8.0", False),
        ("gluon", "10.0", False),
        ("gluon", "", True),
        ("nvrtc", "8.0", True),
        ("nvrtc", "12.0", True),
        ("nvrtc", "7.5", False),
        ("cute", "9.0", True),
        ("cutile", "7.5", False),
        ("tilelang", "7.5", False),
    ],
)
def test_products_are_for_gpus_that_run_them(language, capability, fits):
    known = {"capability": capability} if capability else {}
    found = proposing.propose(PortedSeed(language), task_of(PRODUCT), **known)
    assert isinstance(found, Proposal if fits else Failed)
    if not fits:
        least = "9.x" if language == "gluon" else "8.0 or newer"
        assert f"capability {least}, and this one has {capability}" in found.reason


@pytest.mark.parametrize("language", PORTS)
@pytest.mark.parametrize(("accumulation", "first"), [("ieee", "3"), ("tf32", "2")])
def test_a_task_that_allows_tf32_begins_with_fewer_parts(language, accumulation, first):
    task = task_of(PRODUCT, accumulation=accumulation)
    proposal = proposing.propose(PortedSeed(language), task)
    assert f"PRODUCT_PARTS = {first}\n" in proposal.program.source


def test_a_language_or_variant_that_is_none_gets_the_known_ones_named():
    with pytest.raises(UsageError, match="'cuda'; choose one of gluon, nvrtc"):
        PortedSeed("cuda")
    with pytest.raises(UsageError, match="'whole'; choose one of default, products"):
        PortedSeed("gluon", ["whole"])


@pytest.mark.parametrize(
    ("language", "installed", "why"),
    [
        ("cute", "helion 1.5.1", "nvidia-cutlass-dsl is not installed"),
        ("cute", "nvidia-cutlass-dsl 4.2.0", "nvidia-cutlass-dsl 4.2.0 is too old"),
        ("cutile", "", "cuda-tile is not installed"),
        ("cutile", "cuda-tile 1.0.0", "cuda-tile 1.0.0 is too old"),
        ("cutile", "cuda-tile 1.7.0, helion 1.5.1", ""),
        ("tilelang", "nvidia-cutlass-dsl 4.8.1", "tilelang is not installed"),
        ("tilelang", "tilelang 0.1.15", ""),
        ("gluon", "", ""),
        ("nvrtc", "", ""),
    ],
)
def test_a_language_that_the_judge_lacks_is_one_failure_with_the_remedy(language, installed, why):
    task, seed = task_of(PRODUCT), PortedSeed(language)
    known = {"triton": "3.7.0", "languages": installed}
    found = proposing.propose(seed, task, **known)
    assert isinstance(found, Failed if why else Proposal)
    if why:
        (package,) = find_language(language).packages
        said = f"the judge's interpreter cannot run {language}: {why}; {package.remedy}"
        assert found.reason == said
    assert isinstance(proposing.propose(seed, task, count=1, **known), Declined)


def test_gluon_needs_a_triton_that_has_it():
    found = proposing.propose(PortedSeed("gluon"), task_of(PRODUCT), triton="3.4.0", languages="")
    assert isinstance(found, Failed)
    assert "triton 3.4.0 is too old; pip install 'triton>=3.6'" in found.reason


def test_a_tail_is_a_kernel_of_its_own_in_the_same_language():
    body = ["x0 = xindex", "tmp0 = tl.load(in_out_ptr0 + (x0), xmask)"]
    body += ["tmp1 = triton_helpers.maximum(tl.full([1], 0, tl.int32), tmp0)"]
    body += ["tl.store(in_out_ptr0 + (x0), tmp1, xmask)"]
    lines = [*LINES, "    triton_poi_fused_relu_0.run(buf0, 7200, stream=s)"]
    kernels = pointwise("relu", 7200, "in_out_ptr0", body)
    arguments = {"a": matrix(80, 70), "b": matrix(70, 90)}
    found = compiled(arguments, lines, "buf0", kernels)
    for language in PORTS:
        proposal = proposing.propose(PortedSeed(language), task_of(found))
        assert isinstance(proposal, Proposal), proposal
        assert [each.name for each in languages_in(proposal.program.source)] == [language]
        assert "relu_kernel" in proposal.program.source
