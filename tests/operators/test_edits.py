"""Search/replace edits.

Invariants:
1. Every edit is made where its search part stands, or all of them are refused with a reason.
2. An edit never lands at a second place, inside a line, or at another indentation than its lines
   have among themselves.
3. Nothing raises.
4. A definition that an edit names is replaced or deleted as a whole, and nothing else.
5. Strict scope keeps signatures, grids, program ids, masks, and all outside of a marked region.
"""

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.prompting.definitions import definitions as found_in
from operators.prompting.edits import (
    MAX_EDITS,
    EditFault,
    Refusal,
    Replacement,
    apply_edits,
    read_edits,
)
from operators.source.scope import EditScope, breach

SOURCE = """\
import torch

BLOCK = 64


def tile(x):
    for i in range(3):
        x = x + i
    return x


class ModelNew:
    def forward(self, x):
        y = tile(x)
        return y * BLOCK
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def redefined(name: str, text: str = "") -> str:
    return f"<<<<<<< FUNCTION {name}\n{text}\n>>>>>>> REPLACE\n"


def edited(reply: str, source: str = SOURCE) -> str | EditFault:
    edits = read_edits(reply)
    outcome = edits if isinstance(edits, Refusal) else apply_edits(source, edits)
    return outcome.fault if isinstance(outcome, Refusal) else outcome


def test_an_edit_replaces_its_lines_and_nothing_else():
    assert edited(block("BLOCK = 64", "BLOCK = 128")) == SOURCE.replace("64", "128")


def test_prose_and_fences_around_edits_do_not_matter():
    reply = f"Title\n=======\n\n```python\n{block('BLOCK = 64', 'BLOCK = 128')}```\nDone.\n"
    assert edited(reply) == SOURCE.replace("64", "128")


def test_edits_are_all_made_in_whatever_order_they_come():
    reply = block("    return x", "    return -x") + block("BLOCK = 64", "BLOCK = 32")
    assert edited(reply) == SOURCE.replace("return x", "return -x").replace("64", "32")


def test_lines_may_be_deleted():
    reply = "<<<<<<< SEARCH\n        x = x + i\n=======\n        pass\n>>>>>>> REPLACE\n"
    assert edited(reply) == SOURCE.replace("x = x + i", "pass")
    gone = "<<<<<<< SEARCH\nBLOCK = 64\n=======\n>>>>>>> REPLACE\n"
    assert edited(gone) == SOURCE.replace("BLOCK = 64\n", "")


def test_an_edit_at_another_indentation_is_moved_to_that_of_the_program():
    reply = block(
        "for i in range(3):\n    x = x + i", "for i in range(3):\n    x = x * i\n    x += 1"
    )
    new = "        x = x * i\n        x += 1\n"
    assert edited(reply) == SOURCE.replace("        x = x + i\n", new)
    deeper = block("            y = tile(x)", "            y = tile(x) + 1")
    assert edited(deeper) == SOURCE.replace("tile(x)\n", "tile(x) + 1\n")


def test_blanks_at_the_ends_of_lines_do_not_matter():
    assert edited(block("BLOCK = 64  ", "BLOCK = 32")) == SOURCE.replace("64", "32")
    assert edited(block("BLOCK = 64", "BLOCK = 32"), SOURCE.replace("64", "64 ")) == (
        SOURCE.replace("64", "32")
    )


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("no edits here", EditFault.NO_EDITS),
        ("=======\n", EditFault.NO_EDITS),
        (block("", "x = 1"), EditFault.EMPTY_SEARCH),
        (block("  \n", "x = 1"), EditFault.EMPTY_SEARCH),
        (block("BLOCK = 65", "BLOCK = 1"), EditFault.MISSING),
        (block("LOCK = 64", "LOCK = 1"), EditFault.MISSING),
        (block("BLOCK", "SIZE"), EditFault.MISSING),
        (block("BLOCK = 64", "BLOCK = 64"), EditFault.NO_OP),
        (block("BLOCK = 64 ", "BLOCK = 64"), EditFault.NO_OP),
        (block("BLOCK = 64", "BLOCK = ("), EditFault.SYNTAX),
        (
            block("    for i in range(3):\n        x = x + i", "    return 1")
            + block("        x = x + i\n    return x", "    return 2"),
            EditFault.OVERLAPPING,
        ),
        (block("BLOCK = 64", "BLOCK = 1") * 2, EditFault.OVERLAPPING),
        (block("            y = tile(x)", "        y = 1"), EditFault.INDENTATION),
        ("<<<<<<< SEARCH\nBLOCK = 64\n", EditFault.MALFORMED),
        ("<<<<<<< SEARCH\nBLOCK = 64\n=======\nBLOCK = 1\n", EditFault.MALFORMED),
        ("<<<<<<< SEARCH\nBLOCK = 64\n>>>>>>> REPLACE\n", EditFault.MALFORMED),
        (">>>>>>> REPLACE\n", EditFault.MALFORMED),
        (block("BLOCK = 64\n=======\nx = 1", "BLOCK = 1"), EditFault.MALFORMED),
        (block("<<<<<<< SEARCH\nBLOCK = 64", "BLOCK = 1"), EditFault.MALFORMED),
        (block("BLOCK = 64", "BLOCK = 1") * (MAX_EDITS + 1), EditFault.MALFORMED),
        ("x" * 500_000, EditFault.MALFORMED),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_reason(reply, fault):
    assert edited(reply) == fault


def test_one_edit_that_fails_keeps_the_others_from_being_made():
    assert edited(block("BLOCK = 64", "BLOCK = 1") + block("absent", "x")) == EditFault.MISSING


def test_a_search_part_that_occurs_twice_is_refused_exactly_or_not():
    source = "def f():\n    x = 1\n\n\ndef g():\n    x = 1\n\n\ndef h():\n        x = 1\n"
    assert edited(block("    x = 1", "    x = 2"), source) == EditFault.AMBIGUOUS
    assert edited(block("x = 1", "x = 2"), source) == EditFault.AMBIGUOUS
    assert edited(block("def g():\n    x = 1", "def g():\n    x = 2"), source) == (
        source.replace("def g():\n    x = 1", "def g():\n    x = 2")
    )
    # an exact place is not made ambiguous by one that only resembles it
    assert edited(block("        x = 1", "        x = 3"), source) == (
        source.replace("        x = 1", "        x = 3")
    )


def test_occurrences_that_overlap_each_other_are_two():
    source = "x = 1\ny = 2\nx = 1\ny = 2\nx = 1\n"
    search = "x = 1\ny = 2\nx = 1"
    assert edited(block(search, "z = 1"), source) == EditFault.AMBIGUOUS


def test_lines_that_differ_in_relative_indentation_are_not_alike():
    search = "for i in range(3):\n        x = x + i"
    assert edited(block(search, "pass")) == EditFault.MISSING


DECORATED = """\
import functools

