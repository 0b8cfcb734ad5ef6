"""The built-in operators hold to `OperatorConformance`, and each to its own rule.

Invariants:
1. Seed proposes every seed of the task once, in order, and nothing else, whatever becomes of them.
2. Tune never repeats an instance at a fidelity, pending ones included, promotes the best screens
   only, drops failed ones, and ends.
3. Tune finds the planted optimum within the cost of 20 full evaluations.
4. Recombine's child parses, is no parent in disguise, and keeps ModelNew's contract.
"""

import ast
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Declined, Proposal
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.tunables import parse, render
from evolve.testing.operators import RELATIVES, OperatorConformance
from evolve.testing.parts import MemoryFacts, make_context
from evolve.testing.synthetic import (
    OPTIMUM,
    SEED_SOURCE,
    SyntheticEvaluator,
    constants,
    synthetic_task,
)
from operators import Recombine, Seed, Tune

BARE = "class ModelNew:\n    pass\n"
SCREEN_COST = 0.6  # of a full evaluation: both compile, which takes most of the time


class TestSeed(OperatorConformance):
    def make(self):
        return Seed()

    def sources(self):
        return RELATIVES[1:]  # the first is the task's seed, which an archive gets from Seed itself


class TestTune(OperatorConformance):
    def make(self):
        return Tune()


class TestRecombine(OperatorConformance):
    def make(self):
        return Recombine()


# Seed


@pytest.mark.parametrize("name", ["seed", "mine"])
def test_seeds_come_once_each_in_order_whatever_the_operator_is_called(name):
    facts = MemoryFacts(task=synthetic_task(seeds=(BARE, "# mine\n" + BARE, SEED_SOURCE)))
    operator = Seed()
    proposed = []
    while isinstance(answer := operator.propose(make_context(facts, operator=name)), Proposal):
        assert len(proposed) < 3
        proposed.append((answer.program.source, answer.note))
        facts.judge(answer.program, operator=name)
    assert proposed == [
        (BARE, "seed 1 of 3"),
        ("# mine\n" + BARE, "seed 2 of 3"),
        (SEED_SOURCE, "seed 3 of 3"),
    ]
    assert answer == Declined("every seed has been proposed")


def test_a_seed_that_is_also_the_users_baseline_is_proposed_all_the_same():
    facts = MemoryFacts(task=synthetic_task(seeds=(BARE,)))
    facts.judge(Program(BARE), operator="baseline")
    answer = Seed().propose(make_context(facts))
    assert isinstance(answer, Proposal)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (" \n", "seed 1 of task synthetic is empty"),
        ("class Model: pass", "seed 1 of task synthetic defines no ModelNew"),
        (BARE + "x = (", "seed 1 of task synthetic: line 3"),
        (BARE + 'TUNABLE = {"A": ()}', "seed 1 of task synthetic: tunable A, line 3"),
    ],
)
def test_a_seed_that_cannot_start_a_search_is_refused(source, said):
    facts = MemoryFacts(task=synthetic_task(seeds=(source,)))
    with pytest.raises(UsageError, match=said):
        Seed().propose(make_context(facts))


# Tune


def tuned(operator: Tune, *, budget: float, seed: int, source: str = SEED_SOURCE, **judge):
    """Facts, program and answers of a run of this operator only, ended by budget or refusal."""
    facts, program = MemoryFacts(evaluator=SyntheticEvaluator(**judge)), Program(source)
    parent = facts.judge(program)
    answers = []
    spent = 1.0
    while spent < budget:
        context = make_context(facts, [parent], sequence=1000 * seed + len(answers))
        answers.append(operator.propose(context))
        if not isinstance(answers[-1], Proposal):
            break
        facts.judge(program, answers[-1].assignment, fidelity=answers[-1].fidelity)
        spent += SCREEN_COST if answers[-1].fidelity is Fidelity.SCREEN else 1.0
    return facts, program, answers


