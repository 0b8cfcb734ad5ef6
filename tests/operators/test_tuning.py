"""What the tuner knows of instances: which fit a device, and which are worth a look.

Invariants:
- what cannot fit the device at hand is left out, by the program's own text;
- what is known of one kernel's tunables says nothing of another's;
- the model finds the best of a smooth space in few looks, in the presence of failures too;
- on tables of times with interactions and steps, a tenth of the instances is enough;
- small spaces are looked at whole, and measured in full earlier.
"""

import itertools
import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.source import tunables
from evolve.testing.parts import MemoryFacts, make_context, make_elite
from operators.local.tune import History, Tune, candidates
from operators.local.tuning import Limits, fits, suggest
from operators.local.tuning.groups import by_kernel
from operators.local.tuning.surrogate import Places
from tests.benchmarks.tuner_replay import Run, Table
from tests.operators import port_cases
from tests.operators.history import failing
from tests.operators.output_code import matrix
from tests.operators.templates_cases import attention, convolution, product

SOURCE = """
{constants}
TUNABLE = {declared}

{kernels}
class ModelNew: ...
"""


def source_of(kernels: str = "", **choices: tuple) -> str:
    constants = "\n".join(f"{name} = {values[0]!r}" for name, values in choices.items())
    declared = {name: values for name, values in choices.items() if len(values) > 1}
    return SOURCE.format(constants=constants, declared=repr(declared), kernels=kernels)


def space_of(**choices: tuple) -> tunables.Space:
    return tunables.parse(source_of(**choices))


def test_tunables_belong_to_the_kernel_that_their_names_begin_with():
    space = space_of(
        GELU_XBLOCK=(1, 2),
        GELU_NUM_WARPS=(1, 2),
        MATMUL_2_BLOCK_M=(16, 32),
        MATMUL_2_PROGRAMS=(132, 264),
        ROW_STAGES=(1, 2),
        XBLOCK=(1, 2),
        UNROLL=(1, 2),
    )
    found = {prefix: set(group) for prefix, group in by_kernel(space).items()}
    assert found == {
        "GELU_": {"XBLOCK", "NUM_WARPS"},
        "MATMUL_2_": {"BLOCK_M", "PROGRAMS"},
        "ROW_": {"STAGES"},
        "": {"XBLOCK", "UNROLL"},
    }


SIDES = (16, 32, 64, 128, 256)
KERNEL = """
@triton.jit
def tile(a_ptr, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for at in tl.range(k):
        sums = tl.dot(tl.load(a_ptr), tl.load(a_ptr), sums)
    return sums

@triton.jit
def product_kernel(a_ptr, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   INPUT_PRECISION: tl.constexpr):
    tl.store(a_ptr, tile(a_ptr, k, BLOCK_M, BLOCK_N))

def forward(a):
    product_kernel[(1,)](a, 9, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        INPUT_PRECISION=INPUT_PRECISION, num_warps=NUM_WARPS, num_stages=NUM_STAGES)
"""
PRODUCT = {
    "BLOCK_M": SIDES,
    "BLOCK_N": SIDES,
    "BLOCK_K": (16, 32, 64, 128),
    "INPUT_PRECISION": ("tf32x3", "ieee", "fp16"),
    "NUM_WARPS": (4, 8),
    "NUM_STAGES": (2, 3, 4),
}
USUAL = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "NUM_WARPS": 8, "NUM_STAGES": 3}
H200 = Limits()
RTX = Limits.of({"capability": "12.0", "shared_memory_bytes": "101376", "multiprocessors": "170"})
B200 = Limits.of({"capability": "10.0", "shared_memory_bytes": "232448", "multiprocessors": "148"})
MI300 = Limits.of(
    {"arch": "gfx942:sramecc+:xnack-", "shared_memory_bytes": "65536", "warp_size": "64"}
)