LIMIT = 3


@functools.cache
@functools.wraps(len)
def scale(x):
    return x * 2


class ModelNew:
    def scale(self, x):
        return -x

    @property
    def name(self):
        return "n"


def last(x): return x
"""


def test_a_function_is_replaced_by_its_name_with_its_decorators():
    new = "def scale(x):\n    return x * 3\n\n\ndef helper(x):\n    return x"
    old = DECORATED[DECORATED.index("@functools.cache") : DECORATED.index("\n\n\nclass")]
    assert edited(redefined("scale", new), DECORATED) == DECORATED.replace(old, new)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("last", ["scale", "ModelNew", "ModelNew.scale", "ModelNew.name"]),
        ("`last()`", ["scale", "ModelNew", "ModelNew.scale", "ModelNew.name"]),
        ("ModelNew", ["scale", "last"]),
        ("ModelNew.name", ["scale", "ModelNew", "ModelNew.scale", "last"]),
        ("name", ["scale", "ModelNew", "ModelNew.scale", "last"]),
        ("scale", ["ModelNew", "ModelNew.scale", "ModelNew.name", "last"]),
    ],
)
def test_a_definition_is_deleted_by_its_name(name, left):
    outcome = edited(redefined(name), DECORATED)
    assert [each.name for each in found_in(outcome)] == left
    assert "LIMIT = 3" in outcome
    assert outcome.count("@") == sum(2 if each == "scale" else each[-4:] == "name" for each in left)


def test_a_method_takes_the_indentation_of_the_one_before():
    flat = "def forward(self, x):\n    if x:\n        return tile(x)\n    return 0"
    deep = textwrap.indent(flat, "    ")
    expected = SOURCE[: SOURCE.index("    def forward")] + deep + "\n"
    assert edited(redefined("ModelNew.forward", flat)) == expected
    assert edited(redefined("ModelNew.forward", deep)) == expected


def test_text_in_a_new_function_keeps_its_indentation():
    new = '    def forward(self, x):\n        return """\nint main() {\n  return 0;\n}\n"""'
    assert new in edited(redefined("forward", new))


def test_both_forms_of_edits_go_together():
    reply = f"{redefined('tile')}and\n{block('y = tile(x)', 'y = x')}"
    outcome = edited(reply)
    assert "tile" not in outcome and "y = x" in outcome


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (redefined("absent", "def absent(): pass"), EditFault.MISSING),
        (redefined("i"), EditFault.MISSING),
        (redefined("Other.forward"), EditFault.MISSING),
        (redefined("forward"), EditFault.SYNTAX),  # a class without a body is left
        (redefined("tile", "def tile(x:"), EditFault.SYNTAX),
        (redefined("tile", "    x = ("), EditFault.SYNTAX),
        (redefined("tile", "    def tile(x):\n  return x"), EditFault.INDENTATION),
        (redefined("tile") * 2, EditFault.OVERLAPPING),
        (redefined("ModelNew") + redefined("ModelNew.forward"), EditFault.OVERLAPPING),
        (redefined("tile") + block("    return x", "    return 1"), EditFault.OVERLAPPING),
        (redefined("tile", SOURCE[SOURCE.index("def tile") : SOURCE.index("\n\n\nclass")]),
         EditFault.NO_OP),
        ("<<<<<<< FUNCTION tile\n", EditFault.MALFORMED),
        (redefined("tile", "old\n=======\nnew"), EditFault.MALFORMED),
        (redefined("tile", "<<<<<<< SEARCH"), EditFault.MALFORMED),
        ("<<<<<<< FUNCTION\n>>>>>>> REPLACE\n", EditFault.MALFORMED),
        (redefined("two words"), EditFault.MALFORMED),
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_replaced_is_refused_with_its_reason(reply, fault):
    assert edited(reply) == fault


def test_a_name_that_is_defined_twice_is_refused():
    source = "class A:\n    def f(self): return 1\n\n\nclass B:\n    def f(self): return 2\n"
    assert edited(redefined("f"), source) == EditFault.AMBIGUOUS
    assert edited(redefined("B.f", "def f(self): return 3"), source) == source.replace("2", "3")
    again = "def f(): return 1\n\n\ndef f(): return 2\n"
    assert edited(redefined("f"), again) == EditFault.AMBIGUOUS


def test_a_missing_name_is_refused_with_those_that_there_are():
    refusal = apply_edits(SOURCE, read_edits(redefined("tiles")))
    assert "tile, ModelNew, ModelNew.forward" in refusal.detail


NAMES = st.sampled_from(["a", "b", "c"])
LINES = st.builds("{} = {}".format, NAMES, st.integers(0, 4))


@st.composite
def programs(draw) -> list[str]:
    """Lines of a module: assignments, some of them in functions."""
    lines: list[str] = []
    for number in range(draw(st.integers(1, 5))):
        body = draw(st.lists(LINES, min_size=1, max_size=4))
        if draw(st.booleans()):
            lines += [f"def f{number}():", *(f"    {line}" for line in body), ""]
        else:
            lines += body
    return lines


@given(programs(), st.data())
def test_an_edit_that_is_made_is_the_one_that_was_meant(lines, data):
    """The place is planted; where the reader edits at all, it edits there."""
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    new = [f"{line} + 1" if "=" in line else line for line in lines[start:end]]
    meant = "\n".join([*lines[:start], *new, *lines[end:]]) + "\n"
    search, replace = "\n".join(lines[start:end]), "\n".join(new)
    distort = data.draw(st.sampled_from(["none", "dedent", "indent", "trailing", "blank lines"]))
    if distort == "dedent":
        search, replace = textwrap.dedent(search), textwrap.dedent(replace)
    elif distort == "indent":
        search, replace = textwrap.indent(search, "  "), textwrap.indent(replace, "  ")
    elif distort == "trailing":
        search = "\n".join(f"{line} " for line in search.split("\n"))
    elif distort == "blank lines":
        search, replace = f"\n{search}\n\n", f"\n{replace}\n\n"
    elsewhere = places(lines, search.strip("\n").split("\n"))  # ends that are blank say nothing
    planted = next((at for at in range(start, end) if lines[at]), start)
    outcome = edited(block(search, replace), "\n".join(lines) + "\n")
    if elsewhere and planted not in elsewhere:
        return  # what is searched for stands exactly at another place
    if not isinstance(outcome, EditFault):
        assert [line for line in outcome.split("\n") if line] == [
            line for line in meant.split("\n") if line
        ]
    elif distort == "none" and len(elsewhere) == 1 and search.strip():
        assert outcome == EditFault.NO_OP
        assert new == lines[start:end]


def places(lines: list[str], search: list[str]) -> list[int]:
    return [n for n in range(len(lines)) if lines[n : n + len(search)] == search]


@given(programs(), st.data())
def test_planted_faults_never_edit(lines, data):
    """Searches for what is not there: a changed line, a dropped one, two swapped."""
    fault = data.draw(st.sampled_from(["changed", "dropped", "swapped"]))
    search = list(lines)
    at = data.draw(st.integers(0, len(lines) - 1))
    if fault == "changed":
        search[at] = search[at] + "9" if search[at] else "z = 9"
    elif fault == "dropped":
        del search[at]
    else:
        search[at], search[at - 1] = search[at - 1], search[at]
    source = "\n".join(lines) + "\n"
    outcome = edited(block("\n".join(search), "z = 1"), source)
    bare = "\n".join(line.strip() for line in lines)
    if "\n".join(line.strip() for line in search).strip("\n") not in bare:
        assert isinstance(outcome, EditFault)


@st.composite
def definitions(draw, depth: int = 0) -> list[list[str]]:
    """Texts of definitions with different names, in lines: functions, decorated ones, classes."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        head = [f"@staticmethod  # {number}"] * draw(st.integers(0, 2))
        if depth == 0 and draw(st.booleans()):
            inner = [line for each in draw(definitions(depth=1)) for line in each]
            found.append([*head, f"class C{number}:", *(f"    {line}" for line in inner)])
        else:
            body = draw(st.lists(LINES, min_size=1, max_size=3))
            body += ["def inner(): pass"] * draw(st.integers(0, 1))
            found.append([*head, f"def f{number}():", *(f"    {line}" for line in body)])
    return found


