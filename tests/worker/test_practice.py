"""Tasks as people have them: effects besides a fresh tensor, and outcomes that are equal.

Each case is one of a kind that was reported of a public project (a cache written in place, batch
statistics, tied scores, codes half-way between two). Invariants: a candidate with the reference's
own text is correct; one that leaves out an effect, or has it in another place, is not.
"""

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Status
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.judge.audit import audit, conditions_of
from tests.worker.judging import task_source

INPLACE = task_source("x.add_(1) * 2", "[torch.randn(8, 16)]")
RESIDUAL = task_source(
    "(x.copy_(F.rms_norm(residual.add_(x), (16,))), residual)",
    "[torch.randn(8, 16), torch.randn(8, 16)]",
    arguments="x, residual",
)
SLOTS = task_source(
    "(cache.index_copy_(0, slots, k), None)[1]",
    "[torch.randn(4, 8), torch.randn(32, 8), torch.randperm(32)[:4]]",
    arguments="k, cache, slots",
)
CACHE = task_source(
    "(self.cache.index_copy_(0, at, k) @ self.w).sum(0)",
    "[torch.randn(3, 8), torch.arange(5, 8)]",
    arguments="k, at",
    setup="self.register_buffer('cache', torch.zeros(16, 8)); "
    "self.w = nn.Parameter(torch.randn(8, 8))",
)
REPLACED = task_source(
    "(setattr(self, 'mean', 0.9 * self.mean + 0.1 * x.mean(0)), x - self.mean)[1]",
    "[torch.randn(8, 16)]",
    setup="self.register_buffer('mean', torch.zeros(16))",
)
STEP = task_source(
    "self.w.sub_(0.1 * x.mean(0)) @ x.T",
    "[torch.randn(8, 16)]",
    setup="self.w = nn.Parameter(torch.randn(16))",
)
NORM = task_source(
    "torch.relu(self.norm(x))",
    "[torch.randn(8, 6, 5)]",
    setup="self.norm = nn.BatchNorm1d(6)",
)
GRADIENT = task_source(
    "torch.autograd.grad((self.layer(x) ** 2).sum(), [self.layer.weight])[0]",
    "[torch.randn(8, 16)]",
    setup="self.layer = nn.Linear(16, 4)",
)
OUTPUT = task_source(
    "{'hidden': (x, torch.tanh(x)), 'loss': None}",
    "[torch.randn(8, 16)]",
)
ROUTER = task_source(
    "F.softmax(x, -1).topk(8, dim=-1)[1].to(torch.int32)", "[torch.randn(64, 128)]"
)
ORDER = task_source("torch.argsort(x, dim=-1)", "[torch.randint(0, 9, (16, 64))]")
CODES = task_source(
    "(torch.round(x.float() / self.scale(x)).clamp(-128, 127).to(torch.int8), self.scale(x))",
    "[torch.randn(32, 256, dtype=torch.bfloat16)]",
    extra="def scale(x):\n    return x.float().abs().amax(-1, keepdim=True) / 127",
    setup="self.scale = scale",
)
FAKE_QUANT = task_source(
    "torch.round(x.float() * 20) / 20", "[torch.randint(-99, 99, (32, 64)).bfloat16() / 40]"
)
MASKED = task_source(
    "torch.softmax(x.masked_fill(mask, float('-inf')), -1)",
    "[torch.randn(8, 16), torch.arange(8)[:, None] < 4]",
    arguments="x, mask",
)
HIDDEN = task_source(
    "x @ self.omega", "[torch.randn(8, 16)]", setup="self.omega = torch.randn(16, 4)"
)
SAMPLED = task_source(
    "torch.multinomial(x, 1).squeeze(-1)", "[torch.softmax(torch.randn(8, 99), -1)]"
)
DROPPED = task_source(
    "self.drop(x) + 1", "[torch.randn(8, 16)]", setup="self.drop = nn.Dropout(0.2)"
)


def own_text(task: str, *changes: tuple[str, str]) -> str:
    """The reference as a candidate, with some of its text exchanged."""
    for old, new in changes:
        assert old in task, old
        task = task.replace(old, new)
    return task.replace("class Model(", "class ModelNew(")


def judged(worker, task: str, candidate: str, fidelity: str = "check"):
    return worker.evaluate(candidate, Task(name="t", source=task), fidelity)


def all_judged(worker, pairs):
    """Verdicts by name, of pairs of a task and a candidate that are judged at the same time."""
    asked = {
        name: worker.send(
            "evaluate",
            task=Task(name="t", source=task).to_json(),
            source=candidate,
            fidelity="check",
        )
        for name, (task, candidate) in pairs.items()
    }
    return {name: Evaluation.from_json(one.result(200)["result"]) for name, one in asked.items()}


