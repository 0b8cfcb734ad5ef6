"""Warm tasks: what is warm is had at once, whatever else is being loaded.

Invariants:
- what several ask for at once is made once, and counted once;
- what takes much of the memory is there once, and drives nothing else out;
- tasks that take turns keep part of what is theirs, of that what takes longest to make again;
- where memory is short, what is warm gives way, and then the neighbours; a verdict stays right;
- what never fits is refused in words, and ends nothing;
- any call of a timed block may be the one whose output is judged, and of each sitting one is;
- of one call what is expected is worked out once for all the outputs that are judged together.
"""

import contextlib
import itertools
import random
import threading
import time
import weakref
from functools import partial

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.task import Task
from evolve.worker.base.faults import SideFault
from evolve.worker.correctness.cases import LoadedCase
from evolve.worker.correctness.sensitivity import PERTURBATIONS
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.window import Block, TimedCase
from evolve.worker.judge.judge import Judge
from evolve.worker.session.cache import Store
from evolve.worker.session.candidate_session import CandidateSession
from evolve.worker.session.prepared_task import PreparedTasks, usual_number
from evolve.worker.timing.interleaved_blocks import MeasurementRound, PairTimes, judge_samples
from tests.worker.judging import task_source
from tests.worker.serving import HONEST_CPP, RELU_TASK

TWO_CASES = Task(
    name="two",
    source=RELU_TASK.source
    + """
def get_input_groups():
    return [get_inputs(), [x[:5] for x in get_inputs()]]
""",
)
SLOW = Task(name="slow", source="import time\ntime.sleep(2)\n" + RELU_TASK.source)


def test_a_warm_task_does_not_wait_for_one_that_is_being_loaded(tmp_path):
    begun, may_end = tmp_path / "begun", tmp_path / "may_end"
    source = f"""
import pathlib, time
pathlib.Path({str(begun)!r}).touch()
for _ in range(6000):
    if pathlib.Path({str(may_end)!r}).exists():
        break
    time.sleep(0.01)
"""
    tasks = PreparedTasks(CpuDevice())
    warm = tasks.get(RELU_TASK)
    held = Task(name="held", source=source + RELU_TASK.source)
    loading = threading.Thread(target=tasks.get, args=(held,))
    loading.start()
    try:
        while not begun.exists():
            time.sleep(0.01)
        assert tasks.get(RELU_TASK) is warm
        assert loading.is_alive()
    finally:
        may_end.touch()
        loading.join()


