"""Duplicates: programs that differ in layout, comments or tunable values only have one digest."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolve.core.source.normalise import normalised_digest
from evolve.core.source.tunables import parse, render

SOURCE = '''\
"""A kernel."""

TUNABLE = {"BLOCK": (32, 64), "ROWS": (1, 2)}

BLOCK = 32  # threads
SOURCE = r"""
#include <cmath>
constexpr int ROWS = 1;
static float twice(float x) {
  return 2.0f * x;  // doubled
}
"""


class ModelNew:
    """The module."""

    def forward(self, x):
        # nothing to see
        return run(x, "a  b")
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A kernel."""\n', ""),
        ('    """The module."""\n', ""),
        ("  # threads", ""),
        ("        # nothing to see\n", "\n"),
        ("run(x, ", "run( x,"),
        ('"a  b"', "'a  b'"),
        ("  // doubled", " /* twice\n as much */"),
        ("2.0f * x", "2.0f*x"),
        ("float x) {\n", "float   x)\n{\n"),
        ("#include <cmath>", "#include   <cmath>"),
        ('r"""\n#', '"""\n\n#'),
        ("BLOCK = 32", "BLOCK = 64"),
        ("ROWS = 1", "ROWS = 2"),
        ("(32, 64)", "[64, 32]"),
        ('{"BLOCK": (32, 64), "ROWS": (1, 2)}', '{"ROWS": (1, 2), "BLOCK": (32, 64)}'),
        ("\n", "\r\n"),
    ],
)
def test_what_does_not_matter_does_not_count(old, new):
    assert old in SOURCE
    assert normalised_digest(SOURCE.replace(old, new)) == normalised_digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(32, 64)", "(32, 64, 128)"),
        ("(1, 2)", "(1.0, 2.0)"),
        ("2.0f * x", "3.0f * x"),
        ("2.0f * x", "2.0f / x"),
        ('"a  b"', '"a b"'),
        ("<cmath>", "<math.h>"),
        ("static float twice", "static float thrice"),
        ("ModelNew", "Model_New"),
        ("return run", "run"),
    ],
)
def test_what_matters_counts(old, new):
    assert old in SOURCE
    assert normalised_digest(SOURCE.replace(old, new)) != normalised_digest(SOURCE)


def test_the_place_of_the_declaration_does_not_matter():
    line = SOURCE.splitlines(keepends=True)[2]
    moved = SOURCE.replace(line, "") + line
    assert normalised_digest(moved) == normalised_digest(SOURCE)


def test_a_macro_with_arguments_is_not_one_whose_text_begins_with_a_bracket():
    macro = 'S = """\n#define F(x) 1\n"""\n'
    assert normalised_digest(macro) != normalised_digest(macro.replace("F(", "F ("))


def test_a_text_that_is_not_code_is_compared_to_the_letter():
    assert normalised_digest('S = "a;  b"') != normalised_digest('S = "a; b"')


def test_a_source_that_does_not_parse_is_its_text():
    assert normalised_digest("x = (") == normalised_digest("x = (")
    assert normalised_digest("x = (") != normalised_digest("x = ((")
    assert normalised_digest('TUNABLE = {"A": ()}') != normalised_digest("")


def test_the_configs_of_an_autotune_list_are_a_domain_without_order():
    source = "@triton.autotune(configs=[{}], key=[])\ndef f(): pass\n"
    a, b = "triton.Config({'B': 1})", 'triton.Config( {"B":2} )'
    one, other = source.format(f"{a}, {b}"), source.format(f"{b}, {a}")
    assert normalised_digest(one) == normalised_digest(other)
    assert normalised_digest(one) != normalised_digest(source.format(a))


@given(st.integers(0, 3))
def test_every_instance_of_a_program_has_its_digest(index):
    assignment = list(parse(SOURCE).assignments())[index]
    assert normalised_digest(render(SOURCE, assignment)) == normalised_digest(SOURCE)


@given(st.text())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_has_a_digest(text):
    assert len(normalised_digest(text)) == 64


def test_an_integer_too_long_to_be_written_in_decimals_is_no_error():
    source = f"N = 0x{'f' * 5000}\n"
    assert normalised_digest(source) != normalised_digest(source.replace("0xff", "0xf"))
