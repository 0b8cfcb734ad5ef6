"""C++ text: comments and literals are no code, functions are found whole."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.source.cpptext import functions, includes, is_code, mask, names, normalise

CODE = r"""
#include <cmath>  // the usual
#include "mine.h"
#define LOOP(n) for (int i = 0; i < n; ++i) {  // { unbalanced on purpose
using tvm::ffi::TensorView;

struct Point { float x; float y() const { return x; } };
static const int table[] = {1, 2, 3};
enum class Mode { fast, slow };

namespace detail {
template <typename T, int N = 4>
inline T sum(const T* x) {  // }
  T s = 0;
  for (int i = 0; i < N; ++i) { s += x[i]; }
  return s;
}
}  // namespace detail

/* void gone() { } */
extern "C" {
void put(const char* text) { print("}{ // no comment", '{', '\'', text); }
}
auto twice(float x) noexcept -> float { return 2 * x; }
static float over(int x) { return x; }
static float over(float x) { return x; }
"""


def test_functions_are_found_at_file_and_namespace_level_only():
    assert list(functions(CODE)) == [
        "template < typename T , int N = 4 > inline T sum ( const T * x )",
        "void put ( const char * text )",
        "auto twice ( float x ) noexcept - > float",
        "static float over ( int x )",
        "static float over ( float x )",
    ]


def test_a_function_is_its_whole_text():
    function = functions(CODE)["void put ( const char * text )"]
    assert function.text == CODE[function.start : function.end]
    assert function.text == (
        r"""void put(const char* text) { print("}{ // no comment", '{', '\'', text); }"""
    )


def test_a_header_that_is_defined_twice_names_no_function():
    assert functions("int f() { return 1; }\nint f() { return 2; }\nint g() {}\n").keys() == {
        "int g ( )"
    }


def test_comments_and_literals_are_blanked_in_place():
    assert mask('a // b\n"c" /* d\n e */ f') == "a     \n    " + " " * 4 + "\n      f"


def test_includes_and_names_are_read():
    assert includes(CODE) == ["<cmath>", '"mine.h"']
    assert {"sum", "twice", "TensorView"} <= names(CODE)
    assert not {"usual", "gone", "comment"} & names(CODE)


def test_code_is_told_from_prose():
    assert is_code("int x;\n")
    assert is_code("#define A 1")
    assert not is_code("softmax; in three passes, by rows")


@given(st.text(alphabet="ab{}();=#\"'/*\\\n :<>1"))
def test_any_text_at_all_is_read(text):
    assert len(mask(text)) == len(text)
    assert mask(text).count("\n") == text.count("\n")
    for function in functions(text).values():
        assert text[function.start : function.end] == function.text
        assert function.text.count("{") >= 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("unit", ['"\\', '"', "'", "/*", "\n", "\n#", "; ", "\\\n", "a("])
@pytest.mark.parametrize("last", ["", "\\", "b"])
def test_the_time_for_a_hostile_text_is_in_proportion_to_it(unit, last):
    text = "a" + unit * 20_000 + last
    began = time.process_time()
    is_code(text)
    mask(text)
    normalise(text)
    functions(text + "{ }")
    assert time.process_time() - began < 4  # 8 s, where it is not
