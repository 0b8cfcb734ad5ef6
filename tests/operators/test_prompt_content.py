"""What prompts tell a model about the task, the rules, the device and the evidence.

Invariants:
1. The rule on precision is said once, is the judge's, and has the task's own numbers.
2. What may be rewritten, called and imported, and which sizes vary, stands in every prompt.
3. The device block holds what a kernel's design depends on, also what was measured.
4. Once a program was judged, the baseline's time and the ceiling are there.
"""

import re
from dataclasses import replace

import pytest

from evolve.core.task import Case
from operators import Crossover, Edit, RewriteFull, Template
from operators.precision import allowed_error
from tests.operators.history import prompt_of, request_of
from tests.operators.prompt_states import (
    CPU,
    H100,
    history_of,
    matmul_relu_h100,
    rmsnorm_cpu,
    softmax_h100,
)

MATMUL, SOFTMAX, RMSNORM = matmul_relu_h100(), softmax_h100(), rmsnorm_cpu()
STATES = {"matmul": (MATMUL, H100), "softmax": (SOFTMAX, H100), "rmsnorm": (RMSNORM, CPU)}


def prompt(state: str, operator=None, **context) -> str:
    """The whole of a request: both messages."""
    history, device = STATES[state]
    operator = operator or RewriteFull()
    parents = history.elites()[: operator.parents]
    request = request_of(operator, history.context(parents, device=device, **context))
    return f"{request.messages[0].content}\n\n{prompt_of(request)}"


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    _, _, rest = text.partition(f"\n# {heading}\n")
    assert rest, heading
    return rest.partition("\n# ")[0]


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
    from operators import precision

    assert (precision.OWN_ERROR, precision.LARGEST) == (tolerance.KAPPA, tolerance.PEAK)
    assert precision.MOST_TERMS == tolerance.MOST_TERMS


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


# Device and ceiling


def test_the_device_block_holds_what_a_design_depends_on():
    said = section(prompt("softmax"), "Device")
    for words in ("NVIDIA H100", "capability: 9.0", "multiprocessors: 132", "65536 registers",
                  "228 KB", "L2 cache: 50 MB", "torch: 2.11.0", "triton: 3.6.0",
                  "measured copy rate: 2900 GB/s"):  # fmt: skip
        assert words in said
    for words in ("driver", "cores", "memory_bytes", "g++", "half_width", "Linux"):
        assert words not in said
    assert "measured rate of products (bf16x3): 240 TFLOP/s" in prompt("matmul")


def test_what_follows_from_the_model_is_said_before_the_first_verdict():
    context = history_of(SOFTMAX.task).context(device={"device_class": "cuda: NVIDIA H200"})
    assert "L2 cache: 50 MB" in prompt_of(request_of(RewriteFull(), context))


def test_the_baseline_and_the_ceiling_are_there_once_a_program_was_judged():
    said = section(prompt("matmul"), "Baseline and ceiling")
    assert "PyTorch eager 2.71 ms" in said
    assert re.search(r"157 MB to read and write and 137 GFLOP", said)
    assert "0.571 ms (bf16x3 arithmetic)" in said
    assert "41 % of that rate" in said
    first = request_of(RewriteFull(), history_of(MATMUL.task).context(device=H100))
    assert "Baseline and ceiling" not in prompt_of(first)
