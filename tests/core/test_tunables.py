"""Tunables: read from a text, written into it, and nothing else of the text is touched.

Invariants:
1. render(s, defaults) == s, and render(render(s, a), a) == render(s, a).
2. parse(render(s, a)) is the space of s with the defaults a.
3. An edit changes the declared literal only: comments, layout and other numbers survive.
4. A frozen source is valid Python without a declaration, and says the same otherwise.
5. A wrong declaration is a UsageError that names tunable, line and remedy.
"""

import ast
import contextlib
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.source.tunables import Space, Tunable, freeze, parse, render

PYTHON = '''\
"""Docstring: BLOCK = 64."""
import triton.language as tl

TUNABLE = {"BLOCK": (32, 64, 128), "FAST": (False, True), "MODE": ["a", "b"]}  # open

BLOCK = 64  # threads; BLOCK = 64 is what eager takes
FAST: tl.constexpr = False
MODE = tl.constexpr('a')   # quotes stay


class ModelNew:
    pass
'''

CPP = '''\
TUNABLE = {"TILE": (8, 16), "UNROLL": (2, 4), "SCALE": (0.5, 1.0), "REAL": ("float", "double")}

CPP_SOURCE = r"""
// constexpr int TILE = 16;
#define UNROLL 4  // so many rows
#define REAL float
static constexpr std::size_t TILE = 8;  /* TILE = 8 */
const float SCALE = 0.5f;
"""
'''

AUTOTUNE = """\
import triton


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=4),  # small
        triton.Config({'BLOCK': 128},   num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def softmax(x, n, BLOCK: tl.constexpr):
    pass
"""


def test_module_constants_are_read_in_order_of_declaration():
    assert parse(PYTHON) == Space(
        (
            Tunable("BLOCK", 64, (32, 64, 128)),
            Tunable("FAST", False, (False, True)),
            Tunable("MODE", "a", ("a", "b")),
        )
    )


def test_a_source_without_declaration_has_an_empty_space():
    space = parse("x = 1\n")
    assert (space, space.size, space.defaults) == (Space(), 1, {})


def test_rendering_edits_the_literals_and_nothing_else():
    rendered = render(PYTHON, {"BLOCK": 128, "FAST": True, "MODE": "b"})
    expected = (
        PYTHON.replace("BLOCK = 64  #", "BLOCK = 128  #")
        .replace("constexpr = False", "constexpr = True")
        .replace("constexpr('a')", "constexpr('b')")
    )
    assert rendered == expected


def test_constants_of_a_cpp_string_are_read_and_written_at_their_place():
    assert parse(CPP).defaults == {"TILE": 8, "UNROLL": 4, "SCALE": 0.5, "REAL": "float"}
    rendered = render(CPP, {"TILE": 16, "UNROLL": 2, "SCALE": 1.0, "REAL": "double"})
    expected = (
        CPP.replace("size_t TILE = 8", "size_t TILE = 16")
        .replace("UNROLL 4", "UNROLL 2")
        .replace("SCALE = 0.5f", "SCALE = 1.0f")
        .replace("REAL float", "REAL double")
    )
    assert rendered == expected


@pytest.mark.filterwarnings("ignore")  # for \\d, which Python itself warns of
@pytest.mark.parametrize(
    "literal",
    [
        '"int a;\\n\\tconstexpr int TILE = 8;\\n"',
        '"int a; \\"" "constexpr int TI" r\'LE = \' "8;"',
        '"""\\x41 \\u00e9 \\N{BULLET} é\n#define TILE 8\n"""',
        '("a;"  # it\'s a comment\n "\\\nconst int TILE{8};")',
        "'\\d constexpr unsigned long TILE = 8ul;'",
    ],
)
def test_escapes_and_joined_literals_do_not_shift_the_edit(literal):
    source = f'é = "é"; TUNABLE = {{"TILE": (8, 16)}}\nCPP = {literal}\n'
    text = _value_of(source, "CPP")
    rendered = render(source, {"TILE": 16})
    assert _value_of(rendered, "CPP") == text.replace("8", "16")
    assert render(rendered, {"TILE": 8}) == source


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_line_ending_that_python_reads_is_kept(ending):
    source = CPP.replace("\n", ending)
    assert render(source, {"TILE": 16}) == CPP.replace("TILE = 8;  ", "TILE = 16;  ").replace(
        "\n", ending
    )


