"""The operator that proposes compiled references with kernels of ours.

Invariants: each compiled reference of the wanted variants that calls a library for a GPU is
proposed once; those that call none are not proposed at all; one that cannot be converted is a
recorded failure; what a task allows decides on the precisions that are offered, and for
convolutions what eager makes of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from evolve.core.compiled import EXACT_CONVOLUTIONS, Compiled, convolution_key
from evolve.core.errors import UsageError
from evolve.core.protocols import Declined, Failed, Proposal
from evolve.core.source import tunables
from evolve.core.task import Task
from operators.local.template_seed import TemplateSeed
from tests.operators import proposing
from tests.operators.output_code import TASK, compiled, matrix, relu, room

LINES = [
    "with torch.cuda._DeviceGuard(0):",
    "    " + room("buf0", matrix(8, 9)),
    "    extern_kernels.mm(a, b, out=buf0)",
]
GPU = compiled({"a": matrix(8, 7), "b": matrix(7, 9)}, LINES, "buf0")


def changed(old: str, new: str) -> Compiled:
    (case,) = GPU.cases
    return replace(GPU, cases=(replace(case, code=case.code.replace(old, new)),))


def task_of(found: Sequence[Compiled], accumulation: str = "ieee") -> Task:
    source = TASK.format(names="a, b")
    return Task(name="t", source=source, compiled=tuple(found), accumulation=accumulation)


def propose(*found: Compiled, count: int = 0, accumulation: str = "ieee", **device: str):
    return proposing.propose(TemplateSeed(), task_of(found, accumulation), count, **device)


def test_a_reference_that_calls_a_library_is_proposed_without_the_call():
    proposal = propose(GPU)
    assert isinstance(proposal, Proposal)
    assert "matmul_kernel[" in proposal.program.source
    assert "torch.mm" not in proposal.program.source
    assert isinstance(propose(GPU, count=1), Declined)


def test_the_compilers_kernels_go_into_the_tail_and_once_they_do_not():
    (plain,) = GPU.cases
    code = plain.code.replace(
        "out=buf0)", "out=buf0)\n        triton_poi_fused_relu_0.run(buf0, 72, stream=s)"
    )
    found = replace(GPU, cases=(replace(plain, code=relu(72) + code),))
    first, second = propose(found), propose(found, count=1)
    assert "matmul_relu_kernel[" in first.program.source
    assert "matmul_kernel[" in second.program.source
    assert "relu_kernel[" in second.program.source
    assert isinstance(propose(found, count=2), Declined)


def test_what_calls_no_library_and_what_runs_on_a_cpu_is_not_proposed():
    others = (
        changed("extern_kernels.mm", "extern_kernels.other"),
        changed("with torch.cuda._DeviceGuard(0)", "if True"),
        replace(GPU, variant="unfused"),
    )
    assert isinstance(propose(*others), Declined)
    proposal = propose(*others, replace(GPU, variant="same_layout"))
    assert isinstance(proposal, Proposal)
    assert proposal.note == "variant same_layout, own kernels with tails"


def test_a_failure_to_convert_is_recorded_and_holds_up_nothing():
    broken = changed("return (buf0, )", "return from_a_pool(buf0)")
    failed = propose(broken, GPU)
    assert isinstance(failed, Failed)
    assert "default" in failed.reason
    assert isinstance(propose(broken, GPU, count=1), Proposal)


@pytest.mark.parametrize(("accumulation", "offered"), [("ieee", False), ("tf32", True)])
def test_rounded_operands_are_offered_where_the_task_allows_them(accumulation, offered):
    source = propose(GPU, accumulation=accumulation).program.source
    assert ("tf32" in tunables.parse(source)["MATMUL_INPUT_PRECISION"].choices) == offered


IMAGE, FILTERS = torch.empty(2, 20, 5, 6), torch.empty(3, 20, 3, 3)  # too few to be cut
SETTINGS = (
    "stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), "
    "groups=1, bias=None"
)
CONVOLUTION = compiled(
    {"a": IMAGE, "b": FILTERS},
    [
        "with torch.cuda._DeviceGuard(0):",
        f"    buf0 = extern_kernels.convolution(a, b, {SETTINGS})",
        "    assert_size_stride(buf0, (2, 3, 5, 6), (90, 30, 6, 1), 'aten.convolution')",
    ],
    "buf0",
)


def begun_with(proposal: Proposal) -> list[object]:
    """The precision that each product of it begins with."""
    begun = tunables.parse(proposal.program.source).defaults
    return [value for name, value in begun.items() if name.endswith("INPUT_PRECISION")]


def test_convolutions_round_as_eagers_do_and_once_they_do_not():
    first, second = (
        propose(CONVOLUTION, count=count, eager_convolutions="tf32") for count in (0, 1)
    )
    assert begun_with(first) == ["tf32"]
    assert begun_with(second) == ["bf16x6"]
    assert isinstance(propose(CONVOLUTION, count=2, eager_convolutions="tf32"), Declined)


def test_of_a_tasks_convolutions_those_that_eager_does_not_round_stay_exact():
    key = convolution_key(IMAGE.shape, FILTERS.shape, [*[(1, 1)] * 3, False, (0, 0), 1])
    for known, begun in ((key, "bf16x6"), (f"other;{key}", "bf16x6"), ("other", "tf32")):
        facts = {"eager_convolutions": "tf32", EXACT_CONVOLUTIONS: known}
        assert begun_with(propose(CONVOLUTION, **facts)) == [begun]


def test_where_eagers_convolutions_are_exact_so_are_ours_and_products_always():
    for found, eager in ((CONVOLUTION, "ieee"), (GPU, "tf32")):
        assert begun_with(propose(found, eager_convolutions=eager)) == ["bf16x6"]
        assert isinstance(propose(found, count=1, eager_convolutions=eager), Declined)


def test_long_sums_are_cut_where_a_device_has_more_multiprocessors_than_there_are_tiles():
    lines = [
        "with torch.cuda._DeviceGuard(0):",
        "    " + room("buf0", matrix(640, 640)),
        "    extern_kernels.mm(a, b, out=buf0)",
    ]
    found = compiled({"a": matrix(640, 4096), "b": matrix(4096, 640)}, lines, "buf0")
    few, many = (propose(found, multiprocessors=count) for count in ("20", "148"))
    assert "matmul_split_kernel" not in few.program.source  # 100 tiles of 64 by 64
    assert "matmul_split_kernel" in many.program.source


def test_amd_is_not_offered_what_it_has_not():
    source = propose(GPU, arch="gfx942").program.source
    assert "tf32x3" not in tunables.parse(source)["MATMUL_INPUT_PRECISION"].choices


def test_an_unknown_variant_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"operators\.\*\.variants is 'fast'.*default"):
        TemplateSeed(["default", "fast"])


def notes(*found: Compiled) -> list[str]:
    return [each.note for each in proposing.proposals(TemplateSeed(), task_of(found))]


MANY_FILTERS = {"a": torch.empty(2, 20, 5, 6), "b": torch.empty(64, 20, 3, 3)}  # to be cut
UNPADDED = SETTINGS.replace("padding=(1, 1)", "padding=(0, 0)")
CALL = [
    "with torch.cuda._DeviceGuard(0):",
    f"    buf0 = extern_kernels.convolution(a, b, {UNPADDED})",
    "    assert_size_stride(buf0, (2, 64, 3, 4), (768, 12, 4, 1), 'aten.convolution')",
]


def test_operands_are_cut_in_the_layout_of_the_reference_where_the_compiler_has_that():
    default = compiled(MANY_FILTERS, CALL, "buf0")
    cut = "variant {}, own kernels, operands cut beforehand".format
    assert cut("default") in notes(default)
    both = notes(default, replace(default, variant="same_layout"))
    assert cut("same_layout") in both
    assert cut("default") not in both


def test_the_likeliest_kinds_come_first_and_each_is_proposed_once():
    rows, columns = "(3, 512), (512, 1)", "(512, 3), (1, 512)"
    operands = (f"reinterpret_tensor(buf0, {view}, 0)" for view in (rows, columns))
    lines = [
        *CALL,
        "    " + room("buf1", matrix(3, 3)),
        f"    extern_kernels.mm({', '.join(operands)}, out=buf1)",
        "    triton_poi_fused_relu_0.run(buf1, 9, stream=s)",
    ]
    found = compiled(MANY_FILTERS, lines, "buf1", relu(9))
    proposals = proposing.proposals(TemplateSeed(), task_of([found]), eager_convolutions="tf32")
    kinds = [
        (each.note.removeprefix("variant default, own kernels"), begun_with(each)[0])
        for each in proposals
    ]
    assert kinds == [
        (", operands cut beforehand", "fp16"),
        (", operands cut beforehand, no tails", "fp16"),
        (" with tails", "tf32"),
        (", operands cut beforehand", "fp16x3"),
        (" with tails", "bf16x6"),
        ("", "tf32"),
        (", work cut evenly", "tf32"),
    ]


@pytest.mark.parametrize(
    ("depth", "begun"),
    [
        (8192, ["fp16x2", "fp16x3"]),  # the judge accepts two products on all its inputs
        (8191, ["fp16x3", "fp16x2"]),
        (1024, ["fp16x3", "fp16x2"]),
        (1023, ["fp16x3"]),
    ],
)
def test_a_first_program_has_two_products_of_parts_only_if_the_judge_accepts_them(depth, begun):
    lines = [
        "with torch.cuda._DeviceGuard(0):",
        "    " + room("buf0", matrix(2048, 2048)),
        "    extern_kernels.mm(a, b, out=buf0)",
    ]
    found = compiled({"a": matrix(2048, depth), "b": matrix(depth, 2048)}, lines, "buf0")
    proposals = list(proposing.proposals(TemplateSeed(), task_of([found])))
    cut = [each for each in proposals if "operands cut" in each.note]
    assert proposals[: len(cut)] == cut
    assert [name for each in cut for name in begun_with(each)] == begun
    assert [each.note.count("two products") for each in cut] == [one == "fp16x2" for one in begun]
