"""Suites' own checkers and the judge on the same candidates, without a GPU.

    python -m tests.benchmarks.bench_checkers CHECKOUTS [SUITE ...]

CHECKOUTS holds the suites' repositories under their names. Each candidate is judged in the form of
the suite's task, correctness only, and by the suite's own checker, which runs beside the candidate
in the judge's sandbox: as a program that gives 1 if the checker is content. Counts follow.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation.local import LocalEvaluator
from evolve.tasks import find_task
from evolve.testing.suite_tasks import hosts
from tests.benchmarks.checker_candidates import KINDS, SUBJECTS, Subject, for_judge
from tests.benchmarks.conditions import print_conditions

CHILD = Path(__file__).with_name("checker_child.py")
HOSTS = Path(hosts.__file__)  # candidates cannot import it, so its text goes before
TRACE = """Operator: aten.relu.default
cnt: 1, ((T([128, 512], f32),), {})
cnt: 1, ((T([7, 33], f32),), {})
"""
CONTENT = Task(
    name="content",
    source="""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ones(4) + 0 * x.sum()

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
""",
)
PROGRAM = """
OUTCOME = float(CHECKERS[{suite!r}](Path({root!r}), {candidate!r}))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full((4,), OUTCOME)
"""


async def judged(evaluator: LocalEvaluator, task: Task, source: str) -> Evaluation:
    instance = instance_digest(Program(source).digest, {})
    return await evaluator.evaluate(
        EvaluationRequest(task=task, instance=instance, source=source, fidelity=Fidelity.CHECK)
    )


async def suites_word(
    evaluator: LocalEvaluator, subject: Subject, root: Path, candidate: str
) -> str:
    """What the suite's checker says: passes, fails, or how the process ended."""
    call = PROGRAM.format(suite=subject.suite, root=str(root), candidate=candidate)
    child = "".join(
        line for line in CHILD.open(encoding="utf-8") if not line.startswith("from evolve.")
    )
    program = f"{HOSTS.read_text()}\n{child}\n{call}"
    verdict = await judged(evaluator, CONTENT, program)
    if verdict.status is Status.CORRECT:
        return "passes"
    if verdict.status is Status.WRONG_VALUE:
        return "fails"
    return f"{verdict.status}: {verdict.feedback.strip().splitlines()[-1][:90]}"


async def judges_word(evaluator: LocalEvaluator, task: Task, source: str) -> str:
    verdict = await judged(evaluator, task, source)
    if verdict.status is Status.CORRECT and not verdict.custom:
        return "passes, not custom"
    return "passes" if verdict.status is Status.CORRECT else str(verdict.status)


def task_of(subject: Subject, root: Path, folder: Path) -> Task:
    """The suite's task; BackendBench's from a trace, for its data set is not in its repository.

    If it has cases that are only checked, without those that are timed, whose sizes are for GPUs.
    """
    (folder / "traces.txt").write_text(TRACE)
    checkout = root / subject.checkout if subject.checkout else folder
    task = find_task(f"{subject.suite}:{subject.task}", size="tiny", checkout=checkout)
    checked = [replace(case, timed=True) for case in task.cases if not case.timed]
    return replace(task, cases=tuple(checked or task.cases))  # one has to count as timed


async def main(root: Path, names: Sequence[str]) -> None:
    print_conditions()
    subjects = [one for one in SUBJECTS if one.suite in names or not names]
    counts: Counter[tuple[str, str, str]] = Counter()
    evaluator = await LocalEvaluator.start(device="cpu", slots=1, sandbox_read=[str(root)])
    print("\n| suite | candidate | is | suite's checker | judge |\n| --- | --- | --- | --- | --- |")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for subject in subjects:
                task = task_of(subject, root, Path(folder))
                for name, (kind, text) in KINDS.items():
                    candidate = text(subject)
                    theirs = await suites_word(evaluator, subject, root, candidate)
                    ours = await judges_word(evaluator, task, for_judge(subject, candidate))
                    counts[kind, theirs.partition(":")[0], ours.partition(",")[0]] += 1
                    print(f"| {subject.suite} | {name} | {kind} | {theirs} | {ours} |", flush=True)
    finally:
        await evaluator.close()
    print("\n| candidates | suite's checker | judge | number |\n| --- | --- | --- | --- |")
    for (kind, theirs, ours), number in sorted(counts.items()):
        print(f"| {kind} | {theirs} | {ours} | {number} |")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