@pytest.mark.slow
def test_the_reference_itself_is_a_correct_candidate(worker):
    tasks = [INPLACE, RESIDUAL, SLOTS, CACHE, REPLACED, STEP, NORM, GRADIENT, OUTPUT, ROUTER,
             ORDER, CODES, MASKED, HIDDEN, DROPPED]  # fmt: skip
    found = all_judged(worker, {task: (task, own_text(task)) for task in tasks})
    assert {task: verdict.feedback for task, verdict in found.items()
            if verdict.status is not Status.CORRECT} == {}  # fmt: skip


WHEN_TIMED = """
import sys

def timed():
    frame, names = sys._getframe(), set()
    while frame:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "_run" in names

class Model("""

WRONG = {
    "an input is not written to": (INPLACE, ("x.add_(1)", "(x + 1)"), "argument x"),
    "an input gets another value": (INPLACE, (" * 2\n", " * 2 + 0 * x.mul_(2)\n"), "argument x"),
    "a residual is not updated": (RESIDUAL, ("residual.add_(x)", "residual + x"), "output 1"),
    "nothing is done": (SLOTS, ("cache.index_copy_(0, slots, k)", "0"), "argument cache"),
    "a cache is copied first": (SLOTS, ("cache.index", "cache.clone().index"), "argument cache"),
    "a wrong slot": (SLOTS, ("(0, slots, k)", "(0, slots.flip(0), k)"), "argument cache"),
    "a cache forgets": (CACHE, ("self.cache.index", "self.cache.clone().index"), "state cache"),
    "a statistic is not kept": (
        REPLACED, ("self, 'mean',", "self, 'new',"), ("x - self.mean", "x - self.new"), "state mean"
    ),
    "a weight is not stepped": (STEP, ("self.w.sub_(", "self.w.sub("), "state w"),
    "running statistics stay": (
        NORM,
        ("self.norm(x)", "F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"),
        "state norm.running_mean",
    ),
    "statistics of evaluation": (NORM, ("self.norm(x)", "self.norm.eval()(x)"), "output 0"),
    "another nesting": (OUTPUT, ("(x, torch.tanh(x))", "[x, torch.tanh(x)]"), "nested"),
    "another hidden state": (OUTPUT, ("torch.tanh(x))", "torch.tanh(x) * 1.1)"), "output 1"),
    "ids one off": (ROUTER, (".topk(8, dim=-1)[1]", ".topk(9, dim=-1)[1][:, 1:]"), "output 0"),
    "one id twice": (
        ROUTER,
        (".topk(8, dim=-1)[1]", ".topk(8, dim=-1)[1][:, :1].expand(-1, 8)"),
        "output 0",
    ),
    "an order reversed": (ORDER, ("dim=-1)", "dim=-1, descending=True)"), "output 0"),
    "codes cut off": (CODES, ("torch.round(", "torch.trunc("), "output 0"),
    "zeros for NaN": (MASKED, ("-1)", "-1).nan_to_num()"), "the reference is NaN in 50.00%"),
    "a random attribute drawn otherwise": (
        HIDDEN,
        ("torch.randn(16, 4)", "torch.randn(4, 16).T.contiguous()"),
        "Model.omega is random",
    ),
}  # fmt: skip


@pytest.mark.slow
def test_a_candidate_that_does_something_else_is_refused(worker):
    pairs = {name: (task, own_text(task, *change)) for name, (task, *change, _) in WRONG.items()}
    found = all_judged(worker, pairs)
    refused = (Status.WRONG_VALUE, Status.WRONG_TREE)
    assert {
        name: verdict.feedback
        for name, verdict in found.items()
        if verdict.status not in refused or WRONG[name][-1] not in verdict.feedback
    } == {}


def test_writing_to_an_input_that_the_reference_leaves_alone_is_refused(worker):
    greedy = own_text(SLOTS, (", None)[1]", ", k.mul_(2), None)[2]"))
    verdict = judged(worker, SLOTS, greedy)
    assert verdict.status is Status.MUTATED_INPUT, verdict.feedback


def test_a_candidate_may_return_a_new_tensor_where_the_reference_returns_an_input(worker):
    fresh = own_text(RESIDUAL, (", residual)\n", ", residual.clone())\n"))
    assert judged(worker, RESIDUAL, fresh).status is Status.CORRECT


