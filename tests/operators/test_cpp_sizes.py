"""Sizes in C++ of Inductor as named constants.

Invariants: with the names read as their numbers the text is as it was; a program whose sizes are
edited is that of the other sizes; numbers that equal a size by chance, and widths of vectors, are
left alone.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from operators.local.inductor.cpp_sizes import named

LOOPS = """
std::unique_ptr<float []> buffer = std::make_unique<float []>({n});
for(int64_t x0=0; x0<{m}; x0+=1)
  for(int64_t x1_first=0; x1_first<{n}; x1_first+=16*LANES)
    int64_t x1 = x1_first + 16*lane;
    if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>({n}L)))
      auto tmp0 = loadu(in_ptr0 + static_cast<int64_t>(x1 + {n}L*x0), static_cast<int64_t>(16));
for(int64_t x0=0; x0<{n}; x0+=16)
  for(int64_t x1=0; x1<{m}; x1+=16)
    transpose_mxn<float>(in_ptr0 + static_cast<int64_t>(x0 + {n}L*x1), static_cast<int64_t>({n}L));
    for (long x1_inner = 0; x1_inner < static_cast<int64_t>(16); x1_inner++)
      out_ptr0[x1 + x1_inner + {m}L*x0] = tmp0[16L*x1_inner];
"""
OTHERS = """
for(int64_t x0=0; x0<1024; x0+=1)
  for(int64_t x1=0; x1<768; x1+=16)
    if(x1 >= 0 && x1 < 752L && x0 < 768L) tmp0 = in_ptr0[x1 + 1024L*x0] + in_ptr1[x0 + 768L*x1];
    tmp1 = static_cast<float>(768.0) + 768L + 7680L * N[768L*x0] + helper_x1(768L);
    out_ptr0[x1 + 786432L*x0 + 16L*x0] = loadu(in_ptr2 + x1, static_cast<int64_t>(768));
"""
SIZE = st.integers(64, 1 << 20)


def constants_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"constexpr int64_t (\w+) = (\d+);", text))


def read_back(constants: str, text: str) -> str:
    for name, size in constants_of(constants).items():
        text = re.sub(rf"\b{name}\b", size, text)
    return text


def plain(text: str) -> str:
    return re.sub(r"(?<=\d)L\b", "", text)


def loops(m: int, n: int) -> str:
    return LOOPS.replace("{m}", str(m)).replace("{n}", str(n))


def test_bounds_guards_and_strides_have_the_names_of_their_loops():
    constants, text = named(loops(4096, 768))
    assert constants_of(constants) == {
        "X0_SIZE": "4096",
        "X1_SIZE": "768",
        "X0_SIZE_2": "768",
        "X1_SIZE_2": "4096",
    }
    assert "x0<X0_SIZE;" in text
    assert "x1 < static_cast<int64_t>(X1_SIZE)" in text
    assert "x1 + X1_SIZE*x0" in text
    assert "(x0 + X0_SIZE_2*x1), static_cast<int64_t>(X0_SIZE_2)" in text
    assert "x1 + x1_inner + X1_SIZE_2*x0" in text


@given(SIZE, SIZE, SIZE, SIZE)
def test_a_program_whose_sizes_are_edited_is_that_of_the_other_sizes(m, n, new_m, new_n):
    constants, text = named(loops(m, n).partition("\n")[2].partition("\n")[2])  # without the buffer
    assert str(m) not in re.findall(r"\b\d+", text)
    assert str(n) not in re.findall(r"\b\d+", text)
    new = [new_m, new_n, new_n, new_m] if m != n else [new_m, new_m]
    edited = constants
    for name, size in zip(constants_of(constants), new, strict=True):
        edited = re.sub(rf"\b{name} = \d+", f"{name} = {size}", edited)
    other = loops(*((new_m, new_n) if m != n else (new_m, new_m)))
    assert plain(read_back(edited, text)) == plain(other.partition("\n")[2].partition("\n")[2])


def test_equal_sizes_of_two_loops_are_two_names():
    constants, text = named(loops(512, 512))
    assert constants_of(constants) == {"X0_SIZE": "512", "X1_SIZE": "512"}
    assert "x1 + X1_SIZE*x0" in text
    assert "x0 + X0_SIZE*x1" in text
    assert "make_unique<float []>(512)" in text  # of which loop, nothing says


def test_room_for_a_row_has_the_name_of_the_only_loop_of_that_size():
    _, text = named(loops(4096, 768).partition("for(int64_t x0=0; x0<768")[0])
    assert "make_unique<float []>(X1_SIZE)" in text


def test_numbers_that_equal_a_size_by_chance_are_left_alone():
    constants, text = named(OTHERS)
    expected = OTHERS.replace("x0<1024", "x0<X0_SIZE").replace("x1<768", "x1<X1_SIZE")
    assert constants_of(constants) == {"X0_SIZE": "1024", "X1_SIZE": "768"}
    assert text == expected


def test_a_name_that_the_program_has_is_not_taken():
    constants, _ = named(f"int X1_SIZE;{loops(4096, 768)}")
    assert "X1_SIZE" not in constants_of(constants)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6), st.integers(1, 1 << 40))
def test_the_numbers_are_as_they_were(bounds, other):
    text = "".join(
        f"for(int64_t x{at}=0; x{at}<{bound}; x{at}+=1) y[{bound}L*x{at} + {other}L + x0 + "
        f"{other}L*x1] = {other}.5;\n"
        for at, bound in enumerate(bounds)
    )
    constants, written = named(text)
    assert plain(read_back(constants, written)) == plain(text)
    assert all(f"<{bound};" not in written for bound in bounds if bound >= 64)
