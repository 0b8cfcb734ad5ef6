"""From replies to programs.

Invariants:
1. Nothing that a model can say makes the reader raise, or take longer than it should.
2. A program is taken as it stands or not at all: what a reader would not call the answer (a part of
   it, a draft, an example in prose, what reasoning tried) is never taken for it.
3. Each way to miss has its own status.
"""

import ast
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.model import ReplyStatus
from operators.prompting.replies import MAX_REPLY_CHARS, read_program

PROGRAM = 'import torch\n\nBLOCK = 64\n\n\nclass ModelNew:\n    """One."""\n'
OTHER = "class ModelNew:\n    other = 1\n"


def fenced(code: str, tag: str = "python", mark: str = "```") -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fenced(PROGRAM),
        f"Here it is:\n\n{fenced(PROGRAM)}\nIt should be faster.",
        fenced(PROGRAM, tag=""),
        fenced(PROGRAM, tag="py title=kernel.py"),
        fenced(PROGRAM, tag="Python"),
        fenced(PROGRAM, mark="~~~"),
        fenced(PROGRAM, mark="`````"),
        fenced(PROGRAM).replace("\n", "\r\n"),
        "1. The program:\n" + "".join(f"   {line}\n" for line in fenced(PROGRAM).splitlines()),
        f"First the idea:\n{fenced('x = 1' + chr(10))}then all of it:\n{fenced(PROGRAM)}",
        f"{fenced(PROGRAM)}Run it with:\n{fenced('pip install x' + chr(10), tag='bash')}",
        f"<think>\n{fenced(OTHER)}no, better:\n</think>\n{fenced(PROGRAM)}",
        f"maybe this:\n{fenced(OTHER)}\n</think>\n{fenced(PROGRAM)}",
        f"````markdown\n{fenced(PROGRAM)}````\n",
        f"```markdown\n{fenced(PROGRAM)}```\n",
        f"Use ``` to fence. {chr(10)}{fenced(PROGRAM)}",
        f"```python\nclass ModelNew:\n    draft = (\n\nBetter:\n{fenced(PROGRAM)}",
    ],
)
def test_one_program_is_found_whatever_stands_around_it(reply):
    found = read_program(reply)
    assert (found.status, found.source) == (ReplyStatus.PROGRAM, PROGRAM)


def test_a_program_with_fences_of_its_own_is_taken_whole():
    program = 'DOC = """\n```python\nx = 1\n```\n\n```\ny\n```\n"""\n\n\n' + PROGRAM
    assert read_program(f"So:\n{fenced(program)}Done.").source == program


def test_of_several_programs_the_last_counts_and_that_is_noted():
    found = read_program(fenced(OTHER) + fenced(PROGRAM))
    assert (found.status, found.source) == (ReplyStatus.PROGRAM, PROGRAM)
    assert found.note == "the last of 2 programs in the reply"


def test_a_program_that_is_spread_over_blocks_is_not_guessed_together():
    kernel = "def scale(x):\n    return x * 2\n"
    model = "class ModelNew:\n    def forward(self, x):\n        return scale(x)\n"
    found = read_program(fenced(kernel) + fenced(model))
    assert found.status is ReplyStatus.SEVERAL_BLOCKS
    assert "scale" in found.note


