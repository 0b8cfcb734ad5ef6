"""Edits of Python text: spans are exact whatever the text is made of."""

import ast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.source.pytext import Edit, Module, apply, write_literal


def test_edits_are_made_at_their_places_in_any_order():
    assert apply("abcdef", [Edit(4, 5, "X"), Edit(0, 2, ""), Edit(3, 3, "-")]) == "c-dXf"


def test_edits_that_overlap_are_refused():
    with pytest.raises(ValueError, match="overlap at offset 1"):
        apply("abc", [Edit(0, 2, "x"), Edit(1, 3, "y")])


def test_a_text_that_is_not_python_is_a_usage_error_with_its_line():
    with pytest.raises(UsageError, match=r"line 2: not valid Python"):
        Module("x = 1\ny = = 2\n")
    with pytest.raises(UsageError) as told:
        Module("y = = 2")
    assert str(told.value) == "line 1: not valid Python (invalid syntax); mend the source"


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_a_text_that_is_nested_too_deeply_for_python_tools_is_refused(depth):
    for source in ("x = " + "1 + " * depth + "1", "x = " + "-" * depth + "1"):
        with pytest.raises(UsageError, match=r"nested more than 150 deep|not valid Python"):
            Module(source)


def test_a_text_at_the_limit_of_nesting_is_unparsed_without_harm():
    module = Module("x = " + "1 + " * 147 + "1")
    assert ast.unparse(module.tree) == module.source
    assert ast.dump(module.tree)
    with pytest.raises(UsageError, match="nested more than 150 deep"):
        Module("x = " + "1 + " * 148 + "1")


def test_a_definition_comes_with_its_decorators_and_last_comment():
    source = "x = 1\n@a\n@b(1)\ndef f():\n    return 1  # one\ny = 2\n"
    module = Module(source)
    start, end = module.definition_span(module.tree.body[1])
    assert source[start:end] == "@a\n@b(1)\ndef f():\n    return 1  # one"


def test_texts_are_the_strings_of_module_level_statements():
    module = Module(
        '"""doc"""\nA = "one"\nB: str = ("tw" \'o\')\nC = [f"no{A}", call(x="three")]\n'
        'def f():\n    return "no"\nclass D:\n    e = "no"\n"no"\n'
    )
    assert [text.value for text in module.texts] == ["one", "two", "three"]


@given(st.text(), st.sampled_from([repr, write_literal, ascii]), st.text(alphabet="é a"))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_character_of_a_string_is_found_where_it_is_written(value, write, comment):
    source = f"é = 'é'; X = {write(value)}  # {comment}\n"
    (_, text) = Module(source).texts
    assert text.value == value
    assert ast.literal_eval(source[text.start : text.end]) == value
    assert list(text.offsets) == sorted(text.offsets)
    for index, character in enumerate(value):
        if character.isalnum() and character.isascii():
            assert source[text.offsets[index]] == character


@given(st.text())
def test_a_written_literal_says_its_value(value):
    assert ast.literal_eval(write_literal(value)) == value
