"""Sizes in C++ of Inductor as named constants.

Invariants: with the names read as their numbers the text is as it was; what a loop runs up to has a
name, wherever it stands; widths of vectors, and numbers that only look alike, are left alone.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from operators.local.inductor.cpp_sizes import named

LOOPS = """
for(int64_t x0=0; x0<4096; x0+=1)
  for(int64_t x1=0; x1<768; x1+=16)
    auto tmp0 = loadu(in_ptr0 + static_cast<int64_t>(x1 + 768L*x0), static_cast<int64_t>(16));
    if(x1 >= 0 && x1 < 768L) auto tmp1 = tmp0 / static_cast<float>(768.0) + 7680L + N1;
"""


def read_back(constants: str, text: str) -> str:
    for name, size in re.findall(r"constexpr int64_t (\w+) = (\d+);", constants):
        text = re.sub(rf"\b{name}\b", size, text)
    return text


def plain(text: str) -> str:
    return re.sub(r"(?<=\d)L\b", "", text)


def test_bounds_and_what_equals_them_have_names():
    constants, text = named(LOOPS)
    assert constants == "constexpr int64_t N0 = 4096;\nconstexpr int64_t N2 = 768;\n"
    assert "x0<N0;" in text
    assert "x1 + N2*x0" in text
    assert "x1 < N2)" in text
    assert "static_cast<float>(768.0) + 7680L + N1" in text
    assert "static_cast<int64_t>(16)" in text


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6), st.integers(1, 1 << 40))
def test_the_numbers_are_as_they_were(bounds, other):
    text = "".join(
        f"for(int64_t x{at}=0; x{at}<{bound}; x{at}+=1) y[{bound}L*x{at} + {other}L] = {other}.5;\n"
        for at, bound in enumerate(bounds)
    )
    constants, written = named(text)
    assert plain(read_back(constants, written)) == plain(text)
    assert all(f"<{bound};" not in written for bound in bounds if bound >= 64)
