"""References that return a tensor which is there before the call: an argument, a weight, a buffer.

Invariants: a candidate with the reference's own text is correct, and so is one that returns a copy;
one that returns another tensor, or changes the one that it returns, is not; only outputs that share
memory with an input in the reference may do so in a candidate.
"""

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.judge.audit import conditions_of
from tests.worker.judging import task_source
from tests.worker.test_practice import all_judged, judged, own_text

X = "[torch.randn(8, 16)]"
WEIGHT = "self.weight = nn.Parameter(torch.randn(9, 16))"
SCALED = task_source(
    "(x * self.scale, self.scale)", X, setup="self.scale = nn.Parameter(torch.ones(16))"
)
TIED = task_source(
    "(self.emb(ids) @ self.head.weight.T, self.head.weight)",
    "[torch.randint(0, 9, (3, 4))]",
    arguments="ids",
    setup="self.emb = nn.Embedding(9, 8); self.head = nn.Linear(8, 9, bias=False); "
    "self.head.weight = self.emb.weight",
)
ROWS = task_source("(x @ self.weight.T, self.weight[2:5].T)", X, setup=WEIGHT)
TABLES = task_source(
    "(x * self.cos[:8], self.cos[:8], self.sin[:8])",
    X,
    setup="self.register_buffer('cos', torch.randn(64, 16), persistent=False); "
    "self.register_buffer('sin', torch.randn(64, 16), persistent=False)",
)
PLAIN = task_source("(x * self.cos, self.cos)", X, setup="self.cos = torch.linspace(0, 1, 16)")
CACHED = task_source(
    "(x * table(16), table(16))",
    X,
    extra="import functools\n\n@functools.cache\ndef table(n):\n    return torch.linspace(1, 2, n)",
)
STEPPED = task_source(
    "(x @ self.w.sub_(0.1 * x.mean(0)), self.w)",
    X,
    setup="self.w = nn.Parameter(torch.randn(16))",
)
CLONED = task_source("(x, x.clone())", X)
PAIR = task_source("(x * 2, x.T, x[1:3])", X)
NUMBERS = task_source(
    "(x[self.order], self.order, self.gain)",
    X,
    setup="self.register_buffer('order', torch.randperm(8)); "
    "self.gain = nn.Parameter(torch.tensor(2.5))",
)
TASKS = {
    "a parameter": SCALED,
    "a tied weight": TIED,
    "a view of a parameter": ROWS,
    "parts of tables": TABLES,
    "a plain attribute": PLAIN,
    "a cached constant": CACHED,
    "a parameter that was stepped": STEPPED,
    "an argument and a copy": CLONED,
    "views of an argument": PAIR,
    "integers and a number": NUMBERS,
}


def test_the_reference_itself_is_a_correct_candidate(worker):
    found = all_judged(worker, {name: (task, own_text(task)) for name, task in TASKS.items()})
    assert {name: verdict.feedback for name, verdict in found.items()
            if verdict.status is not Status.CORRECT} == {}  # fmt: skip


COPIES = {
    "of a parameter": (SCALED, (", self.scale)", ", self.scale.clone())")),
    "made once": (
        SCALED,
        (
            "return (x * self.scale, self.scale)",
            (
                "self.own = getattr(self, 'own', None)\n"
                "        self.own = self.scale.clone() if self.own is None else self.own\n"
                "        return (x * self.scale, self.own)"
            ),
        ),
    ),
    "of a tied weight": (TIED, (", self.head.weight)", ", self.emb.weight + 0)")),
    "of a view": (ROWS, ("self.weight[2:5].T)", "self.weight[2:5].T.contiguous())")),
    "of an argument": (PAIR, ("x.T,", "x.T.clone(),")),
}


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_as_good_as_the_tensor(worker, kind):
    task, change = COPIES[kind]
    verdict = judged(worker, task, own_text(task, change))
    assert verdict.status is Status.CORRECT, verdict.feedback


WRONG = {
    "a stale copy": (
        SCALED,
        ("torch.ones(16))", "torch.ones(16)); self.old = torch.ones(16)"),
        ("x * self.scale, self.scale", "x * self.scale, self.old"),
        Status.WRONG_VALUE,
    ),
    "another tensor": (SCALED, (", self.scale)", ", x[0] + 0)"), Status.WRONG_VALUE),
    "an argument instead": (SCALED, (", self.scale)", ", x[0])"), Status.ALIASED),
    "other rows": (ROWS, ("weight[2:5]", "weight[3:6]"), Status.WRONG_VALUE),
    "another buffer": (TABLES, ("self.sin[:8]", "self.cos[:8]"), Status.WRONG_VALUE),
    "a weight changed for the output": (
        SCALED, ("(x * self.scale,", "(x * self.scale.mul_(1.5) / 1.5,"), Status.WRONG_VALUE
    ),
    "the step left out of the returned one": (
        STEPPED,
        ("self.w.sub_(0.1 * x.mean(0)), self.w)", "self.w.sub_(0.1 * x.mean(0)), self.w + 1)"),
        Status.WRONG_VALUE,
    ),
    "an argument where a copy is due": (CLONED, ("x.clone()", "x"), Status.ALIASED),
    "another output in an argument": (PAIR, ("x * 2,", "x.mul_(2),"), Status.ALIASED),
    "one result for all calls": (
        SCALED,
        ("torch.ones(16))", "torch.ones(16)); self.out = None"),
        (
            "return (x * self.scale,",
            ("self.out = torch.empty_like(x) if self.out is None else self.out\n"
            "        return (torch.mul(x, self.scale, out=self.out),"),
        ),
        Status.ALIASED,
    ),
}  # fmt: skip


def test_another_tensor_or_another_place_is_refused(worker):
    pairs = {name: (task, own_text(task, *change)) for name, (task, *change, _) in WRONG.items()}
    found = all_judged(worker, pairs)
    assert {
        name: (verdict.status, verdict.feedback)
        for name, verdict in found.items()
        if verdict.status is not WRONG[name][-1]
    } == {}


@pytest.mark.parametrize("task", [SCALED, STEPPED])
def test_returned_tensors_are_judged_in_every_call_of_a_block(worker, task):
    verdict = judged(worker, task, own_text(task), "screen")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios["eager"].value > 0


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (SCALED, "returns output 1 in memory that all calls share"),
        (PAIR, "returns outputs 1, 2 in the memory of its inputs"),
        (STEPPED, "returns output 1 in the memory of its inputs"),
    ],
)
def test_the_audit_says_which_outputs_are_no_new_tensors(task, words):
    said = conditions_of(load_task(Task(name="t", source=task)))
    assert any(words in line for line in said), said


OVERWRITTEN = {
    "an attribute": task_source(
        "torch.add(x, 1, out=self.out)", X, setup="self.out = torch.empty(8, 16)"
    ),
    "a global": task_source(
        "torch.add(x, 1, out=OUT)", X, extra="OUT = torch.empty(8, 16)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OVERWRITTEN)
def test_an_outcome_that_the_next_call_overwrites_is_refused_with_the_reason(kind):
    with pytest.raises(UsageError, match="return the same memory, so the second overwrites"):
        conditions_of(load_task(Task(name="t", source=OVERWRITTEN[kind])))