def test_an_autotune_list_is_one_tunable_and_only_the_chosen_config_remains():
    (tunable,) = parse(AUTOTUNE)
    assert tunable.name == "softmax.config"
    assert tunable.default is None
    assert tunable.choices == (
        "triton.Config({'BLOCK': 64}, num_warps=4)",
        "triton.Config({'BLOCK': 128}, num_warps=8)",
    )
    rendered = render(AUTOTUNE, {"softmax.config": tunable.choices[1]})
    assert "configs=[triton.Config({'BLOCK': 128},   num_warps=8)]," in rendered
    assert "num_warps=4" not in rendered
    assert parse(rendered).defaults == {"softmax.config": tunable.choices[1]}
    assert render(rendered, parse(rendered).defaults) == rendered


def test_an_unnamed_tunable_stays_as_written():
    assert render(PYTHON, {}) == PYTHON
    assert render(AUTOTUNE, {}) == AUTOTUNE


def test_freezing_drops_the_declaration_with_its_line():
    frozen = freeze(PYTHON, {"BLOCK": 32})
    assert "TUNABLE" not in frozen
    assert frozen == PYTHON.replace(PYTHON.splitlines()[3] + "\n\n", "").replace(
        "BLOCK = 64  #", "BLOCK = 32  #"
    )


def test_freezing_keeps_what_shares_the_line_and_what_the_source_reads():
    assert freeze('TUNABLE = {"A": (1, 2)}; A = 1\n', {"A": 2}) == "pass; A = 2\n"
    read = 'TUNABLE = {"A": (1, 2)}\nA = 1\nprint(TUNABLE)\n'
    assert freeze(read, {}) == read


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('TUNABLE = {"A": (1, 2)}\nA = 3\n', ["tunable A, line 2", "3 is not among", "add it"]),
        ('TUNABLE = {"A": (1, 2)}\nA = True\n', ["tunable A, line 2", "True is not among"]),
        ('TUNABLE = {"A": (1, 2)}\n', ["tunable A, line 1", "no module constant", "add A ="]),
        ('TUNABLE = {"A": (1, 2)}\nA = 1\nA = 2\n', ["tunable A, line 3", "lines 2, 3", "once"]),
        ('TUNABLE = {"A": (1, 2)}\nA = 1\nif A:\n    A = 2\n', ["bound on lines 2, 4"]),
        ('TUNABLE = {"A": (1, 2)}\nA = f()\n', ["tunable A, line 2", "f() is not a literal"]),
        ('TUNABLE = {"A": (1, f())}\nA = 1\n', ["tunable A, line 1", "f() is not a literal"]),
        ('TUNABLE = {"A": ()}\nA = 1\n', ["tunable A, line 1", "no choices", "list its values"]),
        ('TUNABLE = {"A": 1}\nA = 1\n', ["tunable A", "not a tuple"]),
        ('TUNABLE = {"A": (1, 2.0)}\nA = 1\n', ["mixes float and int", "one type"]),
        ('TUNABLE = {"A": (1, 1)}\nA = 1\n', ["repeats a choice"]),
        ('TUNABLE = {"A": (1,), "A": (1,)}\nA = 1\n', ["tunable A", "declared twice"]),
        ("TUNABLE = make()\n", ["tunable TUNABLE, line 1", "not a dict literal"]),
        ("TUNABLE = {f: (1,)}\n", ["key that is not a name"]),
        ('TUNABLE = {"A": (1, 9223372036854775808)}\nA = 1\n', ["too large", "64 bits"]),
        ('TUNABLE = {"A": (1,)}\nS = "const int A = 1; const int A = 1;"\n', ["defined 2 times"]),
        ('TUNABLE = {"A": (8,)}\nS = "const int A = 010;"\n', ["010 is not a literal"]),
        ('TUNABLE = {"A": (1,)}\nS = "#define A (1)"\n', ["(1) is not a literal", "write"]),
        ('TUNABLE = {"A": ("x y",)}\nS = "#define A x"\n', ["'x y' is no C++ word"]),
        ("x = (\n", ["not valid Python", "mend"]),
        ("x = 1\0", ["not valid Python"]),
    ],
)
def test_a_wrong_declaration_says_what_where_and_what_to_do(source, said):
    with pytest.raises(UsageError) as error:
        parse(source)
    for words in said:
        assert words in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("NO", 1), ("BLOCK", 65), ("BLOCK", 64.0)])