def test_of_tied_scores_any_order_is_right_and_the_verdict_says_so(worker):
    last = "flip(-1).sort(dim=-1, descending=True, stable=True)[1][:, :8].neg().add(127)"
    change = ("topk(8, dim=-1)[1]", last)
    task = ROUTER.replace("torch.randn(64, 128)", "torch.randn(64, 128).bfloat16()")
    verdict = judged(worker, task, own_text(task, change))
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "indices of topk" in {x.name: x.evidence for x in verdict.labels}["equal_up_to"]


def test_what_rounding_decides_may_differ(worker):
    changes = {
        "order": (
            ORDER,
            ("argsort(x, dim=-1)", "argsort(x.flip(-1), dim=-1, stable=True).mul(-1).add(63)"),
        ),
        "codes": (CODES, ("x.float() / self.scale(x))", "x.float() * (1 / self.scale(x)))")),
        "floating codes": (FAKE_QUANT, ("x.float() * 20", "x.float() * 19.999999")),
    }
    pairs = {name: (task, own_text(task, change)) for name, (task, change) in changes.items()}
    found = all_judged(worker, pairs)
    assert {name: verdict.feedback for name, verdict in found.items()
            if verdict.status is not Status.CORRECT} == {}  # fmt: skip


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (INPLACE, "writes to argument x"),
        (CACHE, "writes to cache"),
        (NORM, "writes to norm.running_mean, norm.running_var, norm.num_batches_tracked"),
        (RESIDUAL, "outputs 0, 1 in the memory of its inputs"),
        (GRADIENT, "gradients"),
        (DROPPED, "eval mode"),
        (HIDDEN, "Model.omega is random"),
        (ROUTER, "output 0: indices of topk"),
        (CODES, "output 0: codes"),
    ],
)
def test_what_is_judged_is_said_before_anything_is_judged(task, words):
    said = conditions_of(load_task(Task(name="t", source=task)))
    assert any(words in line for line in said), said


def test_nothing_is_said_of_a_plain_task(worker):
    task = Task(name="t", source=task_source("torch.relu(x)", "[torch.randn(8, 16)]"))
    assert worker.ask("conditions", task=task.to_json()) == []


