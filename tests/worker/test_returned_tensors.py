"""References that return a tensor which is there before the call: an argument, a weight, a buffer.

Invariants: a candidate with the reference's own text is correct, and so is one that returns a copy;
one that returns another tensor, or changes the one that it returns, is not; only outputs that share
memory with an input in the reference may do so in a candidate. Memory that a call of the reference
writes to is none that all calls share, whatever values it writes.
"""

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.ipc.pytree import flatten
from evolve.worker.judge.audit import conditions_of
from evolve.worker.reference.conditions import Conditions
from tests.worker.judging import loaded_case, task_source
from tests.worker.test_practice import all_judged, judged, own_text

X = "[torch.randn(8, 16)]"
FIXED = "[torch.linspace(-1.03, 1, 128).view(8, 16).sin()]"
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


@pytest.mark.slow  # others around it are judged
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


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", [STEPPED, SCALED])
def test_returned_tensors_are_judged_in_every_call_of_a_block(worker, task):
    verdict = judged(worker, task, own_text(task), "screen")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios["eager"].value > 0


CHOSEN = task_source(
    "(self.table[int(x.sum(0).argmax())], x.sum(0))",
    "[torch.rand(128, 64)]",
    setup="self.table = nn.Parameter(torch.randn(64, 4096))",
)


def test_shared_memory_that_each_call_writes_to_is_refused_with_the_remedy(worker):
    written = own_text(
        CHOSEN,
        ("(self.table[", "(self.out.copy_(self.table["),
        ("argmax())]", "argmax())])"),
        ("4096))", "4096)); self.out = torch.empty(4096)"),
    )
    verdict = judged(worker, CHOSEN, written, "screen")
    assert verdict.status is Status.ALIASED, verdict.feedback
    assert "return the shared memory unchanged, or a new tensor" in verdict.feedback


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
    "a global, by the same inputs with each seed": task_source(
        "torch.cumsum(x, 1, out=OUT)", FIXED, extra="OUT = torch.empty(8, 16)"
    ),
    "a global, by equal integers": task_source(
        "torch.add(x, 1, out=OUT)", "[torch.ones(8, 16, dtype=torch.int)]",
        extra="OUT = torch.empty(8, 16, dtype=torch.int)",
    ),
    "a global, by random numbers": task_source(
        "(x * 2, OUT.normal_())", X, extra="OUT = torch.empty(8, 16)"
    ),
    "a global, unseen by torch": task_source(
        "written(x)", FIXED,
        extra="OUT = torch.empty(8, 16)\n\ndef written(x):\n"
        "    OUT.numpy()[:] = x.numpy().cumsum(1)\n    return OUT",
    ),
    "rows of a global": task_source(
        "torch.cumsum(x, 1, out=OUT[2:10])", FIXED, extra="OUT = torch.zeros(12, 16)"
    ),
    "an attribute made by the first call": task_source(
        "own(self, x)", FIXED, setup="self.out = None",
        extra="def own(self, x):\n    self.out = torch.empty(8, 16) if self.out is None else "
        "self.out\n    return torch.cumsum(x, 1, out=self.out)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OVERWRITTEN)
def test_an_outcome_that_the_next_call_overwrites_is_refused_with_the_reason(kind):
    with pytest.raises(UsageError, match="return the same memory, so the second overwrites"):
        conditions_of(load_task(Task(name="t", source=OVERWRITTEN[kind])))


def test_no_result_that_is_cached_by_a_few_input_values_is_judged_by_such_a_reference(worker):
    task = OVERWRITTEN["a global, by the same inputs with each seed"]
    cached = own_text(
        task,
        ("OUT = torch.empty(8, 16)", "OUT = {}"),
        (
            "return torch.cumsum(x, 1, out=OUT)",
            (
                "key = float(x[0, 0]), float(x[-1, -1])\n"
                "        return OUT.setdefault(key, torch.cumsum(x, 1))"
            ),
        ),
    )
    asked = {"task": Task(name="t", source=task).to_json(), "source": cached, "fidelity": "check"}
    refused = worker.send("evaluate", **asked).result(100)["error"]
    assert refused["kind"] == "usage"
    assert "return the same memory, so the second overwrites" in refused["message"]


SHARED = {
    "equal integers": task_source("(x * 2, ONES)", X, extra="ONES = torch.ones(4).int()"),
    "unsigned integers": task_source(
        "(x * 2, IDS)", X, extra="IDS = torch.tensor([1, 2**63], dtype=torch.uint64)"
    ),
    "a mask": task_source("(x + MASK, MASK)", X, extra="MASK = torch.full((8, 16), -torch.inf)"),
    "one value for all rows": task_source(
        "(x * ROW, ROW.expand(8, 16))", X, extra="ROW = torch.randn(16)"
    ),
    "indices and truths": task_source(
        "(x[ORDER], ORDER, HIDDEN)", X,
        extra="ORDER = torch.randperm(8)\nHIDDEN = torch.arange(8) > 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHARED)
def test_constants_have_their_values_after_the_reference_was_looked_at(kind):
    case = loaded_case(SHARED[kind])
    arguments = case.arguments(1)
    model = case.made(1, Conditions())
    before = [one.clone() for one in flatten(model(*arguments))[0]]
    assert case.effects.kept
    assert all(map(torch.equal, before, flatten(model(*arguments))[0]))