@given(definitions(), st.data())
def test_naming_a_definition_changes_its_lines_and_no_others(texts, data):
    at = data.draw(st.integers(0, len(texts) - 1))
    new = data.draw(st.sampled_from([[], ["def new():", "    return 0"], ["x = 1", "y = 2"]]))
    between = data.draw(st.sampled_from([[], [""], ["", "", "# on its own"], ["z = 0"]]))
    lines = [line for text in texts for line in (*text, *between)]
    changed = [each if number != at else new for number, each in enumerate(texts)]
    meant = [line for text in changed for line in (*text, *between)]
    (name,) = [line.split()[1].rstrip("():") for line in texts[at] if line[:4] in ("def ", "clas")]
    outcome = edited(redefined(name, "\n".join(new)), "\n".join([*lines, "end = 1"]))
    assert outcome == "\n".join([*meant, "end = 1"])


MARKS = st.sampled_from(
    [
        "<<<<<<< SEARCH",
        "<<<<<<< FUNCTION tile",
        "<<<<<<< FUNCTION",
        "=======",
        ">>>>>>> REPLACE",
        "BLOCK = 64",
        "    x = 1",
        "",
        "```",
        "\t",
    ]
)


@given(
    st.one_of(st.text(), st.lists(MARKS, max_size=20).map("\n".join)),
    st.one_of(st.text(), st.just(SOURCE)),
)
def test_no_reply_makes_it_raise_and_what_comes_out_parses(reply, source):
    outcome = edited(reply, source)
    if not isinstance(outcome, EditFault):
        ast.parse(outcome)