REFUSED = {
    "random": (SAMPLED, "is random, or remembers calls: .* differ in output 0"),
    "a plain attribute": (
        CACHE.replace("self.register_buffer('cache', torch.zeros(16, 8))",
                      "self.cache = torch.zeros(16, 8)"),
        "changes cache, which is no buffer",
    ),
    "a counter": (
        task_source("x + self.count(1)", "[torch.randn(8)]",
                    setup="import itertools; self.count = lambda _, c=itertools.count(): next(c)"),
        "remembers something",
    ),
    "a list": (
        task_source("(self.seen.append(x), x + len(self.seen))[1]", "[torch.randn(8)]",
                    setup="self.seen = []"),
        "remembers something",
    ),
    "a position": (
        task_source("step(self, k)", "[torch.randn(8)]", arguments="k",
                    setup="self.register_buffer('cache', torch.zeros(16, 8)); self.at = 0",
                    extra="def step(self, k):\n    self.cache[self.at] = k\n    self.at += 1\n"
                          "    return self.cache.sum(0)"),
        "remembers something: .* differs in its writes to state",
    ),
    "an optimizer": (
        task_source("(setattr(self.w, 'grad', g.clone()), self.adam.step(), self.w)[2]",
                    "[torch.randn(8)]", arguments="g",
                    setup="self.w = nn.Parameter(torch.randn(8)); "
                          "self.adam = torch.optim.Adam([self.w])"),
        "remembers something: .* differs in output 0",
    ),
    "a cache that grows": (
        task_source("(setattr(self, 'cache', torch.cat([self.cache, x])), self.cache.sum(0))[1]",
                    "[torch.randn(1, 8)]",
                    setup="self.register_buffer('cache', torch.zeros(1, 8))"),
        "remembers something: .*of a fixed shape",
    ),
    "hooks": (
        task_source("(self.layer(x), self.seen['y'])", "[torch.randn(4, 8)]",
                    setup="self.layer = nn.Linear(8, 8); self.seen = {}; "
                          "self.layer.register_forward_hook("
                          "lambda m, i, y: self.seen.update(y=y * 2))"),
        "a copy of Model .* has another outcome",
    ),
    "inputs in one memory": (
        task_source("(x.add_(1), (y * 2).sum(0))[1]", "(lambda x: [x, x.t()])(torch.randn(8, 8))",
                    arguments="x, y"),
        "writes to argument x, which shares memory with argument y, so",
    ),
    "an input of one value for all": (
        task_source("(y[:1].add_(x), x * 2)[1]", "[torch.randn(1, 8), torch.zeros(8).expand(4, 8)]",
                    arguments="x, y"),
        "writes to argument y, several of whose elements share memory, so",
    ),
    "a resized argument": (
        task_source("torch.mul(x, 2, out=y)", "[torch.randn(4, 8), torch.empty(0)]",
                    arguments="x, y"),
        "gives argument y another shape",
    ),
    "gradients of inputs": (
        task_source("((x ** 2).sum().backward(), x.grad)[1]",
                    "[torch.randn(8, requires_grad=True)]"),
        r"x = x.detach\(\).requires_grad_\(\)",
    ),
    "numbers by value": (
        task_source("(x * 2, int(x.argmax()))", "[torch.randn(99)]"), "depends on values"
    ),
    "operators of functions": (
        task_source("torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))", "[torch.randn(8)]"),
        "uses an operator that takes functions",
    ),
    "the same memory": (
        task_source("torch.add(x, 1, out=self.out)", "[torch.randn(8)]",
                    setup="self.out = torch.empty(8)"),
        "return the same memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_task_that_no_candidate_can_be_judged_by_is_refused_with_the_reason(case):
    task, words = REFUSED[case]
    with pytest.raises(UsageError, match=words):
        audit(load_task(Task(name="t", source=task)))


QKV = "torch.randn(4, 24).split(8, -1)[:2]"
TABLE = (
    "def table(self, n):\n    if self.rows < n:\n        self.rows = n\n        {}\n    "
    "return self.cos[:n]"
)
MADE = "self.register_buffer('cos', torch.arange(n * 8.0).view(n, 8).cos(), persistent=False)"
OBJECTS = "objects of the file's own classes"
FINE = {
    "two caches in one tensor": (
        task_source("(kc.index_copy_(0, at, x), vc.index_copy_(0, at, x * 2), None)[2]",
                    "[torch.randn(2, 8), torch.randperm(9)[:2], *torch.zeros(2, 9, 8).unbind(0)]",
                    arguments="x, at, kc, vc"),
        ("vc.index_copy_(0, at, x * 2)", "vc"),
    ),
    "parts of a projection": (
        task_source("(q.mul_(2), k.add_(1), q.sum())[2]", QKV, arguments="q, k"), ("k.add_(1)", "k")
    ),
    "weights computed anew": (
        task_source("self.layer(x)", "[torch.randn(4, 8)]",
                    setup="self.layer = nn.utils.spectral_norm(nn.Linear(8, 8))"),
        ("self.layer(x)", "self.layer.eval()(x)"),
    ),
    "a table made late": (
        task_source("x * table(self, 5)", "[torch.randn(5, 8)]", extra=TABLE.format(MADE),
                    setup="self.register_buffer('cos', None); self.rows = 0"),
        ("x * table", "x + table"),
    ),
    "a table that grows": (
        task_source("x * table(self, 5)", "[torch.randn(5, 8)]", extra=TABLE.format(MADE),
                    setup="self.register_buffer('cos', torch.ones(2, 8)); self.rows = 2"),
        ("x * table", "x + table"),
    ),
    "a lock": (
        task_source("self.layer(x)", "[torch.randn(4, 8)]", extra="import threading",
                    setup="self.layer = nn.Linear(8, 8); self.lock = threading.Lock()"),
        ("self.layer(x)", "self.layer(x) * 1.1"),
    ),
    "a sparse buffer": (
        task_source("self.a @ x", "[torch.randn(8, 8)]",
                    setup="self.register_buffer('a', torch.eye(8).roll(1, 0).to_sparse_csr())"),
        ("@ x", "@ x.abs()"),
    ),
    "unsigned integers": (
        task_source("x.long().mul(7).add(n.long()).to(torch.uint32)",
                    "[torch.randint(0, 9, (8, 8)).to(torch.uint16), "
                    "torch.arange(8).to(torch.uint64)]", arguments="x, n"),
        (".mul(7)", ".mul(6)"),
    ),
    OBJECTS: (
        task_source("Out(x[meta.rows] * meta.scale * self.config.gain, (x, 3))",
                    "[torch.randn(8, 8), Meta(torch.randperm(8))]", arguments="x, meta",
                    setup="self.config = values[0]", init="[Config()]",
                    extra="from dataclasses import dataclass\n\n"
                          "@dataclass\nclass Meta:\n    rows: torch.Tensor\n    scale: float = 2.0"
                          "\n\nclass Config:\n    def __init__(self):\n        self.gain = 3.0\n\n"
                          "@dataclass\nclass Out:\n    y: torch.Tensor\n    cache: object"),
        ("(x, 3)", "(x, 4)"),
    ),
}  # fmt: skip
BARE = """
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x, meta):
        return {"y": x[meta.rows] * meta.scale * self.config.gain, "cache": (x, 3)}
"""


@pytest.mark.parametrize("name", FINE)
def test_a_task_of_this_kind_is_no_weak_one(name):
    assert audit(load_task(Task(name="t", source=FINE[name][0]))) == ()


@pytest.mark.parametrize(
    "names", [pytest.param(tuple(FINE)[:-1], marks=pytest.mark.slow), tuple(FINE)[-1:]]
)
def test_candidates_of_these_kinds_are_judged(worker, names):
    pairs = {}
    for name in names:
        task, change = FINE[name]
        pairs[name, True], pairs[name, False] = (
            (task, own_text(task)),
            (task, own_text(task, change)),
        )
    if OBJECTS in names:
        pairs["without their classes", True] = (FINE[OBJECTS][0], BARE)
    found = all_judged(worker, pairs)
    assert {
        about: verdict.feedback
        for about, verdict in found.items()
        if (verdict.status is Status.CORRECT) is not about[1]
        or verdict.status in (Status.RUNTIME_EXCEPTION, Status.INVALID_INTERFACE)
    } == {}


def test_a_value_of_an_unknown_class_is_named_in_the_feedback(worker):
    task = task_source("x * pair.scale", "[torch.randn(8), Pair(2.0)]", arguments="x, pair",
                       extra="from collections import namedtuple\n\n"
                             "Pair = namedtuple('Pair', 'scale')")  # fmt: skip
    bare = BARE.replace("config", "*_", 1).replace("self.config = config", "pass")
    verdict = judged(worker, task, bare)
    assert "define the class Pair in the program too" in verdict.feedback


def test_a_named_tuple_has_the_constructor_that_its_class_gives_it(worker):
    task = task_source("Step(x * pair.x * self.pair.n)", "[torch.randn(8), Step(torch.randn(8))]",
                       arguments="x, pair", setup="self.pair = values[0]",
                       init="[Step(torch.ones(1))]",
                       extra="from typing import NamedTuple\n\n"
                             "class Pair(NamedTuple):\n    x: torch.Tensor\n    n: int\n\n"
                             "class Step(Pair):\n    def __new__(cls, x):\n"
                             "        return super().__new__(cls, x, 3)")  # fmt: skip
    assert judged(worker, task, own_text(task)).status is Status.CORRECT
    wrong = own_text(task, ("self.pair.n", "4"))
    assert judged(worker, task, wrong).status is Status.WRONG_VALUE


def test_a_random_reference_with_a_check_is_judged_by_it(worker):
    extra = "\ndef check(output, reference, inputs):\n    return bool((output < 99).all())\n"
    task = SAMPLED + extra
    assert judged(worker, task, own_text(SAMPLED)).status is Status.CORRECT


def test_a_file_says_in_which_mode_it_is_judged(worker):
    evaluated = NORM + "\nMODE = 'eval'\n"
    frozen = ("self.norm(x)", "self.norm.eval()(x)")
    assert judged(worker, evaluated, own_text(NORM, frozen)).status is Status.CORRECT
    bad = Task(name="t", source=NORM + "\nMODE = 'test'\n").to_json()
    assert "mode is 'test'" in worker.send("audit", task=bad).result(60)["error"]["message"]


@pytest.mark.slow  # blocks are in test_returned_tensors
@pytest.mark.parametrize("task", [SLOTS, CACHE, NORM])
def test_effects_are_timed_and_judged_in_every_call_of_a_block(worker, task):
    verdict = judged(worker, task, own_text(task), "screen")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.ratios["eager"].value > 0


@pytest.mark.slow
def test_an_effect_that_is_left_out_only_when_timed_is_found_out(worker):
    write = "cache.index_copy_(0, slots, k)"
    lazy = own_text(SLOTS, (write, f"{write} if not timed() else 0"), ("class Model(", WHEN_TIMED))
    verdict = judged(worker, SLOTS, lazy, "screen")
    assert verdict.status is Status.WRONG_VALUE, verdict.feedback


def test_a_task_that_reads_a_file_of_somewhere_else_is_refused(worker, tmp_path):
    table = tmp_path / "table.txt"
    table.write_text("3.0")
    extra = f"SCALE = float(open({str(table)!r}).read())"
    task = Task(name="reads", source=task_source("x * SCALE", "[torch.randn(8)]", extra=extra))
    message = worker.send("audit", task=task.to_json()).result(60)["error"]["message"]
    assert "not part of the task" in message
