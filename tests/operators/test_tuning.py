"""What the tuner knows of instances: which fit a device, and which are worth a look.

Invariants:
- only what cannot fit is left out, whatever the names of tunables are;
- what is known of one kernel's tunables says nothing of another's;
- the model finds the best of a smooth space in few looks, in the presence of failures too;
- on tables of times with interactions and steps, a tenth of the instances is enough.
"""

import itertools
import math
import random
import statistics

import pytest

from evolve.core import tunables
from operators.tune import Tune
from operators.tuning import fits, suggest
from operators.tuning.groups import by_kernel
from tests.benchmarks.tuner_replay import Run, Table

SOURCE = """
{constants}
TUNABLE = {declared}

class ModelNew: ...
"""


def space_of(**choices: tuple) -> tunables.Space:
    constants = "\n".join(f"{name} = {values[0]!r}" for name, values in choices.items())
    return tunables.parse(SOURCE.format(constants=constants, declared=repr(choices)))


def test_tunables_belong_to_the_kernel_that_their_names_begin_with():
    space = space_of(
        GELU_XBLOCK=(1, 2),
        GELU_NUM_WARPS=(1, 2),
        MATMUL_2_BLOCK_M=(16, 32),
        XBLOCK=(1, 2),
        UNROLL=(1, 2),
    )
    found = {prefix: set(group) for prefix, group in by_kernel(space).items()}
    assert found == {
        "GELU_": {"XBLOCK", "NUM_WARPS"},
        "MATMUL_2_": {"BLOCK_M"},
        "": {"XBLOCK", "UNROLL"},
    }


SIDES = (16, 32, 64, 128, 256)
PRODUCT = space_of(
    BLOCK_M=SIDES,
    BLOCK_N=SIDES,
    BLOCK_K=(16, 32, 64, 128),
    INPUT_PRECISION=("tf32x3", "ieee"),
    NUM_WARPS=(4, 8),
    NUM_STAGES=(2, 3, 4),
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"BLOCK_M": 256, "BLOCK_N": 128}, True),
        ({"BLOCK_M": 256, "BLOCK_N": 256}, False),  # 256 sums for each of 256 threads
        ({"BLOCK_K": 128, "NUM_STAGES": 2}, True),
        ({"BLOCK_K": 128, "NUM_STAGES": 4}, False),  # 384 kB of tiles
    ],
)
def test_tiles_that_cannot_fit_are_told_from_those_that_can(changed, expected):
    usual = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "INPUT_PRECISION": "ieee"}
    assert fits(PRODUCT, usual | {"NUM_WARPS": 8, "NUM_STAGES": 3} | changed) is expected


def test_blocks_of_other_kernels_fit_as_long_as_a_thread_can_hold_its_share():
    space = space_of(ROW_XBLOCK=(1, 128), ROW_R0_BLOCK=(256, 4096), ROW_NUM_WARPS=(1, 32))
    known = {
        (x, r, w): fits(space, {"ROW_XBLOCK": x, "ROW_R0_BLOCK": r, "ROW_NUM_WARPS": w})
        for x, r, w in itertools.product((1, 128), (256, 4096), (1, 32))
    }
    assert not known[128, 4096, 1]
    assert known[128, 4096, 32]
    assert known[1, 4096, 1]


def test_a_program_of_other_tunables_always_fits():
    assert fits(space_of(CHUNK=(1, 4), FLAG=(True, False)), {"CHUNK": 4, "FLAG": True})


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


def test_without_a_value_any_candidate_will_do():
    space = space_of(A=(1, 2, 3))
    chosen = suggest(space, [({"A": 1}, None)], [{"A": 2}, {"A": 3}], random.Random(0))
    assert chosen["A"] in (2, 3)


def product_time(m: int, n: int, k: int, warps: int, stages: int, jitter: float) -> float | None:
    """A product of 2048 x 2048 matrices, in waves of tiles over 132 multiprocessors."""
    bytes_, sums = (m + n) * k * 4 * stages, m * n / (32 * warps)
    if bytes_ > 227_000:
        return None
    beside = max(min(227_000 // bytes_, int(512 // (sums + 40))), 1)
    waves = math.ceil(math.ceil(2048 / m) * math.ceil(2048 / n) / (132 * beside))
    work = m * n / min(1.0, (m * n / 16384) ** 0.3) / (1 - 0.3 / stages)
    return waves * beside * work * (1 + max(0.0, sums - 200) / 60) * math.exp(jitter)


def test_a_tenth_of_the_instances_of_a_product_is_enough():
    """On a made-up table with waves, occupancy and spills; the figures are of `bench_tuner`."""
    rng = random.Random(0)
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "NUM_WARPS", "NUM_STAGES")
    rows = [
        {
            "assignment": dict(zip(names, values, strict=True)),
            "time_ms": product_time(*values, rng.gauss(0, 0.005)),
        }
        for values in itertools.product(SIDES[1:], SIDES[1:], (16, 32, 64), (4, 8), (2, 3, 4))
    ]
    table = Table.read(rows, dict(zip(names, (128, 128, 32, 8, 3), strict=True)))
    gaps = []
    for seed in range(5):
        run = Run(table, seed)
        while run.instances < len(rows) // 10 and run.step(Tune()):
            pass
        run.settle(Tune())
        gaps.append(run.gap)
    assert statistics.median(gaps) <= 0.02