def best_ratio(facts, program) -> float:
    full = [t for t in facts.trials(program.digest) if t.fidelity is Fidelity.SEARCH and t.ratio]
    return max(trial.ratio.value for trial in full)


def test_tune_finds_the_planted_optimum_within_twenty_evaluations():
    found = []
    for seed in range(12):
        source = SEED_SOURCE + f"# {seed}\n"
        facts, program, _ = tuned(Tune(), budget=20, seed=seed, source=source)
        full = [
            t for t in facts.trials(program.digest) if t.fidelity is Fidelity.SEARCH and t.ratio
        ]
        best = max(full, key=lambda trial: trial.ratio.value)
        found.append(constants(render(source, best.assignment)) == dict(OPTIMUM))
    assert sum(found) >= 11


def test_tune_drops_what_failed_its_screen():
    failures = {Status.COMPILE_ERROR: 0.2, Status.WRONG_VALUE: 0.2}
    facts, program, _ = tuned(Tune(), budget=30, seed=1, failures=failures)
    trials = facts.trials(program.digest)
    failed = [t.assignment for t in trials if t.status is not Status.CORRECT]
    assert failed
    assert not [t for t in trials if t.fidelity is Fidelity.SEARCH and t.assignment in failed]
    assert best_ratio(facts, program) > 3.0


def indifferent(choices: int) -> str:
    """A program of one tunable, which makes no difference."""
    return f"TUNABLE = {{'X': {tuple(range(choices))}}}\nX = 0\n" + BARE


def test_tune_screens_breadth_instances_before_it_measures_one():
    _, _, answers = tuned(Tune(breadth=6), budget=8, seed=2, source=indifferent(400))
    fidelities = [answer.fidelity for answer in answers]
    assert fidelities[:6] == [Fidelity.SCREEN] * 6
    assert fidelities[6] is Fidelity.SEARCH


@pytest.mark.parametrize(("reduction", "measured"), [(2, 6), (6, 2)])
def test_reduction_is_how_many_screens_earn_one_measurement(reduction, measured):
    operator = Tune(breadth=12, reduction=reduction)
    _, _, answers = tuned(operator, budget=100, seed=3, source=indifferent(400), noise=0.0)
    first = [answer.fidelity for answer in answers[: 13 + measured]]
    assert first[12:] == [Fidelity.SEARCH] * measured + [Fidelity.SCREEN]


def test_a_screen_that_is_clearly_slower_is_not_measured():
    facts, program, _ = tuned(Tune(), budget=100, seed=3, noise=0.0)
    screens, measured = {}, []
    for trial in facts.trials(program.digest):
        if trial.fidelity is Fidelity.SCREEN:
            screens[str(trial.assignment)] = trial.ratio
        elif trial.assignment:
            measured.append(trial)
            assert screens[str(trial.assignment)].high >= max(t.ratio.low for t in measured)


def test_tune_stops_at_its_limit():
    _, _, answers = tuned(Tune(limit=10), budget=100, seed=4)
    assert isinstance(answers[-1], Declined)
    assert "limit is 10" in answers[-1].reason
    assert len({str(a.assignment) for a in answers[:-1]}) == 9  # the parent's is the tenth


def test_a_small_space_is_explored_once_and_then_declined():
    source = 'TUNABLE = {"STAGES": (1, 2, 3, 4)}\nSTAGES = 1\n' + BARE
    facts, program, answers = tuned(Tune(), budget=100, seed=5, source=source)
    assert answers[-1] == Declined("space explored")
    assert best_ratio(facts, program) == pytest.approx(max_ratio(program), rel=0.02)


def max_ratio(program: Program) -> float:
    judge, facts = SyntheticEvaluator(noise=0.0), MemoryFacts
    ratios = []
    for assignment in parse(program.source).assignments():
        elite = facts(evaluator=judge).judge(program, assignment)
        ratios.append(2.718281828**elite.fitness.value)
    return max(ratios)