@pytest.mark.parametrize(
    ("changed", "limits", "expected"),
    [
        ({}, H200, True),
        ({}, RTX, True),
        ({}, MI300, True),
        ({"BLOCK_M": 256}, H200, True),
        ({"BLOCK_M": 256, "BLOCK_N": 256}, H200, False),  # 256 sums for each of 256 threads
        ({"BLOCK_M": 256, "BLOCK_N": 256}, B200, True),  # which has memory for sums
        ({"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 16}, MI300, True),  # 512 registers
        ({"BLOCK_K": 128, "NUM_STAGES": 2}, H200, True),
        ({"BLOCK_K": 128, "NUM_STAGES": 2}, RTX, False),  # 128 kB of tiles
        ({"BLOCK_K": 64, "NUM_STAGES": 3}, MI300, False),
        ({"BLOCK_K": 128, "NUM_STAGES": 4}, H200, False),  # 384 kB of tiles
        ({"BLOCK_K": 128, "NUM_STAGES": 4, "INPUT_PRECISION": "fp16"}, H200, True),  # half of it
    ],
)
def test_tiles_that_cannot_fit_a_device_are_told_from_those_that_can(changed, limits, expected):
    assert fits(source_of(KERNEL, **PRODUCT), USUAL | changed, limits) is expected


def test_a_block_that_is_not_open_counts_too():
    source = source_of(KERNEL, **PRODUCT | {"BLOCK_N": (256,)})
    assert fits(source, {"BLOCK_M": 128, "NUM_WARPS": 8, "BLOCK_K": 16})
    assert not fits(source, {"BLOCK_M": 256, "NUM_WARPS": 8, "BLOCK_K": 16})


ROW = """
@triton.jit
def row_kernel(x_ptr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    {line}

def forward(x):
    row_kernel[(1,)](x, XBLOCK=ROW_XBLOCK, R0_BLOCK=ROW_R0_BLOCK, num_warps=ROW_NUM_WARPS)
"""
BLOCKS = {"ROW_XBLOCK": (1, 128), "ROW_R0_BLOCK": (256, 4096), "ROW_NUM_WARPS": (1, 32)}


def test_blocks_of_other_kernels_fit_as_long_as_a_thread_can_hold_its_share():
    source = source_of(ROW.format(line="tl.store(x_ptr, 1)"), **BLOCKS)
    known = {
        values: fits(source, dict(zip(BLOCKS, values, strict=True)))
        for values in itertools.product(*BLOCKS.values())
    }
    assert not known[128, 4096, 1]
    assert known[128, 4096, 32]
    assert known[1, 4096, 1]


def test_a_block_that_lives_through_a_loop_has_to_fit_into_registers():
    loop = "sums = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)\n    for k in range(9):\n        {step}"
    few = {"ROW_XBLOCK": 128, "ROW_R0_BLOCK": 256, "ROW_NUM_WARPS": 1}
    for step, fit in (("sums += 1", False), ("tl.store(x_ptr, 1)", True)):
        source = source_of(ROW.format(line=loop.format(step=step)), **BLOCKS)
        assert fits(source, few | {"ROW_XBLOCK": 1})
        assert fits(source, few | {"ROW_NUM_WARPS": 32})
        assert fits(source, few | {"ROW_R0_BLOCK": 256, "ROW_XBLOCK": 128}) is False
        assert fits(source, few, Limits(registers=512)) is fit


def test_a_row_that_is_held_whole_counts_by_its_width():
    kernel = ROW.format(line="tl.store(x_ptr, 1)").replace("R0_BLOCK=ROW_R0_BLOCK", "WIDTH=4096")
    held = kernel.replace("R0_BLOCK", "WIDTH")
    source = source_of(held, ROW_XBLOCK=(4, 256), ROW_NUM_WARPS=(4,))
    assert fits(source, {"ROW_XBLOCK": 4})
    assert not fits(source, {"ROW_XBLOCK": 256})  # 2**20 elements for 128 threads


def test_a_program_of_other_tunables_always_fits():
    assert fits(source_of(CHUNK=(1, 4), FLAG=(True, False)), {"CHUNK": 4, "FLAG": True})


@pytest.mark.parametrize(
    ("warps", "limits", "fit"),
    [(1, H200, True), (32, H200, True), (64, H200, False), (16, MI300, True), (32, MI300, False),
     (3, H200, False), (0, H200, False), (-4, H200, False)],
)  # fmt: skip
def test_a_block_has_1024_threads_at_most_and_warps_by_powers_of_two(warps, limits, fit):
    source = source_of(ROW.format(line="tl.store(x_ptr, 1)"), **BLOCKS)
    assert fits(source, {"ROW_NUM_WARPS": warps}, limits) is fit


@pytest.mark.parametrize(
    ("line", "fit"),
    [
        ("at = x_ptr + tl.arange(0, R0_BLOCK)[None, :]", False),
        ("if XBLOCK > 1: at = tl.arange(0, R0_BLOCK)", True),
        ("tl.store(x_ptr, R0_BLOCK)", True),
    ],
)
def test_what_a_kernel_counts_up_to_is_a_power_of_two(line, fit):
    source = source_of(ROW.format(line=line), **BLOCKS)
    assert fits(source, {"ROW_R0_BLOCK": 256})
    assert fits(source, {"ROW_R0_BLOCK": 96}) is fit


@pytest.mark.parametrize(
    "before",
    ["if x:", "if x:\n        pass\n    else:", "if x:\n        pass\n    elif not x:", "with x:",
     "for x in y:\n        pass\n    else:", "try:\n        pass\n    finally:",
     "try:\n        pass\n    except OSError:", "match x:\n      case 1:"],
)  # fmt: skip
def test_a_launch_is_seen_wherever_it_stands(before):
    kernel = ROW.format(line="tl.store(x_ptr, 1)")
    source = source_of(
        kernel.replace("    row_kernel[", f"    {before}\n        row_kernel["), **BLOCKS
    )
    assert not fits(source, {"ROW_NUM_WARPS": 64})


@pytest.mark.parametrize("choices", [(True, False), ("a", "b")])
def test_a_block_with_a_flag_or_a_word_for_a_side_ends_no_search(choices):
    loop = "sums = tl.zeros([XBLOCK, R0_BLOCK])\n    for k in range(9):\n        sums += 1"
    source = source_of(ROW.format(line=loop), **BLOCKS | {"ROW_R0_BLOCK": choices})
    assert fits(source, {"ROW_R0_BLOCK": choices[1]})
    assert not fits(source, {"ROW_XBLOCK": 1 << 14, "ROW_R0_BLOCK": choices[1]})


def instances_that_fit(source: str, limits: Limits = H200) -> tuple[int, int]:
    listed = list(tunables.parse(source).assignments())
    return sum(fits(source, one, limits) for one in listed), len(listed)


def test_templates_say_by_their_own_text_what_they_hold():
    wide = matrix(4096, 8192)
    fit, count = instances_that_fit(product("v", wide, matrix(8192, 1))["source"])
    assert (fit, count) == (170, 216)  # 46 with more than 255 sums for a thread
    x = torch.empty(16, 64, 56, 56, device="meta")
    weight = torch.empty(64, 1, 3, 3, device="meta")
    fit, count = instances_that_fit(convolution("d", x, weight, groups=64)["source"])
    assert 0 < fit < count
    heads = torch.empty(2, 8, 512, 256, device="meta")
    found = attention("a", "flash_attention", heads, heads, heads, ", 0.0, False")
    held = {"ATTENTION_BLOCK_M": 128, "ATTENTION_NUM_WARPS": 4}  # 256 features of a value
    assert not fits(found["source"], held)
    assert fits(found["source"], held | {"ATTENTION_NUM_WARPS": 8})


def test_programs_in_gluon_say_by_their_own_text_what_shared_memory_they_hold():
    for case in port_cases.packed_products():
        assert instances_that_fit(case["source"]) == (1680, 2592)
        assert instances_that_fit(case["source"], RTX)[0] < 1680


def looks(space: tunables.Space, value, seed: int, count: int) -> float:
    """The best of so many looks, the first three of them random."""
    rng = random.Random(seed)
    listed = list(space.assignments())
    known = [(one, value(one)) for one in rng.sample(listed, 3)]
    while len(known) < count:
        tried = [one for one, _ in known]
        chosen = suggest(space, known, [one for one in listed if one not in tried], rng)
        known.append((chosen, value(chosen)))
    return max(found for _, found in known if found is not None)


def hill(assignment) -> float | None:
    """Best at A = 8, B = 32; the largest of A do not run."""
    if assignment["A"] == 256:
        return None
    return -0.2 * abs(math.log2(assignment["A"] / 8)) - 0.1 * abs(math.log2(assignment["B"] / 32))


def test_the_best_of_a_hill_is_found_in_few_looks():
    powers = tuple(1 << k for k in range(9))
    space = space_of(A=powers, B=powers)
    assert sum(looks(space, hill, seed, 12) == 0 for seed in range(10)) >= 9


def test_two_kernels_are_tuned_as_if_each_were_alone():
    """81 * 81 instances, of which 30 are looked at."""
    powers = tuple(1 << k for k in range(9))
    space = space_of(A_XBLOCK=powers, B_XBLOCK=powers)

    def both(assignment) -> float:
        return -0.3 * sum(abs(math.log2(value / 16)) for value in assignment.values())

    assert sum(looks(space, both, seed, 12) == 0 for seed in range(10)) >= 9


@pytest.mark.parametrize("peak", [1, 3, 5, 7])
def test_a_few_percent_between_screens_say_where_the_next_look_is(peak):
    """The best is between the two best of those measured, which differ from the next by 4 %."""
    powers = [{"A": 1 << k} for k in range(9)]
    known = [(powers[k], -0.02 * abs(k - peak)) for k in range(0, 9, 2)]
    space = space_of(A=tuple(one["A"] for one in powers))
    assert suggest(space, known, powers[1::2], random.Random(0)) == powers[peak]


def test_without_a_value_any_candidate_will_do():
    space = space_of(A=(1, 2, 3))
    chosen = suggest(space, [({"A": 1}, None)], [{"A": 2}, {"A": 3}], random.Random(0))
    assert chosen["A"] in (2, 3)


def test_what_would_improve_little_is_still_told_from_what_would_improve_less():
    """Late in a run all that is left is expected to be slower, by more or by less."""
    space = space_of(A=tuple(range(100)))
    known = [({"A": at}, 0.0) for at in range(45, 56)]
    left = [{"A": at} for at in (*range(45), *range(56, 100))]

    def slower(instances) -> np.ndarray:
        return np.array(
            [0.0 if 45 <= one["A"] <= 55 else -0.9 - 0.005 * one["A"] for one in instances]
        )

    chosen = {suggest(space, known, left, random.Random(k), slower)["A"] for k in range(20)}
    assert len(chosen) == 1


def test_a_word_weighs_as_much_as_a_number_however_many_choices_it_has():
    for words in ("ab", "abcdefgh"):
        places = Places(space_of(A=(1, 2, 4, 8, 16), W=tuple(words)))
        points = places([{"A": 1, "W": "a"}, {"A": 16, "W": "a"}, {"A": 1, "W": "b"}])
        covariance = places.covariance(points, points, 0.6)
        assert covariance[0, 1] == pytest.approx(covariance[0, 2])
        assert covariance[0, 0] == pytest.approx(1)


def product_time(m: int, n: int, k: int, warps: int, stages: int, jitter: float) -> float | None:
    """A product of 2048 x 2048 matrices, in waves of tiles over 132 multiprocessors."""
    bytes_, sums = (m + n) * k * 4 * stages, m * n / (32 * warps)
    if bytes_ > 227_000:
        return None
    beside = max(min(227_000 // bytes_, int(512 // (sums + 40))), 1)
    waves = math.ceil(math.ceil(2048 / m) * math.ceil(2048 / n) / (132 * beside))
    work = m * n / min(1.0, (m * n / 16384) ** 0.3) / (1 - 0.3 / stages)
    return waves * beside * work * (1 + max(0.0, sums - 200) / 60) * math.exp(jitter)


def small_table() -> Table:
    """Eight instances, of which one does not fit, twice as fast elsewhere than as written."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
    choices = {"BLOCK_M": (128, 256), "BLOCK_N": (128, 256), "BLOCK_K": (16, 32)}
    rest = {name: (value,) for name, value in USUAL.items() if name not in names}
    rows = [
        {"assignment": dict(zip(names, sizes, strict=True)) | {n: v for n, (v,) in rest.items()},
         "time_ms": 1.0 if sizes == (128, 128, 16) else 0.5}
        for sizes in itertools.product(*choices.values())
    ]  # fmt: skip
    for row in rows:
        row["assignment"]["INPUT_PRECISION"] = "ieee"
    return Table.read(rows, source_of(KERNEL, **choices, **rest, INPUT_PRECISION=("ieee",)))


@pytest.mark.parametrize("operator", [Tune(), Tune(limit=4), Tune(breadth=20)])
def test_the_best_of_a_few_screens_is_measured_where_no_more_will_come(operator):
    run = Run(small_table(), 0)
    while run.step(operator):
        assert run.evaluations < 20
    assert len(run.measured) >= 1
    assert run.gap == 0


@pytest.mark.parametrize(("choices", "screens"), [(20, 3), (150, 5), (900, 8)])
def test_in_a_small_space_a_few_screens_come_before_the_first_full_measurement(choices, screens):
    assert screens_before_a_measurement(Tune(), choices) == screens


@pytest.mark.parametrize("breadth", [1, 2, 7, 12])
def test_as_many_screens_as_were_asked_for_come_before_the_first_full_measurement(breadth):
    for choices in (20, 900):
        assert screens_before_a_measurement(Tune(breadth=breadth), choices) == breadth


def screens_before_a_measurement(operator: Tune, choices: int) -> int:
    rows = [{"assignment": {"X": x}, "time_ms": 1.0 + x % 7} for x in range(choices)]
    run = Run(Table.read(rows, source_of(X=tuple(range(choices)))), 0)
    while not run.measured:
        assert run.step(operator)
    return run.evaluations - 2  # the one as written, and the one that was measured


@pytest.mark.parametrize("speedup", [math.inf, 0.0])
def test_what_has_no_finite_time_counts_as_failed(speedup):
    source = source_of(X=tuple(range(40)))
    program = Program(source)
    facts = MemoryFacts()
    for x, ratio in ((1, 1.1), (2, 1.2), (3, 1.3), (7, speedup)):
        verdict = replace(failing(Status.CORRECT), ratios={"eager": Ratio(*[ratio] * 3)})
        facts.judge(program, {"X": x}, fidelity=Fidelity.SCREEN, verdict=verdict)
    parent = make_elite(program.digest)
    history = History(tunables.parse(source), facts.trials(program.digest), parent)
    assert ({"X": 7}, None) in history.known
    proposal = Tune().propose(make_context(facts, [parent]))
    assert (proposal.assignment, proposal.fidelity) == ({"X": 3}, Fidelity.SEARCH)
    lost = replace(parent, fitness=Interval(-math.inf, -math.inf, math.inf))
    assert isinstance(Tune(breadth=20).propose(make_context(facts, [lost])), Proposal)


def test_what_is_looked_at_in_a_large_space_does_not_grow_with_its_square():
    names = [f"K{at}_XBLOCK" for at in range(150)]
    source = source_of(**dict.fromkeys(names, (1, 2, 4)))
    space = tunables.parse(source)
    parent = make_elite(Program(source).digest)
    found = candidates(History(space, (), parent), random.Random(0))
    near = {tuple(one.values()) for one in space.neighbours(space.defaults)}
    assert near <= {tuple(one.values()) for one in found}
    assert len(found) < 2000


def test_a_tenth_of_the_instances_of_a_product_is_enough():
    """On a made-up table with waves, occupancy and spills; the figures are of `bench_tuner`."""
    rng = random.Random(0)
    choices = {
        "BLOCK_M": SIDES[1:],
        "BLOCK_N": SIDES[1:],
        "BLOCK_K": (32, 16, 64),
        "NUM_WARPS": (8, 4),
        "NUM_STAGES": (3, 2, 4),
    }
    rows = [
        {
            "assignment": dict(zip(choices, values, strict=True)),
            "time_ms": product_time(*values, rng.gauss(0, 0.005)),
        }
        for values in itertools.product(*choices.values())
    ]
    table = Table.read(rows, source_of(KERNEL, **choices, INPUT_PRECISION=("ieee",)))
    gaps = []
    for seed in range(5):
        run = Run(table, seed)
        while run.evaluations < len(rows) // 10 and run.step(Tune()):
            pass
        gaps.append(run.gap)
    assert statistics.median(gaps) <= 0.02
