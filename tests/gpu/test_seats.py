"""Candidates beside each other on one GPU.

Invariants:
- who launches work in the background is convicted or pays for it, alone or beside others;
- a neighbour who does so, or has a child that does, changes nobody else's verdict;
- nobody waits for a source that takes long to import, or whose kernels take long to compile.
"""

import pytest

from evolve.core.evaluation import Evaluation, Status
from tests.gpu.programs import RIGHT, TASK, torch_program

# From its fourth call on: not before it has been seen to be right.
LATER = """
self.n = getattr(self, "n", 0) + 1
if self.n == 4:
    {}
return right(x)
"""
BACKGROUND = torch_program(
    LATER.format("threading.Thread(target=launch, daemon=True).start()"),
    "def launch():\n    while True:\n        torch.cuda._sleep(20_000_000)\n"
    "        torch.cuda.synchronize()",
)
WAKING = torch_program(
    LATER.format("threading.Thread(target=launch, daemon=True).start(); wake()"),
    "def launch():\n    while True:\n        torch.cuda._sleep(20_000_000)\n"
    "        torch.cuda.synchronize()\n"
    "def wake():\n    if os.fork() == 0:\n        while True:\n"
    "            os.kill(os.getppid(), signal.SIGCONT)\n            time.sleep(0.001)",
)
SLOW_TO_IMPORT = RIGHT + "\nimport time\ntime.sleep(15)\n"
SLOW_TO_COMPILE = f"""{RIGHT}
import os
import triton.compiler

compile_now = triton.compiler.compile

def compile_slowly(*arguments, **options):
    if not os.listdir(os.environ["TRITON_CACHE_DIR"]):
        time.sleep(15)
    return compile_now(*arguments, **options)

triton.compiler.compile = compile_slowly
"""


def ask(worker, sources, fidelity="screen"):
    return [
        worker.send("evaluate", task=TASK.to_json(), source=source, fidelity=fidelity)
        for source in sources
    ]


def verdict(future) -> Evaluation:
    return Evaluation.from_json(future.result(300)["result"])


def require_no_gain(found: Evaluation) -> None:
    print(found.status, found.feedback, found.durations_s)
    if found.status not in (Status.TIMING_UNBOUNDED, Status.HACK):
        assert found.ratios["eager"].high < 1, found.feedback


@pytest.mark.parametrize("source", [BACKGROUND, WAKING], ids=["thread", "child"])
def test_work_in_the_background_is_convicted_or_slows_its_own_program(worker, source):
    require_no_gain(worker.evaluate(source, TASK))


@pytest.mark.slow
@pytest.mark.parametrize("guilty", [BACKGROUND, WAKING], ids=["thread", "child"])
def test_a_guilty_neighbour_changes_no_verdict_but_its_own(worker, guilty):
    honest = [f"{RIGHT}\n# beside the guilty: {n}\n" for n in range(3)]
    first, *others = map(verdict, ask(worker, [guilty + "\n# beside\n", *honest], "search"))
    for found in others:
        print(found.status, found.feedback, found.ratios, found.durations_s)
    require_no_gain(first)
    assert {found.status for found in others} == {Status.CORRECT}
    assert all(found.ratios["eager"].low > 1.2 for found in others)


@pytest.mark.parametrize("source", [SLOW_TO_IMPORT, SLOW_TO_COMPILE], ids=["import", "compile"])
def test_nobody_waits_for_a_source_that_takes_long_to_import_or_compile(worker, source):
    slow, quick = ask(worker, [source, f"{RIGHT}\n# beside {len(source)}\n"])
    assert verdict(quick).status is Status.CORRECT
    assert not slow.done()
    assert verdict(slow).status is Status.CORRECT