def test_a_handful_of_choices_is_measured_without_screens():
    source = 'TUNABLE = {"STAGES": (1, 3)}\nSTAGES = 1\n' + BARE
    _, _, answers = tuned(Tune(), budget=100, seed=6, source=source)
    assert [getattr(a, "fidelity", a) for a in answers] == [
        Fidelity.SEARCH,
        Declined("space explored"),
    ]


def test_a_program_without_tunables_is_declined():
    _, _, answers = tuned(Tune(), budget=9, seed=7, source=BARE)
    assert answers == [Declined("the program has no open tunables")]


@given(st.integers(0, 1000), st.integers(1, 6))
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_concurrent_asks_never_repeat_an_instance(seed, slots):
    """Verdicts arrive late and out of order; every ask sees what is pending."""
    facts, program, rng = MemoryFacts(), Program(SEED_SOURCE), random.Random(seed)
    parent = facts.judge(program)
    pending: list[Proposal] = []
    asked = []
    for number in range(40):
        while len(pending) >= slots:
            done = pending.pop(rng.randrange(len(pending)))
            facts.judge(program, done.assignment, fidelity=done.fidelity)
        answer = Tune().propose(make_context(facts, [parent], sequence=number))
        if not isinstance(answer, Proposal):
            break
        asked.append((str(sorted(answer.assignment.items())), answer.fidelity))
        facts.pend(program, answer.assignment, answer.fidelity)
        pending.append(answer)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("field", ["breadth", "reduction", "limit"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
def test_a_wrong_setting_of_tune_is_refused_by_name(field, value):
    with pytest.raises(UsageError, match=rf"operators\.\*\.{field} must be"):
        Tune(**{field: value})


# Recombine

PYTHON_PARENTS = (
    """\
TUNABLE = {"A": (1, 2)}
A = 1

def scale(x):  # times
    return x * A

def shift(x):
    return x + 1

class ModelNew:
    def forward(self, x):
        return shift(scale(x))
""",
    """\
TUNABLE = {"A": (2, 4), "B": (1, 2)}
A = 4
B = 1

def scale(x):
    return x << A  # shifted

def shift(x):
    return x + B

class ModelNew:
    def forward(self, x):
        return scale(shift(x))
""",
)

CPP_PARENTS = (
    '''\
TUNABLE = {"ROWS": (1, 2)}
SOURCE = r"""
#include <cmath>
constexpr int ROWS = 1;
static float total(const float* x, int n) {
  float s = 0;  // } not a brace
  for (int i = 0; i < n; ++i) s += x[i];
  return s;
}
void run(float* y) { y[0] = 1; }
"""
class ModelNew:
    pass
''',
    '''\
TUNABLE = {"ROWS": (2, 8)}
SOURCE = """
#include <cmath>
#include <numeric>
constexpr int ROWS = 8;
constexpr int WIDE = 8;
static float total(const float *x,
                   int n) {
  return std::accumulate(x, x + n, 0.0f);
}
void run(float* y) { y[0] = WIDE; }
"""
class ModelNew:
    pass
''',
)


def child_of(first: str, second: str, seed: int):
    facts = MemoryFacts()
    parents = [facts.judge(Program(source)) for source in (first, second)]
    return Recombine().propose(make_context(facts, parents, sequence=seed))


def test_a_function_moves_with_its_comments_and_the_rest_stays():
    child = child_of(*PYTHON_PARENTS, seed=0)
    seeds = range(20)
    sources = {child_of(*PYTHON_PARENTS, seed=seed).program.source for seed in seeds}
    assert any("return x << A  # shifted" in source for source in sources)
    assert all("return x + B" not in source for source in sources)  # B is unknown to the receiver
    assert isinstance(child, Proposal)


def test_the_child_has_both_parents_choices_and_one_of_their_values():
    children = [child_of(*PYTHON_PARENTS, seed=seed) for seed in range(20)]
    assert {parse(child.program.source)["A"].choices for child in children} == {(1, 2, 4)}
    assert {child.assignment["A"] for child in children} == {1, 4}


def test_a_cpp_function_moves_with_what_it_includes():
    child = child_of(*CPP_PARENTS, seed=0)
    assert "std::accumulate(x, x + n, 0.0f)" in child.program.source
    assert "#include <numeric>" in child.program.source
    assert child.program.source.count("#include <cmath>") == 1
    assert child.note == "took static float total ( const float * x , int n )"


def test_a_cpp_function_that_needs_what_the_receiver_lacks_stays_home():
    for seed in range(10):
        assert "WIDE" not in child_of(*CPP_PARENTS, seed=seed).program.source


def test_layout_and_comments_are_no_difference():
    twin = PYTHON_PARENTS[0].replace("  # times", "").replace("x * A", "(x*A)")
    assert isinstance(child_of(PYTHON_PARENTS[0], twin, seed=0), Declined)


def test_a_child_that_is_known_already_is_declined():
    child = child_of(*CPP_PARENTS, seed=0)
    facts = MemoryFacts()
    parents = [facts.judge(Program(source)) for source in CPP_PARENTS]
    facts.judge(child.program, child.assignment)
    answer = Recombine().propose(make_context(facts, parents, sequence=0))
    assert answer == Declined("the child is known already")


BODIES = ["return x", "return x + 1", "return helper(x)", "y = x * A\n    return y", '"""doc"""']


@st.composite
def modules(draw) -> str:
    """A module with some of a family of functions, and C++ functions in a string."""
    lines = []
    if draw(st.booleans()):
        lines.append(f"TUNABLE = {{'A': {draw(st.sampled_from([(1, 2), (2, 1, 4), (1, 8)]))}}}")
    lines.append("A = 1")
    for name in draw(st.lists(st.sampled_from(["helper", "f", "g"]), unique=True)):
        comment = draw(st.sampled_from(["", "  # é 'x"]))
        lines.append(f"def {name}(x):{comment}\n    {draw(st.sampled_from(BODIES))}")
    values = draw(st.lists(st.sampled_from(["1", "A1", "'}'", '"\\n"', "g()"]), max_size=3))
    code = "\n".join(
        f"int c{number}(int a) {{ return {value}; }}" for number, value in enumerate(values)
    )
    literal = draw(st.sampled_from([repr, lambda text: f"r'''{text}\n'''"]))
    lines.append(f"CPP = {literal(code)}")
    lines.append(f"class ModelNew:\n    def forward(self, x):\n        return {draw(_CALLS)}(x)")
    return "\n\n".join(draw(st.permutations(lines))) + "\n"


_CALLS = st.sampled_from(["f", "g", "abs"])


@given(modules(), modules(), st.integers(0, 100))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_child_parses_and_is_no_parent_in_disguise(first, second, seed):
    child = child_of(first, second, seed)
    if isinstance(child, Declined):
        return
    source = child.program.source
    assert normalised_digest(source) not in {normalised_digest(first), normalised_digest(second)}
    assert _contract(render(source, child.assignment)) == _contract(first)


def _contract(source: str) -> list[str]:
    """Names and arguments of what ModelNew defines."""
    (model,) = (n for n in ast.parse(source).body if getattr(n, "name", "") == "ModelNew")
    return [part.name + ast.unparse(part.args) for part in model.body]


def test_a_function_moves_although_its_pragma_has_words_that_the_donor_uses_elsewhere():
    def cpp(body):
        return f"""
CPP = r'''
#include <vector>
static float row(const float* x, long n) {{
{body}
}}
static float reduction = 0;
'''


class ModelNew:
    pass
"""

    plain = "  float s = 0; for (long i = 0; i < n; ++i) s += x[i]; return s;"
    hinted = "  float s = 0;\n#pragma omp simd reduction(+ : s)\n" + plain.removeprefix(
        "  float s = 0;"
    )
    facts = MemoryFacts()
    sources = [cpp(plain).replace("static float reduction = 0;", ""), cpp(hinted)]
    elites = [facts.judge(Program(source)) for source in sources]
    child = Recombine().propose(make_context(facts, elites, sequence=0))
    assert "#pragma omp simd" in child.program.source
