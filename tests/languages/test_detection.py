"""The language of a program.

Invariants:
1. It is that of the kernels that the syntax tree defines; words in comments and strings are none.
2. A text that does not parse, however hostile, has none and raises nothing.
"""

import pytest

from evolve.languages.registry import detect_language, find_language
from evolve.languages.triton import launches_triton

KERNEL = "def scale(x): ...\n"


@pytest.mark.parametrize(
    ("source", "language"),
    [
        (f"@triton.jit\n{KERNEL}", "triton"),
        (f"@triton.autotune(configs=[], key=[])\n@triton.jit\n{KERNEL}", "triton"),
        (f"from triton import jit\n\n\n@jit\n{KERNEL}", "triton"),
        (f"{KERNEL}fast = triton.jit(scale)\n", "triton"),
        ('kernel = load_inline("k", cpp_sources=CODE)\n', "cpp"),
        ('cuda_source = "..."\nkernel = load_inline("k", CODE, cuda_source)\n', "cuda"),
        ('kernel = load_inline("k", cpp_sources="", cuda_sources=CODE)\n', "cuda"),
        ('kernel = load_inline("k", cpp_sources="")\n# @triton.jit\n', "cpp"),
        ('"""@triton.jit, cuda_sources = 1"""\n', "torch"),
        ("y = x.relu()\n", "torch"),
        ("def broken(:\n", "torch"),
        (f"@triton.jit\n{KERNEL}y = {'+'.join(['1'] * 200)}\n", "triton"),
        ("f" + "()" * 20_000, "torch"),
        ("(" * 20_000, "torch"),
    ],
)
def test_a_language_is_that_of_the_kernels_in_the_syntax_tree(source, language):
    assert detect_language(source) is find_language(language)


def test_a_kernel_is_launched_by_its_own_name():
    assert launches_triton(f"@triton.jit\n{KERNEL}scale[(4,)](x)\n")
    assert launches_triton(f"{KERNEL}fast = triton.jit(scale)\nself.fast[lambda meta: (4,)](x)\n")
    assert not launches_triton(f"@triton.jit\n{KERNEL}other[0](x)\n")
    assert not launches_triton(f"{KERNEL}scale[0](x)\n# @triton.jit\n")
