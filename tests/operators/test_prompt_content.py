"""What prompts tell a model about the task, the rules, the device and the evidence.

Invariants:
1. The rule on precision is said once, is the judge's, and has the task's own numbers.
2. Permitted rewrites, calls and imports, and the sizes that vary, stand in every prompt.
3. The device block holds what a kernel's design depends on, also measured rates.
4. The baseline's time and the ceiling are there once a program was judged, and before if the
   reference was measured; then also the operations that take eager's time, and rates by arithmetic.
5. Failed attempts are told with their numbers, and no line is cut inside of one.
6. Notes are quoted, few, last, about this kind of operation, and were measured on such a device.
7. Answers to the same state are given different directions, and designs that are under way.
8. Amounts of memory are named by words with their unit, on every kind of device.
9. Of other programs only what differs is shown; a crossover takes 25 KB at most.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.behaviour import known_descriptors
from evolve.core.devices import device_kinds
from evolve.core.evaluation import Label
from evolve.core.program import Program
from evolve.core.reference import CaseCost, OperationCost, ReferenceCost
from evolve.core.task import ONLY_CASE, Case
from operators import Crossover, Edit, RewriteFull, Template
from operators.knowledge import Diagnosis, Knowledge
from operators.prompting.ceiling import ceilings
from operators.prompting.diagnosis import bottleneck
from operators.prompting.directions import directions_for
from operators.prompting.excerpts import differing
from operators.prompting.precision import allowed_error
from operators.quoting import shortened
from tests.operators.history import prompt_of, request_of, section
from tests.operators.prompt_states import (
    CPU,
    H100,
    SOFTMAX_KERNEL,
    history_of,
    plant,
    softmax_h100,
    verdict,
)
from tests.operators.state_prompts import MATMUL, RMSNORM, SOFTMAX, STATES, prompt

ROOT = Path(__file__).parents[2]
COST = ReferenceCost(
    cases=(
        CaseCost(
            name=ONLY_CASE, time_ms=2.7, moved_bytes=335_544_320, flops=137_000_000_000,
            bytes_per_s=2.91e12, flops_per_s=2.6e14, bound="bf16x3 arithmetic",
            operations=(
                OperationCost(
                    name="mm", shapes=((1024, 8192), (8192, 8192)), time_ms=2.565,
                    moved_bytes=335_544_320, flops=137_000_000_000,
                ),
                OperationCost(
                    name="relu", shapes=((1024, 8192),), time_ms=0.13, moved_bytes=67_108_864
                ),
                OperationCost(name="fill_", time_ms=0.005, moved_bytes=4),
            ),
        ),
    ),
    flops_per_s={"bf16x3": 2.6e14, "fp32": 5.2e13},
    longest_sum=8192,
)  # fmt: skip

# Precision


@pytest.mark.parametrize("accumulation", ["ieee", "tf32", "half"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("terms", [1, 1024, 1 << 20])
def test_the_allowed_error_is_the_judges(accumulation, precision, terms):
    import torch

    from evolve.worker.correctness.tolerance import Arithmetic, error_floor

    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    arithmetic = Arithmetic(accumulation=accumulation, terms=terms, even=True)
    judged = error_floor(dtype, arithmetic, 1.0)
    assert allowed_error(terms, accumulation, precision) == pytest.approx(judged)


def test_the_factors_of_the_rule_are_the_judges():
    from evolve.worker.correctness import tolerance
    from operators.prompting import precision

    assert (precision.OWN_ERROR, precision.MAX_PEAK) == (tolerance.KAPPA, tolerance.PEAK)
    assert precision.MAX_TERMS == tolerance.MAX_TERMS


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("examples/guides/judge.md", "error ≤ {} \u00d7 error of the reference"),
        (
            "operators/knowledge/constraints/judge-correctness.md",
            "error may be {} times the error that the reference itself has",
        ),
    ],
)
def test_pages_have_the_judges_factor(page: str, said: str):
    from evolve.worker.correctness import tolerance

    words = {4.0: ("4", "four")}[tolerance.KAPPA]  # another factor: rewrite the pages
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert any(said.format(word) in text for word in words)


def test_the_precision_rule_has_the_tasks_own_numbers():
    said = prompt("matmul")
    assert "in_features = 8192 terms: 1.2e-05" in said
    assert "4 times the reference's error" in said


def test_split_products_are_allowed_where_a_single_short_product_is_not():
    said = prompt("matmul")
    assert said.count("Tensor cores:") == 1
    for words in ("bf16x6", "tf32x3", "bf16x3", "fp16x3"):
        assert words in section(said, "What the program has to be")
    assert "no half precision inside" not in said
    assert "small multiple" not in said
    assert "Tensor cores" not in prompt("rmsnorm")


def test_coarse_products_are_allowed_where_those_of_the_reference_are():
    history = history_of(
        replace(MATMUL.task, source="class Model: f = nn.Conv2d(1, 1, 1)", category="")
    )
    request = request_of(RewriteFull(), history.context(device=H100))
    assert "convolutions on this device are in TF32" in prompt_of(request)
    assert "convolutions on this device are in TF32" not in prompt("matmul")


# Algebra, shapes, calls


def test_exact_rewriting_is_welcome():
    assert "exact in real arithmetic is welcome" in prompt("matmul")


def test_a_task_of_one_case_has_fixed_sizes():
    said = section(prompt("matmul"), "Task: 2_99_matmul_relu")
    assert "batch_size=1024, in_features=8192, out_features=8192" in said
    assert "in several shapes" not in prompt("matmul")


def test_dimensions_that_vary_are_named_with_their_values():
    cases = (
        Case(name="timed", constants={"batch_size": 64}),
        Case(name="odd", constants={"batch_size": 37}, timed=False),
    )
    history = history_of(replace(MATMUL.task, cases=cases))
    said = prompt_of(request_of(RewriteFull(), history.context(device=H100)))
    assert "What varies: batch_size (37, 64). All other sizes are fixed." in said


def test_sizes_are_those_of_the_judged_size():
    task = replace(RMSNORM.task, cases=())
    said = prompt_of(request_of(RewriteFull(), history_of(task).context(device=CPU)))
    assert "TOKENS=1024, FEATURES=4096" in said


@pytest.mark.parametrize("operator", [RewriteFull(), Edit(), Crossover(), Template()])
def test_calls_imports_and_lost_combinations_are_said_in_every_prompt(operator):
    rules = section(prompt("matmul", operator), "What the program has to be")
    for word in ("new_empty", "contiguous", "set_allocator", "Imports: `torch`", "does not compile",
                 "At most 4096 combinations"):  # fmt: skip
        assert word in rules


def test_the_allowed_error_is_that_of_the_longest_sum_once_a_verdict_tells_it():
    """Of 315 terms of a convolution the prompt listed height, width and batch size."""
    history = history_of(MATMUL.task)
    before = prompt_of(request_of(RewriteFull(), history.context(device=H100)))
    assert "So for sums over in_features = 8192 terms: 1.2e-05, out_features = 8192" in before
    found = verdict(1.0, 2.0, 0.5, "memory", "", longest_sum=315.0)
    plant(history, SOFTMAX_KERNEL, found, note="")
    said = prompt_of(request_of(RewriteFull(), history.context(history.elites(), device=H100)))
    assert (
        f"So for the longest sum, as the judge counts it, 315 terms: {allowed_error(315):.2g}."
        in said
    )
    assert "sums over" not in said
    assert "longest_sum" not in said


@pytest.mark.parametrize("operator", [RewriteFull(), Edit(), Crossover(), Template()])
def test_what_is_drawn_anew_and_what_stays_is_said_in_every_prompt(operator):
    rules = section(prompt("matmul", operator), "What the program has to be")
    for word in ("Inputs differ in every call", "finite where the task's own are",
                 "other buffers (masks, tables) are as the constructor makes them",
                 "atomic additions are fine"):  # fmt: skip
        assert word in rules


def test_what_prompts_say_of_buffers_is_what_the_judge_does():
    import torch

    from evolve.worker.reference.parameters import randomise

    model = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8))
    model.register_buffer("mask", torch.tril(torch.ones(8, 8)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    randomise(model, 1)
    same = {name for name, value in model.state_dict().items() if value.equal(before[name])}
    assert same == {"mask", "0.num_batches_tracked"}


def test_values_that_prompts_name_are_those_of_the_judges_families():
    from evolve.worker.correctness.input_families import FAMILIES

    assert {*FAMILIES} == {
        "task", "scaled_up", "scaled_down", "heterogeneous_rows", "shrunk_rows", "ties", "sparse",
        "shifted", "opposed", "far_below", "one_hot_large",
    }  # fmt: skip


# Device and ceiling


def test_the_device_block_holds_what_a_design_depends_on():
    said = section(prompt("softmax"), "Device")
    for words in ("NVIDIA H100", "capability: 9.0", "multiprocessors: 132", "65536 registers",
                  "228 KB", "L2 cache: 50 MB", "torch: 2.11.0", "triton: 3.6.0",
                  "measured copy rate: 2900 GB/s"):  # fmt: skip
        assert words in said
    for words in ("driver", "cores", "memory_bytes", "g++", "half_width", "Linux"):
        assert words not in said
    assert "neither reading nor a copy exceeds: 3350 GB/s" in said
    matmul = section(prompt("matmul"), "Device")
    assert "measured rate of products (bf16x3): 240 TFLOP/s" in matmul
    assert "`fp16x3` as fast as `bf16x3`, `tf32x3` and `bf16x6` half as fast" in matmul
    assert "fp16x3" not in said  # softmax has no products


@pytest.mark.parametrize("kind", sorted(device_kinds()))
def test_amounts_of_memory_are_named_by_words_with_their_unit(kind):
    names = sorted(name for name in known_descriptors(kind) if name.endswith("_bytes"))
    assert names
    given = {name: 7e6 + 1e5 * place for place, name in enumerate(names)}
    history = history_of(SOFTMAX.task)
    found = verdict(0.3, 0.6, 0.5, "memory", "", language="triton", **given)
    plant(history, SOFTMAX_KERNEL, found, "first")
    said = prompt_of(request_of(Edit(), history.context(history.elites()[:1], device=H100)))
    line = next(line for line in said.splitlines() if line.startswith("Descriptors: "))
    assert not [name for name in names if name in said]
    amounts = re.findall(r"[a-z)] [\d.e+]+ (?:MB|KiB|bytes)", line)
    assert len(amounts) == len(names), line


def test_memory_of_a_call_is_not_told_as_traffic():
    history = history_of(SOFTMAX.task)
    found = verdict(0.3, 0.6, 0.5, "memory", "", language="cpp", memory_bytes=6_291_456.0)
    plant(history, SOFTMAX_KERNEL, found, "first")
    said = prompt_of(request_of(Edit(), history.context(history.elites()[:1], device=CPU)))
    assert "peak memory that a call allocates beyond weights, inputs and outputs" in said
    assert "not memory traffic) 6.291 MB" in said


def test_what_follows_from_the_model_is_said_before_the_first_verdict():
    context = history_of(SOFTMAX.task).context(device={"device_class": "cuda: NVIDIA H200"})
    assert "L2 cache: 50 MB" in prompt_of(request_of(RewriteFull(), context))


def test_the_baseline_and_the_ceiling_are_there_once_a_program_was_judged():
    said = section(prompt("matmul"), "Baseline and ceiling")
    assert "PyTorch eager 2.71 ms" in said
    assert "memory 157 MB, 0.0541 ms at the copy rate" in said
    assert "arithmetic 137 GFLOP, 0.571 ms in bf16x3" in said
    assert "arithmetic sets the ceiling, 0.571 ms" in said
    assert "41 % of the ceiling's rate" in said
    first = request_of(RewriteFull(), history_of(MATMUL.task).context(device=H100))
    assert "Baseline and ceiling" not in prompt_of(first)


def test_costs_of_the_reference_are_in_the_first_prompt():
    context = replace(history_of(MATMUL.task).context(device=H100), reference=COST)
    request = request_of(RewriteFull(), context)
    said = section(prompt_of(request), "Baseline and ceiling")
    assert "- PyTorch eager about 2.7 ms (no interval yet)." in said
    assert "memory 335.5 MB, 0.115 ms at the copy rate" in said
    assert "arithmetic 137 GFLOP, 0.527 ms in bf16x3" in said
    assert "arithmetic sets the ceiling, 0.527 ms, 5.12 times as fast as eager" in said
    assert (
        "- 95 %, 2.56 ms: `mm` of [1024, 8192] and [8192, 8192], 137 GFLOP (53.4 TFLOP/s), 336 MB"
        in said
    )
    assert "`relu` of [1024, 8192], 67.1 MB (516 GB/s)" in said
    assert "`fill_`" not in said  # next to nothing
    facts = section(prompt_of(request), "Device")
    assert "products by arithmetic: bf16x3 260 TFLOP/s, fp32 52 TFLOP/s" in facts
    assert "measured copy rate: 2900 GB/s" in facts
    assert "as the judge counts it, 8192 terms: 1.2e-05" in prompt_of(request)


def test_costs_of_the_reference_stay_beside_the_best_programs_time():
    context = MATMUL.context(MATMUL.elites()[:1], device=H100)
    said = prompt_of(request_of(RewriteFull(), replace(context, reference=COST)))
    ceiling = section(said, "Baseline and ceiling")
    assert "PyTorch eager 2.71 ms, the best program 1.39 ms (38 % of the ceiling's rate)" in ceiling
    assert ceiling.count("sets the ceiling") == 1
    assert "`mm` of [1024, 8192]" in ceiling


def test_of_several_cases_the_slowest_tells_its_operations():
    (case,) = COST.cases
    small = replace(case, name="small", time_ms=0.1, operations=())
    cost = replace(COST, cases=(small, replace(case, name="large")))
    context = replace(history_of(MATMUL.task).context(device=H100), reference=cost)
    said = section(prompt_of(request_of(RewriteFull(), context)), "Baseline and ceiling")
    assert "- case small: PyTorch eager about 0.1 ms" in said
    assert "(case large; each operation by itself" in said


def test_every_fact_of_a_cpu_in_a_prompt_is_one_that_a_design_depends_on():
    from evolve.worker.devices.cpu.device import CpuDevice
    from evolve.worker.session.provenance import environment

    facts = environment(CpuDevice(), "none", "fp32", "ieee", "calls")
    context = history_of(SOFTMAX.task).context(device=facts)
    lines = section(prompt_of(request_of(RewriteFull(), context)), "Device").strip().splitlines()
    names = {line.removeprefix("- ").partition(":")[0] for line in lines}
    assert {"device", "cores", "vector_units"} <= names
    assert names <= {
        "device",
        "cores",
        "vector_units",
        "caches",
        "torch",
        "compiler",
        "triton",
        "tvm_ffi",
    }


# Evidence


def test_launches_of_one_kernel_are_told_by_role_only():
    """`pack 46 %` stood beside them, for four launches of which one was bad."""
    history = history_of(MATMUL.task)
    by_name = (Label("kernels", "matmul_kernel 52% (own); pack 46% (own)"), Label("other", "kept"))
    words = "kernel 'pack': 31% of the time, 431 us\nkernel 'pack': 15% of the time, 209 us"
    plant(history, SOFTMAX_KERNEL, verdict(1.0, 2.0, 0.5, "memory", words, labels=by_name), note="")
    said = prompt_of(request_of(Edit(), history.context(history.elites(), device=H100)))
    assert "pack 46%" not in said
    assert "other: kept" in said and said.count("kernel 'pack'") == 2


def test_descriptors_that_nothing_explains_are_left_out():
    history = history_of(MATMUL.task)
    found = verdict(1.0, 2.0, 0.5, "memory", "", matrix_share=0.1, global_share=0.2, registers=32.0)
    plant(history, SOFTMAX_KERNEL, found, note="")
    said = prompt_of(request_of(Edit(), history.context(history.elites(), device=H100)))
    assert "registers 32" in said and "_share" not in said


def test_a_launch_has_its_time_and_no_case_is_told_twice():
    said = section(prompt("matmul"), "The program to change")
    assert "kernel 'pack': grid 4096, 31% of the time, 431 us, operands of 0.9 GB" in said
    assert "kernel 'pack': grid 4096, 15% of the time, 209 us, operands of 0.5 GB" in said
    assert said.count("2.71 ms") == 1
    assert "Largest error: 23 % of what is allowed." in said
    assert "precision_path" not in said


NEITHER = "neither memory- nor compute-bound (latency, launches, or too little parallel work): "


def rated(traffic: str, kernels: float) -> tuple[str, str]:
    """The prompt, and the limit, of a program that inputs and outputs do not explain."""
    history = history_of(SOFTMAX.task)
    words = f"  {NEITHER}4% of this device's memory rate (113 GB/s); {traffic}"
    found = verdict(0.9, 0.293, 0.04, "memory", words, language="triton", kernels=kernels)
    plant(history, SOFTMAX_KERNEL, found, note="as written")
    context = history.context(history.elites(), device=H100)
    return prompt_of(request_of(RewriteFull(), context)), bottleneck(context, found)


@pytest.mark.parametrize(
    ("share", "kernels", "said", "limit"),
    [
        (69, 3.0, "memory-bound by what its launches move (69% of the memory rate)", "memory"),
        (69, 1.0, "memory-bound by what its launches move (69% of the memory rate)", "memory"),
        (12, 3.0, "by memory, with intermediates (12% of the memory rate), so by", "latency"),
        (None, 3.0, "no intermediates counted", "memory"),
        (None, 1.0, "no intermediates counted", "latency"),
    ],
)
def test_what_limits_a_program_is_judged_by_what_it_moves_itself(share, kernels, said, limit):
    """27 GB at 2 TB/s were called neither memory- nor compute-bound."""
    traffic = "it is slow\n"
    if share is not None:
        traffic += (
            f"all launches together: operands of 27 GB, each once, at 2010 GB/s, {share}% of this "
            "device's memory rate"
        )
    asked, found = rated(traffic, kernels)
    assert said in asked
    assert found == limit
    assert "neither memory- nor compute-bound" not in asked


@pytest.mark.parametrize(
    ("memory", "arithmetic", "traffic", "limit"),
    [
        (6, 45, None, "compute"),  # 92 % of 2/37 in its product, and sent to wider accesses
        (6, 45, 30, "compute"),
        (4, 41, 78, "memory"),  # what is packed for the product runs at the memory rate
        (6, 12, None, "memory"),
        (6, 12, 20, "latency"),
    ],
)
def test_the_limit_is_the_one_that_is_nearer(memory, arithmetic, traffic, limit):
    history = history_of(MATMUL.task)
    words = (
        f"  {NEITHER}{memory}% of this device's memory rate (170 GB/s) and {arithmetic}% of its "
        "arithmetic (108 TFLOP/s); at that ceiling a call would take 1.2 ms instead of 2.7 ms"
    )
    if traffic:
        words += (
            f"\nall launches together: operands of 1 GB, each once, at {29 * traffic} GB/s, "
            f"{traffic}% of this device's memory rate"
        )
    found = verdict(2.7, 5.0, 0.45, "bf16x3 arithmetic", words, language="triton", kernels=4.0)
    plant(history, SOFTMAX_KERNEL, found, note="")
    context = history.context(history.elites(), device=H100)
    assert bottleneck(context, found) == limit
    given = re.findall(r"^Direction for [^:]*: (.*)\. If", prompt_of(request_of(Edit(), context)),
                       re.MULTILINE)  # fmt: skip
    assert given[0] in directions_for(Diagnosis(bottleneck=limit, category="matmul"))


def test_what_was_tried_in_vain_is_told_with_its_numbers():
    history = softmax_h100()
    leader, other = history.elites()[:2]
    found = verdict(0.9, 0.293, 0.2, "memory", "", kernels=1.0)
    slower = Program(SOFTMAX_KERNEL + "# slower\n")
    history.judge(slower, operator="edit", parents=[other.program], note="halves", verdict=found)
    asked = request_of(RewriteFull(), history.context([leader], device=H100))
    told = section(prompt_of(asked), "Attempts that failed or were no faster; do not repeat them")
    assert "correct, 0.33x as fast as PyTorch eager" in told
    assert "halves" in told


def test_no_line_is_cut_inside_of_a_number():
    text = "\n".join(f"row {n}: 196608.{n} for 196609.{n}" for n in range(100))
    lines = shortened(text, 300).split("\n")
    assert {*lines} <= {*text.split("\n"), "[... 92 lines left out ...]"}
    assert len("\n".join(lines)) <= 300
    words = shortened("196608 " * 100, 100).removesuffix(" [...]").split()
    assert {*words} == {"196608"}


# Notes


def test_of_other_programs_only_what_differs_is_shown():
    one = "import torch\n\n\ndef same():\n    return 1\n\n\nX = 1\n" + "# pad\n" * 40
    other = one.replace("X = 1", "X = 2")
    assert differing(other, one, "program a") == ("# as in program a: import torch, same\nX = 2")
    assert differing("def broken(", one, "program a") == "def broken("
    assert differing("Y = 3\n", one, "program a") == "Y = 3\n"


@pytest.mark.parametrize("state", STATES)
def test_a_crossover_takes_25_kb_at_most(state):
    assert len(prompt(state, Crossover(knowledge=Knowledge()))) <= 25_000


def test_a_share_of_the_ceiling_is_by_ratios_where_the_device_was_slower_than_at_the_rates():
    """Eager 2.7 ms beside the rates and 5.42 ms beside the program: both times, one share."""
    context = MATMUL.context(MATMUL.elites()[:1], device=H100)
    slower = replace(COST.cases[0], time_ms=1.35, flops_per_s=2 * COST.cases[0].flops_per_s)
    cost = replace(COST, cases=(slower,))
    said = prompt_of(request_of(RewriteFull(), replace(context, reference=cost)))
    ceiling = section(said, "Baseline and ceiling")
    assert (
        "PyTorch eager 2.71 ms (eager 1.35 ms when the limits were measured), the best" in ceiling
    )
    assert "program 1.39 ms (38 % of the ceiling's rate)" in ceiling
    assert "5.12 times as fast as eager" in ceiling


def test_a_program_that_leaves_the_main_work_to_libraries_is_not_called_the_best():
    context = MATMUL.context(MATMUL.elites()[:1], device=H100)
    judged = context.facts.evaluation(context.elites[0].program)
    (times, *_) = ceilings(replace(judged, custom=False), "eager", "PyTorch eager")
    assert "a program that leaves the main work to libraries 1.39 ms" in times
    assert "the best program" not in times
