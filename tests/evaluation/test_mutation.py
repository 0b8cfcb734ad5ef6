"""Making mutants: from the text of a kernel, one small mistake each.

Invariants:
- the same source gives the same mutants in the same order;
- a mutant differs from its kernel in the lines that it names and in nothing else;
- no two mutants are one program, and none is the kernel;
- Python mutants parse; comments, docstrings, tunables and checks of arguments are left alone.
"""

import ast
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.source.normalise import normalised_digest
from evolve.evaluation.mutation.mutant import Kind, generate, sample
from evolve.tasks.shipped import library_folder

KERNELS = Path(__file__).with_name("kernels")
SOURCES = {
    f"{path.parts[-3]}/{path.stem}": path.read_text()
    for path in (*library_folder().glob("*/seeds/*.py"), *KERNELS.glob("*.py"))
}

TRITON = '''
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Doubles x < n."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=(at < n), other=0.0)  # at < n
    tl.store(y_ptr + at, x * 2.0, mask=at < n)

def double(x):
    y = torch.zeros(x.shape)
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
'''

CPP = '''
import tvm_ffi.cpp
TUNABLE = {"LANES": (4, 8)}
SOURCE = r"""
#include <cstdint>
constexpr int LANES = 8;  // i < n
static void add(const float* x, float* y, int64_t n) {
  float sum = 0.0f;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  TVM_FFI_ICHECK(n > 0) << "n < 1";
  y[0] = sum;
}
"""
kernel = tvm_ffi.cpp.load_inline("add", cpp_sources=SOURCE, functions=["add"])
'''


def changes(source, kind):
    return {(m.before, m.after) for m in generate(source).mutants if m.kind is kind}


def test_a_triton_kernel_gets_mistakes_of_every_kind_that_it_has_room_for():
    made = generate(TRITON).mutants
    store = "tl.store(y_ptr + at, x * 2.0, mask=at < n)"
    assert (store, store.replace("<", "<=")) in changes(TRITON, Kind.BOUNDARY)
    assert (store, "tl.store(y_ptr + at, x * 2.0)") in changes(TRITON, Kind.BOUNDARY)
    assert (store, store.replace("*", "/")) in changes(TRITON, Kind.ARITHMETIC)
    assert {mutant.kind for mutant in made} == set(Kind) - {Kind.SYNCHRONISATION}


def test_a_load_without_its_mask_keeps_no_value_for_masked_lanes_either():
    after = [after for _, after in changes(TRITON, Kind.BOUNDARY) if "tl.load(x_ptr + at)" in after]
    assert len(after) == 1


def test_a_launch_is_made_one_program_too_short_and_its_buffer_is_left_uninitialised():
    grids = [after for _, after in changes(TRITON, Kind.BOUNDARY) if "kernel[" in after]
    assert any("- 1,)" in grid for grid in grids)
    assert ("y = torch.zeros(x.shape)", "y = torch.empty(x.shape)") in changes(
        TRITON, Kind.INITIALISATION
    )


def test_a_cpp_kernel_loses_its_reduction_its_types_and_its_bounds():
    loop = "for (int64_t i = 0; i < n; ++i) sum += x[i];"
    pragma = "#pragma omp parallel for reduction(+ : sum)"
    assert (pragma, "#pragma omp parallel for") in changes(CPP, Kind.SYNCHRONISATION)
    assert (loop, loop.replace("i < n", "i <= n")) in changes(CPP, Kind.BOUNDARY)
    assert (loop, loop.replace("i < n", "i < n - 1")) in changes(CPP, Kind.BOUNDARY)
    assert (loop, loop.replace("x[i]", "x[i + 1]")) in changes(CPP, Kind.INDEXING)
    assert ("float sum = 0.0f;", "_Float16 sum = 0.0f;") in changes(CPP, Kind.PRECISION)
    assert ("float sum = 0.0f;", "float sum = 1.0f;") in changes(CPP, Kind.INITIALISATION)


def test_tunables_checks_and_comments_are_left_alone():
    for mutant in generate(CPP).mutants:
        assert "constexpr int LANES = 8;  // i < n" in mutant.source
        assert 'TVM_FFI_ICHECK(n > 0) << "n < 1";' in mutant.source
    for mutant in generate(TRITON).mutants:
        assert '"""Doubles x < n."""' in mutant.source
        assert mutant.source.count("# at < n") == 1


@pytest.mark.slow  # kernels of many lines; short ones are in the other tests
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_mutants_of_real_kernels_are_many_different_parse_and_change_only_what_they_say(name):
    source = SOURCES[name]
    made = generate(source)
    assert len(made.mutants) >= 15
    digests = {normalised_digest(mutant.source) for mutant in made.mutants}
    assert len(digests) == len(made.mutants)
    assert normalised_digest(source) not in digests
    lines = source.splitlines()
    for mutant in made.mutants:
        ast.parse(mutant.source)
        mutated = mutant.source.splitlines()
        before, after = mutant.before.split("\n"), mutant.after.split("\n")
        at = mutant.line - 1
        assert [line.strip() for line in lines[at : at + len(before)]] == before
        assert [line.strip() for line in mutated[at : at + len(after)]] == after
        assert mutated[:at] == lines[:at]
        assert mutated[at + len(after) :] == lines[at + len(before) :]


@pytest.mark.parametrize("source", [CPP, TRITON], ids=["cpp", "triton"])
def test_the_same_source_has_the_same_mutants(source):
    again, made = generate(source).mutants, generate(source).mutants
    assert [mutant.source for mutant in again] == [mutant.source for mutant in made]


def test_a_sample_is_spread_over_kinds_and_keeps_the_order_of_the_text():
    made = generate(SOURCES["softmax/three_pass"]).mutants
    chosen = sample(made, 12)
    assert len(chosen) == 12
    assert chosen == sorted(chosen, key=made.index)
    assert {mutant.kind for mutant in chosen} >= set(Kind) - {Kind.SYNCHRONISATION}
    assert sample(made, 10_000) == list(made)


def test_a_source_without_kernels_is_refused_with_what_mutants_are_made_of():
    with pytest.raises(UsageError, match=r"no kernel.*@triton\.jit"):
        generate("import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n")