@given(programs(), st.lists(LINES, max_size=3))
def test_exact_edits_are_what_replacing_text_would_do(lines, new):
    source = "\n".join(lines) + "\n"
    outcome = apply_edits(source, [Replacement((lines[0],), tuple(new))])
    if lines.count(lines[0]) > 1:
        assert isinstance(outcome, Refusal) and outcome.fault is EditFault.AMBIGUOUS
    elif not isinstance(outcome, Refusal):
        assert outcome == "".join(f"{line}\n" for line in [*new, *lines[1:]])


# Scope

KERNEL = """\
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        grid = (triton.cdiv(x.numel(), 64),)
        kernel[grid](x, x, x.numel(), BLOCK=64)
        return x
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n, BLOCK: tl", "n, m, BLOCK: tl", "the signature of kernel"),
        ("forward(self, x)", "forward(self, x, y)", "the signature of forward"),
        ("triton.cdiv(x.numel(), 64)", "4", "the grid"),
        ("kernel[grid]", "kernel[(4,)]", "the grid of kernel"),
        ("tl.program_id(0)", "tl.program_id(1)", "a program id"),
        ("x * 2, mask=at < n", "x * 2", "a bounds mask"),
        ("x_ptr + at, mask=at < n", "x_ptr + at, mask=at <= n", "a bounds mask"),
    ],
)
def test_strict_scope_names_what_an_edit_may_not_change(old, new, said):
    changed = KERNEL.replace(old, new)
    assert changed != KERNEL
    assert said in breach(KERNEL, changed, EditScope.STRICT)
    assert breach(KERNEL, changed, EditScope.FREE) == ""


def test_strict_scope_lets_arithmetic_change():
    assert breach(KERNEL, KERNEL.replace("x * 2", "x + x"), EditScope.STRICT) == ""


def test_strict_scope_keeps_cpp_signatures():
    source = 'CPP = r"""\nvoid f(int a) { a += 1; }\n"""\n'
    assert "C++" in breach(source, source.replace("int a)", "long a)"), EditScope.STRICT)
    assert breach(source, source.replace("+= 1", "+= 2"), EditScope.STRICT) == ""


def test_strict_scope_keeps_all_outside_of_a_marked_region():
    source = "A = 1\n# EVOLVE-BLOCK-START\nB = 1\n# EVOLVE-BLOCK-END\n"
    inside = source.replace("B = 1", "B = 2\nC = 3")
    assert breach(source, inside, EditScope.STRICT) == ""
    assert "EVOLVE-BLOCK" in breach(source, source.replace("A = 1", "A = 2"), EditScope.STRICT)
    assert "EVOLVE-BLOCK" in breach(source, "B = 2\n", EditScope.STRICT)


def test_strict_scope_keeps_grids_and_masks_within_a_marked_region_too():
    inside = "x = tl.load(p, mask=i < n)\nkernel[(4,)](x)\n"
    source = f"A = 1\n# EVOLVE-BLOCK-START\n{inside}# EVOLVE-BLOCK-END\n"
    assert "a bounds mask" in breach(source, source.replace("i < n", "i < m"), EditScope.STRICT)
    assert "the grid" in breach(source, source.replace("(4,)", "(8,)"), EditScope.STRICT)
    assert breach(source, source.replace("x =", "y ="), EditScope.STRICT) == ""