@pytest.mark.slow
def test_a_task_asked_for_by_several_is_loaded_once():
    tasks = PreparedTasks(CpuDevice())
    found = []
    threads = [threading.Thread(target=lambda: found.append(tasks.get(SLOW))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is found[2]


def test_a_task_is_loaded_once_for_search_and_verification_which_have_other_secrets():
    tasks = PreparedTasks(CpuDevice())
    search, verify = (tasks.get(RELU_TASK, one) for one in ("search", "verify"))
    assert search.loaded is verify.loaded
    assert search.cases[0].model_seed != verify.cases[0].model_seed


def test_the_task_used_longest_ago_gives_way():
    tasks = PreparedTasks(CpuDevice(), tasks=2)
    first = tasks.get(RELU_TASK)
    tasks.get(RELU_TASK, "verify")
    assert tasks.get(RELU_TASK) is first
    tasks.get(Task(name="other", source=RELU_TASK.source + "\n# other\n"))
    assert tasks.get(RELU_TASK) is first


def test_where_memory_is_short_what_is_warm_gives_way():
    tasks = PreparedTasks(CpuDevice())
    check = tasks.get(RELU_TASK).cases[0].check("task", 0)
    tries = []

    def greedy():
        tries.append(1)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("no room")
        return "made"

    assert tasks.made(greedy) == "made"
    assert tasks.get(RELU_TASK).cases[0].check("task", 0) is not check


def test_what_never_fits_is_refused_and_ends_nothing(worker):
    body = "raise torch.OutOfMemoryError('as a GPU would')"
    source = RELU_TASK.source.replace("return ", f"{body}\n        return ", 1)
    reply = worker.send("audit", task=Task(name="vast", source=source).to_json()).result(60)
    assert reply["error"]["kind"] == "usage"
    assert "vast" in reply["error"]["message"]
    assert worker.ask("audit", task=RELU_TASK.to_json()) is not None


@pytest.mark.slow
def test_a_large_input_is_there_once_while_a_candidate_is_checked(tmp_path, monkeypatch):
    """What was made for one check has gone when the next is made, be it of another case."""
    alive, most = weakref.WeakSet(), []
    expect = LoadedCase.expected

    def counted(case, model, inputs, family):
        most.append(len(alive))
        made = expect(case, model, inputs, family)
        alive.add(made)
        return made

    monkeypatch.setattr(LoadedCase, "expected", counted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    device = CpuDevice()
    device.warm_bytes = 1
    judge = Judge(device, tmp_path / "cache")
    try:
        verdict = judge.evaluate(TWO_CASES, HONEST_CPP, Fidelity.CHECK, {})
    finally:
        judge.close()
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert len(most) > 10
    assert max(most) == 0


def test_tasks_that_take_turns_find_part_of_what_is_theirs():
    """By the least recently used, each would find that the others have driven out everything."""
    store, made = Store(100), []

    def make(name):
        made.append(name)
        return [name]

    for _ in range(40):
        for name in range(40):  # twice as many as fit
            store.get((name,), partial(make, name), lambda _: 5)
    assert len(made) < 0.85 * 40 * 40


def test_what_takes_long_to_make_stays_longer_than_what_is_made_in_no_time():
    store, again = Store(100), []

    def slowly(name):
        again.append(name)
        time.sleep(0.003)
        return [name]

    for turn in range(50):
        for name in "abcd":
            store.get((name,), partial(slowly, name), lambda _: 10)
        for name in range(20):
            store.get((turn, name), list, lambda _: 10)
    assert len(again) < 0.5 * 4 * 50


def test_what_took_long_to_make_goes_once_it_is_no_longer_used(monkeypatch):
    store, made = Store(100), []

    def slowly(name):
        time.sleep(0.01)
        return [name]

    for name in range(4):
        store.get(("old", name), partial(slowly, name), lambda _: 20)
    monkeypatch.setattr("evolve.worker.session.cache.STALE_S", 0.02)
    time.sleep(0.03)
    for _ in range(30):
        made.clear()
        for name in range(9):
            store.get((name,), lambda: made.append(1) or [1], lambda _: 10)
    assert not made


def test_a_call_that_was_drawn_for_one_round_is_not_kept():
    (case,) = PreparedTasks(CpuDevice()).get(RELU_TASK).cases
    (usual, *_) = case.usually_sampled(0, 8)
    drawn = next(at for at in range(8) if at not in case.usually_sampled(0, 8))
    assert case.block_check(0, usual, 8) is case.block_check(0, usual, 8)
    assert case.block_check(0, drawn, 8) is not case.block_check(0, drawn, 8)


WRITES_AGAIN = task_source(
    "x + y", "[KEPT.normal_(), torch.randn(16)]", "x, y", extra="KEPT = torch.empty(16)"
)


@pytest.mark.parametrize("source", [RELU_TASK.source, WRITES_AGAIN])
@pytest.mark.parametrize("number", [0, CpuDevice.block_pool])  # the second has calls of families
def test_a_call_is_the_blocks_own_whether_the_block_is_there_or_not(source, number):
    """Also of a file that gives the same tensor each time, and writes to it."""
    tasks = PreparedTasks(CpuDevice())
    (case,) = tasks.get(Task(name="again", source=source)).cases
    for at in range(4):
        tasks.let_go()
        alone = case.block_check(number, at, 4).inputs
        tasks.let_go()
        block = case.block(number, 4)
        beside = case.block_check(number, at, 4).inputs
        assert torch.equal(alone.memory, beside.memory)
        assert alone.trees == beside.trees
        for one, other in zip(alone.tree(), block.tree(at), strict=True):
            assert torch.equal(one, other)


class SmallDevice(CpuDevice):
    """With little room for evaluations, as a GPU has for tasks of gigabytes."""

    room = 1 << 20
    refusals = 0

    def connect(self, process, tensors=0):
        if self.refusals:
            self.refusals -= 1
            raise OSError(2, "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")
        super().connect(process, tensors)


SAID = 'torch.OutOfMemoryError("as a GPU would")'
SAID_BY_LIBRARIES = (
    'RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")',
    'RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")',
    'RuntimeError("CUDA driver error: out of memory")',
)


def short_of_memory(first: int, count: float, said: str = SAID) -> Task:
    """A task whose reference runs out of memory in the judge, from a call on, so many times."""
    body = f"""torch.calls_of_reference = getattr(torch, "calls_of_reference", 0) + 1
        if {first} <= torch.calls_of_reference < {first + count}:
            raise {said}
        return """
    source = RELU_TASK.source.replace("return ", body, 1)
    return Task(name="short", source=f"inf = float('inf')\n{source}")


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "calls_of_reference", 0, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a lock of its own
    tmp_path.chmod(0o755)
    judge = Judge(SmallDevice(), tmp_path / "cache")
    yield judge
    judge.close()


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 3], ids=["before", "while"])
def test_memory_that_is_short_once_changes_no_verdict(judge, first):
    """Whether it is before a candidate is there or while it is judged."""
    task = short_of_memory(first, 2)
    verdict = judge.evaluate(task, HONEST_CPP, Fidelity.CHECK, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert torch.calls_of_reference > first + 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("said", SAID_BY_LIBRARIES)
def test_truth_is_from_fp64_though_memory_is_short_once_for_a_library(judge, said):
    """In fp32 it would be as coarse as the reference, and who is more exact would be wrong."""
    judge.warm(RELU_TASK).timed[0].check("task", 0)  # warm, to be let go of
    (case,) = judge.warm(short_of_memory(0, 0)).timed
    case.check("task", 0)
    in_fp64 = torch.calls_of_reference  # the last one
    (case,) = judge.warm(short_of_memory(2 * in_fp64, 1, said)).timed
    assert case.check("task", 0).expected.note == ""
    assert torch.calls_of_reference > 2 * in_fp64


@pytest.mark.slow
def test_memory_that_is_short_for_how_far_an_outcome_moves_is_made_and_no_fault_of_ours(
    judge, capfd
):
    wrong = HONEST_CPP.replace("        return y", "        return y * 1.01")
    assert wrong != HONEST_CPP
    judge.warm(RELU_TASK).timed[0].check("task", 0)  # warm, to be let go of
    known = judge.evaluate(short_of_memory(0, 0), wrong, Fidelity.CHECK, {})
    moving = torch.calls_of_reference - PERTURBATIONS  # the first of those runs; one follows them
    task = short_of_memory(torch.calls_of_reference + moving, 1)
    verdict = judge.evaluate(task, wrong, Fidelity.CHECK, {})
    assert verdict.status is known.status is Status.WRONG_VALUE
    assert "judged again" not in capfd.readouterr().err
    assert torch.calls_of_reference == 2 * (moving + PERTURBATIONS) + 1  # that which failed


@pytest.mark.slow
def test_who_takes_all_of_the_room_finds_nothing_kept_for_others(judge):
    kept = weakref.ref(judge.warm(RELU_TASK).timed[0].check("task", 0).expected)
    assert kept() is not None
    verdict = judge.evaluate(short_of_memory(0, 0), HONEST_CPP, Fidelity.CHECK, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert kept() is None


@pytest.mark.slow
def test_of_a_candidate_that_is_checked_there_is_one_process_at_a_time(judge, monkeypatch):
    launched, alive, most = CandidateSession.launched, [], []

    def counted(*arguments, **options):
        runner = launched(*arguments, **options)
        alive.append(runner)
        most.append(sum(each.alive for each in alive))
        return runner

    monkeypatch.setattr(CandidateSession, "launched", counted)
    verdict = judge.evaluate(RELU_TASK, HONEST_CPP, Fidelity.CHECK, {})
    assert verdict.custom, verdict.labels
    assert most == [1]  # for its build, its checks, and without its kernels


@pytest.mark.slow
def test_a_device_that_is_full_beside_others_is_tried_again_alone(judge):
    judge.device.refusals = 2  # as often as a process is tried to start
    assert judge.noise(RELU_TASK)["half_width"] > 0
    assert not judge.device.refusals


@pytest.mark.slow
def test_a_task_that_never_fits_is_refused_whatever_is_asked_of_it(judge):
    task = short_of_memory(1, float("inf"))
    for ask in (
        lambda: judge.audit(task),
        lambda: judge.noise(task),
        lambda: judge.evaluate(task, HONEST_CPP, Fidelity.CHECK, {}),
    ):
        with pytest.raises(UsageError, match=r"task short.*does not fit"):
            ask()
    verdict = judge.evaluate(RELU_TASK, HONEST_CPP, Fidelity.CHECK, {})
    assert verdict.status is Status.CORRECT


def loaded_case(device=None):
    (case,) = PreparedTasks(device or CpuDevice()).get(RELU_TASK).cases
    return case


def test_any_call_of_a_block_may_be_the_one_that_is_judged():
    cases = [loaded_case() for _ in range(12)]
    seen = {at for case in cases for number in range(8) for at in case.usually_judged(number, 4)}
    assert seen == set(range(4))


def test_of_each_sitting_an_output_is_judged_however_few_can_be_afforded():
    case = loaded_case()
    case._expecting_s = 1e6
    case.calls(1.0, 64, 0)
    pool = range(CpuDevice().block_pool)
    judged = {number for number in pool if case.usually_judged(number, 8)}
    assert len(judged) == 2
    rng = random.Random(0)
    for _ in range(50):
        drawn = case.draw_blocks(5, 8, rng)
        assert len(set(drawn)) == 5
        assert judged.intersection(drawn)


def test_each_sitting_judges_a_call_that_nobody_can_know_of():
    case, rng = loaded_case(), random.Random(0)
    drawn = {case.draw_call((3, 5), 8, rng) for _ in range(400)}
    assert drawn == {(number, at) for number in (3, 5) for at in range(8)}


@pytest.mark.parametrize("seconds", [0.5, 4.0])
def test_where_working_out_what_is_expected_takes_long_fewer_sittings_have_it_done(seconds):
    case, rng = loaded_case(), random.Random(0)
    case._expecting_s = seconds
    made = sum(case.draw_call((0,), 8, rng) is not None for _ in range(2000))
    assert 0.05 < made * seconds / 2000 < 0.15  # seconds for each sitting


def test_lengths_of_blocks_are_few_and_never_much_shorter_than_wanted():
    lengths = {calls: usual_number(calls) for calls in range(1, 257)}
    assert all(calls / 1.5 < length <= calls for calls, length in lengths.items())
    assert len(set(lengths.values())) < 20  # blocks of slow candidates are met again


def test_of_one_call_what_is_expected_is_worked_out_once_for_all_sittings_and_sides(monkeypatch):
    """Where it is too large to be kept, which a CPU's memory is told to be here."""
    monkeypatch.setattr(torch, "calls_of_reference", 0, raising=False)
    device = CpuDevice()
    device.warm_bytes = 0
    (warm,) = PreparedTasks(device).get(short_of_memory(0, 0)).cases
    case = TimedCase(warm=warm, calls=4, layouts={}, blocks=2, recorded=False, unshortened_s=0.0)

    def sitting(change=lambda y: y):
        found = MeasurementRound(PairTimes())
        for side, number, at in itertools.product(("candidate", "best"), (3, 5), (0, 2)):
            (x,) = warm.block(number, 4).tree(at)
            right = torch.relu(x) * 2 + x
            samples = {at: [change(right) if side == "best" else right]}
            found.samples.append((side, case, Block(1.0, 1.0, number, samples, (0.0, 0.0, 0.0))))
        return found

    rounds = [sitting() for _ in range(3)]
    before = torch.calls_of_reference
    assert judge_samples(rounds, contextlib.nullcontext) < 1
    assert torch.calls_of_reference == before + 2 * 4  # as it is and in fp64, of four calls
    assert not any(found.samples for found in rounds)
    with pytest.raises(SideFault) as caught:
        judge_samples([sitting(), sitting(torch.neg)], contextlib.nullcontext)
    assert caught.value.side == "best"
