"""`evolve dispatch`: one program out of those that win different workloads of a run.

Invariants:
1. Programs within each other's noise are one, and a further program has to add more than the
   penalty; the weights of the workloads count.
2. The set is a step of the run, made from the programs in it, judged like any program, and the
   winner only if it beats the best single one in the same processes.
3. The reference in a set is checked before it is written: if it fails there, the set has none. The
   check is a stored step with its device time, no proposal and no evaluation of the search.
4. A run without a set is refused with the reason.
"""

import ast
import asyncio
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app.components import build_search
from evolve.app.dispatch.choice import Contender, Workload, choose
from evolve.app.dispatch.search import DISPATCH, compose, judge
from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Stage, Status
from evolve.core.lineage import REFERENCE
from evolve.core.measurement import Interval, Ratio
from evolve.core.task import Case, Task
from evolve.report.run.facts import gather
from evolve.store import Store
from evolve.store.champion import CHAMPION, champion
from tests.cli.recording import record

SOURCE = """
import torch

ROWS, COLUMNS = 8, 8


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CASES = (
    Case(name="tall", constants={"ROWS": 64}, weight=2.0),
    Case(name="wide", constants={"COLUMNS": 64}),
    Case(name="odd", constants={"ROWS": 3}, timed=False),
)
PROGRAM = "import torch\nSPEEDUPS = {speedups}\nclass ModelNew(torch.nn.Module): pass\n"


def program(**speedups: float) -> str:
    return PROGRAM.format(speedups=speedups)


TALL, WIDE = program(tall=4.0, wide=1.0), program(tall=1.5, wide=3.0)


EMPTY = "_PROGRAM_FOR = {\n}"
PROBED_S = 2.0  # of device time, for the check of a reference


class Judge:
    """Gives each program the speedups that it names, and a set those of its parts."""

    device_class, evaluator_version, slots = "cpu: of a test", "1", 1

    def __init__(
        self,
        loss: float = 1.0,
        status: Status = Status.CORRECT,
        reference: Status = Status.CORRECT,
    ) -> None:
        self._loss = loss  # of a set, by which it is slower than its parts
        self._status = status  # of sets
        self._reference = reference  # of the reference in sets
        self.probed: list[str] = []

    async def evaluate(self, request) -> Evaluation:
        own = self._speedups(request.source)
        is_set, is_probe = ("_PROGRAM_FOR" in request.source, EMPTY in request.source)
        status = self._reference if is_probe else self._status if is_set else Status.CORRECT
        self.probed += [request.fidelity] * is_probe
        correct = status is Status.CORRECT
        cases = [*map(self._case, request.task.cases, [own] * 3)] if correct else []
        ratios = {"eager": _mean(own)} if correct else {}
        rivals = {name: text for name, text in request.opponents.items() if text}
        for name, text in rivals.items():
            ratios |= {name: _mean(own) / _mean(self._speedups(text))} if correct else {}
        return Evaluation(
            status=status,
            feedback="" if correct else f"it is {status}",
            stage=Stage.VERIFY,
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self.device_class,
            evaluator_version=self.evaluator_version,
            ratios=ratios,
            cases=tuple(cases),
            custom=True if correct else None,
            device_time_s=PROBED_S * is_probe,
        )

    def _speedups(self, text: str) -> dict[str, float]:
        lines = [line for line in text.splitlines() if line.startswith("SPEEDUPS")]
        parts = [ast.literal_eval(line.partition("=")[2].strip()) for line in lines]
        loss = self._loss if len(parts) > 1 else 1.0
        return {name: max(part[name] for part in parts) * loss for name in parts[0]}

    def _case(self, case: Case, own: dict[str, float]) -> CaseResult:
        ratios = {"eager": ratio(own[case.name])} if case.timed else {}
        times = {"eager": Interval(1.0, 1.0, 1.0)} if case.timed else {}
        return CaseResult(
            name=case.name, weight=case.weight, timed=case.timed, passed=True,
            ratios=ratios, times_ms=times,
        )  # fmt: skip

    async def close(self) -> None:
        pass


class Silent:
    """A frontend without output."""

    def doing(self, what, *, plain=True):
        return nullcontext()


def ratio(value: float, spread: float = 0.02) -> Ratio:
    return Ratio(value, value / (1 + spread), value * (1 + spread))


def _mean(own: dict[str, float]) -> Ratio:
    return ratio(math.exp((2 * math.log(own["tall"]) + math.log(own["wide"])) / 3))


def searched(folder: Path, *programs: str, task: Task | None = None) -> Store:
    """A store with a finished run of these programs."""
    task = task or Task(name="relu", source=SOURCE, size="tiny", cases=CASES)
    store = Store.open(folder / "evolve.db", create=True)
    record(store, replace(task, seeds=programs), Judge(), "search=seeds", "operators=[seed]")
    return store


def judged(store: Store, evaluator: Judge, stop: asyncio.Event | None = None):
    run = store.run("demo")
    composed = compose(store, run, 0.01)
    search = build_search(store, run, run.config, device_class=evaluator.device_class)
    stop = stop or asyncio.Event()
    return asyncio.run(judge(search, evaluator, composed, Silent(), stop))  # type: ignore[arg-type]


def contender(number: int, *speedups: float, spread: float = 0.02) -> Contender:
    ratios = {f"c{place}": ratio(value, spread) for place, value in enumerate(speedups)}
    return Contender(program=f"p{number}", assignment={}, sequence=number, source="", ratios=ratios)


def workloads(*weights: float) -> list[Workload]:
    cases = (
        CaseResult(name=f"c{place}", weight=weight, timed=True, passed=True)
        for place, weight in enumerate(weights)
    )
    return [Workload(f"signature of {case.name}", (case,)) for case in cases]


def chosen(contenders: list[Contender], weights: tuple[float, ...], **options) -> list[int]:
    """The step that serves each workload."""
    asked = workloads(*weights)
    choice = choose(contenders, asked, **options)
    return [choice.served_by[each].sequence for each in asked]


def test_each_workload_gets_the_program_that_is_fastest_there():
    found = [contender(1, 4.0, 1.0), contender(2, 1.0, 4.0), contender(3, 2.0, 2.0)]
    assert chosen(found, (1.0, 1.0)) == [1, 2]


def test_programs_within_each_others_noise_are_one():
    found = [contender(1, 2.0, 2.0, spread=0.2), contender(2, 1.9, 2.2, spread=0.2)]
    assert len({*chosen(found, (1.0, 1.0))}) == 1


def test_a_further_program_has_to_add_more_than_the_penalty():
    found = [contender(1, 2.0, 2.0, spread=1e-3), contender(2, 1.0, 2.06, spread=1e-3)]
    assert chosen(found, (1.0, 1.0), penalty=0.01) == [1, 2]  # 1.5 % of the mean
    assert chosen(found, (1.0, 1.0), penalty=0.02) == [1, 1]
    assert chosen(found, (9.0, 1.0), penalty=0.01) == [1, 1]  # 0.3 %


def test_programs_that_cannot_stand_together_are_not_put_together():
    found = [contender(1, 4.0, 1.0), contender(2, 1.0, 4.0)]
    assert chosen(found, (2.0, 1.0), fit=lambda programs: len(programs) < 2) == [1, 1]


def test_a_set_is_a_step_made_of_its_programs_and_wins_where_it_is_faster(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        before = champion(store, store.run("demo"))
        outcome = judged(store, Judge())
        run = store.run("demo")
        step, winner = store.step(run.id, outcome.sequence), champion(store, run)
        parents = {store.source(program) for program in step.parents}
        assert run.state == "finished"
    assert before is not None and winner is not None
    assert step.operator == DISPATCH
    assert parents == {TALL, WIDE}
    assert outcome.duel.ratios[CHAMPION].is_gain
    assert winner.program == step.program != before.program


@pytest.mark.parametrize(
    "evaluator", [Judge(loss=0.5), Judge(status=Status.WRONG_VALUE)], ids=["slower", "wrong"]
)
def test_a_set_that_is_slower_or_wrong_leaves_the_winner_as_it_is(tmp_path: Path, evaluator):
    with searched(tmp_path, TALL, WIDE) as store:
        before = champion(store, store.run("demo"))
        judged(store, evaluator)
        after = champion(store, store.run("demo"))
    assert before is not None and after is not None
    assert after.program == before.program


def test_a_reference_that_fails_in_a_set_is_left_out_of_it(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        failing = Judge(reference=Status.RUNTIME_EXCEPTION)
        outcome = judged(store, failing)
        step = store.step(store.run("demo").id, outcome.sequence)
        text = store.source(step.program)
    assert failing.probed == ["check"]
    assert outcome.reference_fault == "it is runtime_exception"
    assert "_FALLBACK = None" in text and "get an error" in text
    assert outcome.duel.ratios[CHAMPION].is_gain


def test_the_check_of_a_reference_is_stored_and_charged(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        run = store.run("demo").id
        before = store.progress(run)
        outcome = judged(store, Judge())
        (checked,) = store.made_by(run, REFERENCE)
        step, after = store.step(run, checked), store.progress(run)
        assert EMPTY in store.source(step.program)
        facts = gather(store, "demo")
    assert (step.status, step.fidelity) == (Status.CORRECT, Fidelity.CHECK)
    assert after.device_time_s == before.device_time_s + PROBED_S
    assert after.evaluations == before.evaluations + 1  # of the set
    assert after.proposals == before.proposals + 1
    assert checked not in [one.sequence for one in facts.proposals]
    assert outcome.sequence in [one.sequence for one in facts.proposals]


def test_a_failed_reference_is_known_to_the_next_call_too(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        judged(store, Judge(reference=Status.WRONG_VALUE, status=Status.INFRA))
        again = Judge(reference=Status.CORRECT)
        outcome = judged(store, again)
    assert (again.probed, outcome.reference_fault) == ([], "it is wrong_value")


def test_a_reference_that_works_in_a_set_is_checked_once_and_stays(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        first, again = Judge(), Judge()
        outcome = judged(store, first)
        judged(store, again)
        step = store.step(store.run("demo").id, outcome.sequence)
        text = store.source(step.program)
    assert (first.probed, again.probed, outcome.reference_fault) == (["check"], [], "")
    assert "_FALLBACK = 2" in text


def test_a_fault_of_the_judge_says_nothing_of_the_reference(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        outcome = judged(store, Judge(reference=Status.INFRA))
        made = store.made_by(store.run("demo").id, DISPATCH)
        again = judged(store, Judge())
    assert (outcome.failure, made) == ("it is infra", [])
    assert (again.failure, again.reference_fault) == ("", "")


class Stopping(Judge):
    """Asks for a stop at its so many-th evaluation, which never ends."""

    def __init__(self, at: int, stop: asyncio.Event) -> None:
        super().__init__()
        self._left, self._stop = at, stop

    async def evaluate(self, request) -> Evaluation:
        self._left -= 1
        if self._left == 0:
            self._stop.set()
            await asyncio.sleep(60)
        return await super().evaluate(request)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "at", [1, 2, 3], ids=["while its reference is checked", "while it is judged", "beside"]
)
def test_a_stopped_call_goes_on_where_it_was(tmp_path: Path, at: int):
    with searched(tmp_path, TALL, WIDE) as store:
        stop = asyncio.Event()
        judged(store, Stopping(at, stop), stop)
        assert stop.is_set()
        outcome = judged(store, Judge())
        run = store.run("demo")
        sets = store.made_by(run.id, DISPATCH)
        assert store.open_tickets(run.id) == []
        assert champion(store, run).program == store.step(run.id, outcome.sequence).program
    assert sets == [outcome.sequence]


def test_a_set_that_has_won_already_is_not_judged_again(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        judged(store, Judge())
        steps = store.next_sequence(store.run("demo").id)
        assert judged(store, Judge()).duel.ratios[CHAMPION].is_gain
        assert store.next_sequence(store.run("demo").id) == steps


def test_a_fault_of_the_judge_is_no_verdict_on_a_set(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        assert judged(store, Judge(status=Status.INFRA)).duel is None
        assert judged(store, Judge()).duel.ratios[CHAMPION].is_gain


def test_a_set_is_not_made_of_sets(tmp_path: Path):
    with searched(tmp_path, TALL, WIDE) as store:
        judged(store, Judge())
        again = compose(store, store.run("demo"), 0.01)
    assert {one.source for one in again.choice.programs} == {TALL, WIDE}


def test_one_program_that_is_best_everywhere_needs_no_set(tmp_path: Path):
    with searched(tmp_path, TALL, program(tall=5.0, wide=5.0)) as store:
        assert compose(store, store.run("demo"), 0.01).text == ""


def test_the_command_shows_the_choice_and_why_there_is_no_set(evolve_here, tmp_path: Path):
    with searched(tmp_path, TALL, program(tall=5.0, wide=5.0)):
        pass
    done = evolve_here("dispatch", "demo", "--store", "evolve.db")
    assert done.returncode == 0, done.stderr
    assert "1 program (of step 1) for 2 workloads" in done.stdout
    assert "one program does for all workloads" in done.stdout
    done = evolve_here("dispatch", "demo", "--store", "evolve.db", "--penalty", "-1")
    assert done.returncode == 2
    assert "no number from 0 to 10" in done.stderr


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.timeout(900)
def test_a_set_is_composed_judged_and_exported_on_this_machine(evolve, tmp_path: Path):
    cases = "[{name: tall, constants: {ROWS: 4096}}, {name: wide, constants: {COLUMNS: 4096}}]"
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "task.py").write_text(SOURCE)
    (tmp_path / "two" / "cases.yaml").write_text(cases)
    for name, slow in (("tall", "<"), ("wide", ">")):
        (tmp_path / f"{name}.py").write_text(KERNEL.replace("SLOW", slow))
    words = (
        "initial=[tall.py,wide.py]",
        "search=seeds",
        "operators=[seed]",
        "device.half_width=0.1",
    )
    done = evolve("run", "task=two/task.py", "name=demo", *words, timeout=900)
    assert done.returncode == 0, done.stderr
    done = evolve("dispatch", "demo", timeout=900)
    assert "the set is the new winner" in done.stdout, done.stdout + done.stderr
    assert "_PROGRAM_FOR" in evolve("best", "demo").stdout


KERNEL = '''
import torch
from tvm_ffi.cpp import load_inline

SOURCE = """
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* a = static_cast<const float*>(x.data_ptr());
  float* b = static_cast<float*>(y.data_ptr());
  for (int again = x.size(0) SLOW x.size(1) ? 40 : 1; again > 0; --again) {
    for (int64_t i = 0; i < x.numel(); ++i) b[i] = a[i] < 0 ? 0 : a[i];
    asm volatile("" ::: "memory");
  }
}
"""
kernels = load_inline("relu", cpp_sources=SOURCE, functions="relu", extra_cflags=["-O3"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.relu(x, y)
        return y
'''


def test_cases_that_look_the_same_cannot_be_told_apart(tmp_path: Path):
    same = (replace(CASES[0], constants={}), replace(CASES[1], constants={}), CASES[2])
    task = Task(name="relu", source=SOURCE, size="tiny", cases=same)
    with (
        searched(tmp_path, TALL, WIDE, task=task) as store,
        pytest.raises(UsageError, match="do not differ in shapes"),
    ):
        compose(store, store.run("demo"), 0.01)


def test_cases_of_other_shapes_at_each_draw_are_named(tmp_path: Path):
    drawn = SOURCE.replace("torch.randn(ROWS", "torch.randn(ROWS + int(torch.randint(1, 99, ()))")
    task = Task(name="relu", source=drawn, size="tiny", cases=CASES)
    with (
        searched(tmp_path, TALL, WIDE, task=task) as store,
        pytest.raises(UsageError, match="case tall have other shapes"),
    ):
        compose(store, store.run("demo"), 0.01)


def test_a_run_without_programs_is_refused(tmp_path: Path):
    with (
        searched(tmp_path) as store,
        pytest.raises(UsageError, match="no correct and timed kernel"),
    ):
        compose(store, store.run("demo"), 0.01)