def test_an_assignment_outside_the_space_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"tunable {name}"):
        render(PYTHON, {name: value})


def test_neighbours_are_one_step_away_in_one_tunable():
    space = parse(PYTHON)
    base = {"BLOCK": 32, "FAST": False, "MODE": "a"}
    assert space.neighbours(base) == [
        base | {"BLOCK": 64},
        base | {"FAST": True},
        base | {"MODE": "b"},
    ]


def test_the_size_counts_the_assignments():
    space = parse(PYTHON)
    assert space.size == 12 == len({tuple(a.items()) for a in space.assignments()})


ON_A_BUSY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMES = st.lists(
    st.sampled_from(["A", "B", "C_1", "tile", "größe"]), unique=True, min_size=1, max_size=4
)
NUMBERS = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), unique=True, min_size=1, max_size=5),
    st.lists(st.floats(-1e9, 1e9), unique=True, min_size=1, max_size=5),
    st.just([False, True]),
)
WORDS = st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=4)
FILLER = st.sampled_from(["", "  ", " # A = 1 'quote", "\t#é€"])


@st.composite
def sources(draw) -> str:
    """A module with tunables in Python and in C++ text, between comments and odd layout."""
    names = draw(NAMES)
    python, cpp, domains = [], [], {}
    for name in names:
        in_python = draw(st.booleans())
        choices = draw(st.one_of(NUMBERS, WORDS) if in_python else NUMBERS)
        domains[name] = tuple(choices)
        value = draw(st.sampled_from(choices))
        if in_python:
            form = draw(st.sampled_from(["{}={!r}", "{} = ({!r})", "{}: int = {!r}"]))
            python.append(form.format(name, value) + draw(FILLER))
        else:
            written = str(value).lower() if isinstance(value, bool) else value
            form = draw(st.sampled_from(["constexpr auto {} = {};", "#define {} {}"]))
            cpp.append(form.format(name, written))
    text = "\n".join(['// A = 1; "it\'s"', *cpp, ""])
    literal = draw(st.sampled_from([repr, lambda text: f'r"""{text}"""']))(text)
    blocks = draw(st.permutations([f"TUNABLE = {domains!r}", f"CPP = {literal}", *python]))
    return draw(st.sampled_from(["\n", "\n\n# A = 1\n", "\x0c\n"])).join([*blocks, ""])


@ON_A_BUSY_MACHINE
@given(sources(), st.integers(0, 2**32))
@example(AUTOTUNE, 0)
@example(PYTHON, 1)
@example(CPP, 2)
def test_rendering_round_trips(source, seed):
    space = parse(source)
    assert render(source, space.defaults) == source
    assignment = space.sample(random.Random(seed))
    rendered = render(source, assignment)
    assert render(rendered, assignment) == rendered
    assert parse(rendered).defaults == assignment
    if None not in (tunable.default for tunable in space):
        assert [(t.name, t.choices) for t in parse(rendered)] == [
            (t.name, t.choices) for t in space
        ]
        assert render(rendered, space.defaults) == render(source, space.defaults)


@ON_A_BUSY_MACHINE
@given(sources(), st.integers(0, 2**32))
def test_a_frozen_source_is_the_rendered_one_without_the_declaration(source, seed):
    assignment = parse(source).sample(random.Random(seed))
    frozen = freeze(source, assignment)
    assert "TUNABLE" not in frozen
    kept = [
        ast.dump(node)
        for node in ast.parse(render(source, assignment)).body
        if "TUNABLE" not in ast.dump(node)
    ]
    assert [ast.dump(node) for node in ast.parse(frozen).body] == kept


@ON_A_BUSY_MACHINE
@given(st.text())
def test_any_text_at_all_is_parsed_or_refused(text):
    with contextlib.suppress(UsageError):
        parse(text)


def _value_of(source: str, name: str) -> str:
    scope = {}
    exec(source, scope)
    return scope[name]
