"""Descriptors: a few words of fixed choice for what kind of kernel a source holds.

Invariants: every text gets every descriptor, each from its fixed choices; comments, names in prose
and layout do not change them.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.languages import descriptors
from evolve.languages.registry import describe

CHOICES = {
    "memory_access": descriptors.MEMORY_ACCESS,
    "parallelism": descriptors.PARALLELISM,
    "compute_pattern": descriptors.COMPUTE_PATTERN,
    "precision_path": descriptors.PRECISION_PATH,
}


def cpp(body, head=""):
    return f'''
import torch
SOURCE = r"""
#include <cmath>
{head}
void run(TensorView x, TensorView y) {{
  const float* in = data(x);
  float* out = data(y);
  {body}
}}
"""
kernel = load_inline("kernel", cpp_sources=SOURCE)
'''


PLAIN = cpp("for (int64_t i = 0; i < n; i += 1) out[i] = 2 * in[i];")
SUM = cpp("float sum = 0; for (int64_t i = 0; i < n; ++i) sum += in[i];\n  out[0] = sum;")


@given(st.text() | st.sampled_from([PLAIN, SUM]))
def test_every_text_has_every_descriptor_from_its_choices(text):
    found = describe(text)
    for name, choices in CHOICES.items():
        assert found[name] in choices
    assert found["descriptor_version"] == descriptors.DESCRIPTOR_VERSION
    assert found["kernels"] >= 0


@pytest.mark.parametrize(
    ("source", "name", "value"),
    [
        (PLAIN, "parallelism", "serial"),
        (PLAIN, "memory_access", "scalar"),
        (PLAIN, "compute_pattern", "elementwise"),
        (PLAIN, "kernels", 1.0),
        (SUM, "compute_pattern", "reduction"),
        (cpp("#pragma omp parallel for\n for (;;) {}"), "parallelism", "threads"),
        (cpp("#pragma omp simd\n for (;;) {}"), "parallelism", "simd"),
        (cpp("#pragma omp parallel for simd\n for (;;) {}"), "parallelism", "threads+simd"),
        (cpp("__m256 v = _mm256_loadu_ps(in);"), "memory_access", "vector"),
        (cpp("for (int r = 0; r < BLOCK_ROWS; ++r) {}"), "memory_access", "blocked"),
        (cpp("Tile tile = multiply_tile(in);"), "compute_pattern", "tiled"),
        (cpp("m = std::max(m, in[0]); sum += std::exp(in[0] - m);"), "compute_pattern", "two_pass"),
        (cpp("sum = sum * std::exp(old - higher);"), "compute_pattern", "online"),
        (cpp("double total = 0;"), "precision_path", "fp64"),
        (cpp("_Float16 h = 0;"), "precision_path", "half"),
        (cpp("", head="static float f(float x) { return x; }"), "kernels", 2.0),
    ],
)
def test_what_a_cpp_source_does_is_described(source, name, value):
    assert describe(source)[name] == value


TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + columns)
    tl.store(y + columns, BODY)
"""


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ("values * 2", "elementwise"),
        ("tl.sum(values, 0)", "reduction"),
        ("tl.exp(values - tl.max(values, 0)) / tl.sum(values, 0)", "two_pass"),
        ("tl.dot(values, values)", "tiled"),
    ],
)
def test_what_a_triton_source_does_is_described(body, pattern):
    found = describe(TRITON.replace("BODY", body))
    assert found["compute_pattern"] == pattern
    assert found["parallelism"] == "threads+simd"
    assert found["language"] == "triton"
    assert found["kernels"] == 1.0


def test_comments_and_prose_do_not_change_a_description():
    talk = PLAIN.replace("float* out", "// online tile, omp simd, sum += x\n  float* out")
    prose = '"""An online tiled kernel over blocks with _mm256_add."""\n' + PLAIN
    assert describe(talk) == describe(PLAIN)
    assert describe(prose) == describe(PLAIN)