def test_an_example_of_use_beside_a_program_is_no_part_of_it():
    usage = "model = ModelNew()\nout = model.forward(x)\n"
    assert read_program(fenced(PROGRAM) + fenced(usage)).source == PROGRAM


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("", ReplyStatus.EMPTY),
        (" \n\t", ReplyStatus.EMPTY),
        ("<think>\nendless", ReplyStatus.EMPTY),
        ("I cannot do that.", ReplyStatus.NO_CODE),
        ("The class ModelNew could be faster.", ReplyStatus.NO_CODE),
        (f"Here:\n{PROGRAM}", ReplyStatus.NO_CODE),
        (fenced("def f(x):\n    return x\n"), ReplyStatus.NO_MODEL),
        (fenced("void f() {}\n", tag="cpp"), ReplyStatus.NO_MODEL),
        (fenced("class ModelNew:\n    x = (\n"), ReplyStatus.SYNTAX_ERROR),
        (fenced("class ModelNew:\n    x = '\udc00'\n"), ReplyStatus.SYNTAX_ERROR),
        (fenced("class ModelNew:\n    x = '\0'\n"), ReplyStatus.SYNTAX_ERROR),
        (
            fenced("class ModelNew:\n    x = " + "(" * 300 + ")" * 300 + "\n"),
            ReplyStatus.SYNTAX_ERROR,
        ),
        (fenced("@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n", tag="diff"), ReplyStatus.DIFF),
        ("--- a/kernel.py\n+++ b/kernel.py\n@@ -1 +1 @@\n-x\n+y\n", ReplyStatus.DIFF),
        ("<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n", ReplyStatus.DIFF),
        (f"```python\n{PROGRAM}    broken = (\n", ReplyStatus.TRUNCATED),
        ("x" * (MAX_REPLY_CHARS + 1), ReplyStatus.NO_CODE),
    ],
)
def test_each_way_to_miss_has_its_own_status(reply, status):
    assert read_program(reply).status is status


def test_a_missing_last_fence_is_forgiven_where_the_program_is_whole():
    found = read_program(f"So:\n```python\n{PROGRAM}")
    assert found.status is ReplyStatus.PROGRAM
    assert found.note == "taken without its closing fence"


def test_a_bare_program_is_taken():
    assert read_program(PROGRAM).source == PROGRAM


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (f"```python\n{PROGRAM}", ReplyStatus.TRUNCATED),
        (PROGRAM, ReplyStatus.TRUNCATED),
        ("I will", ReplyStatus.TRUNCATED),
        ("", ReplyStatus.TRUNCATED),
        (fenced(PROGRAM) + "It is fas", ReplyStatus.PROGRAM),
    ],
)
def test_of_a_cut_reply_only_a_closed_block_is_taken(reply, status):
    assert read_program(reply, cut=True).status is status


PIECES = st.sampled_from(
    ["```", "```python", "~~~", "````", "```diff", "\n", PROGRAM, OTHER, "x = (", '"""', "    ",
     "<think>", "</think>", "class ModelNew:", "@@ -1 +1 @@", "prose", "\r\n", "\0", "\ud800"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES, max_size=24).map("\n".join)), st.booleans())
def test_no_reply_makes_the_reader_raise_and_what_it_takes_is_a_program(reply, cut):
    found = read_program(reply, cut=cut)
    if found.status is ReplyStatus.PROGRAM:
        ast.parse(found.source)
        assert "ModelNew" in found.source
        lines = [line.strip() for line in reply.replace("\r\n", "\n").split("\n")]
        assert all(line.strip() in lines for line in found.source.split("\n") if line.strip())
    else:
        assert isinstance(found.status, ReplyStatus)


@given(st.integers(0, len(fenced(PROGRAM)) - 5))
def test_no_prefix_of_a_reply_is_taken_for_the_whole(length):
    reply = fenced(PROGRAM)
    assert read_program(reply[:length], cut=True).status is not ReplyStatus.PROGRAM


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "reply",
    [
        "```\n" * 90_000,
        "```python\n" * 38_000,
        "```python\nclass ModelNew:\n" * 14_000,
        "```" + " x " * 120_000,
        "(" * 390_000,
        "```python\nclass ModelNew: x = " + "(" * 390_000,
        "```python\nclass ModelNew: x = " + "-" * 390_000,
    ],
)
def test_hostile_replies_are_read_in_seconds(reply):
    start = time.process_time()
    assert read_program(reply).status is not ReplyStatus.PROGRAM
    assert time.process_time() - start < 5
