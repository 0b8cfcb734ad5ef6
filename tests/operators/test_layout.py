"""Calls as generated programs write them.

Invariant: what fits the width stands on one line; else as many arguments on each line as fit.
"""

import ast

import pytest

from operators.local.inductor.layout import call_text, launch_text

WIDE = "f(aaaa, bbbb, cccc)"
BROKEN = "f(\n    aaaa, bbbb,\n    cccc,\n)"


@pytest.mark.parametrize(
    ("head", "width", "text"),
    [
        ("f(", 19, WIDE),
        ("f(", 18, BROKEN),
        ("f(", 15, BROKEN),
        ("f(", 14, "f(\n    aaaa,\n    bbbb,\n    cccc,\n)"),
        ("x = [\n]\nf(", 99, "x = [\n]\nf(\n    aaaa, bbbb, cccc\n)"),
    ],
)
def test_a_call_stands_on_as_few_lines_as_its_width_allows(head, width, text):
    assert call_text(head, ["aaaa", "bbbb", "cccc"], width) == text


def test_a_call_of_one_long_argument_needs_no_comma():
    assert call_text("f(", ["a" * 20], 10) == f"f(\n    {'a' * 20}\n)"


def test_a_launch_whose_grid_does_not_fit_is_written_below_each_other():
    grid = ast.parse("(first, second)", mode="eval").body
    text = "kernel[(first, second)](x)"
    assert launch_text("kernel", grid, ["x"], len(text)) == text
    broken = launch_text("kernel", grid, ["x"], 12)
    assert broken.startswith("kernel[\n")
    assert ast.unparse(ast.parse(broken)) == ast.unparse(ast.parse(text))
