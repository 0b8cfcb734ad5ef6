"""Judges candidates of a task; `python judging.py TASK LANGUAGE FOLDER` prints its seeds' faults.

A program of its own because Triton decides about its interpreter when it is imported.
"""

import sys
from pathlib import Path
from types import ModuleType

import torch

from evolve.core.evaluation import Status
from evolve.core.program import Program
from evolve.core.task import Task
from evolve.languages.base import Language
from evolve.tasks import find_task
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.compare import judge
from evolve.worker.ipc.pytree import flatten


def module_of(source: str, folder: Path) -> ModuleType:
    """Executes a source from a file, because Triton reads the text of its kernels there."""
    path = folder / f"{Program(source).digest}.py"
    path.write_text(source)
    module = ModuleType("candidate")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def faults(task: Task, candidate: ModuleType) -> list[str]:
    """What is wrong with a candidate, over all cases and input families."""
    found = []
    for case in load_task(task).cases:
        for family in case.families():
            model, inputs = case.model(1), case.inputs(1, family)
            new = candidate.ModelNew(*case.init_inputs(1))
            new.load_state_dict(model.state_dict())
            with torch.no_grad():
                outputs, spec = flatten(new(*inputs))
            verdict = judge(case, outputs, spec, case.expected(model, inputs), inputs)
            if verdict.status is not Status.CORRECT:
                found.append(f"{case.name}, {family}: {verdict.status}, {verdict.feedback}")
    return found


def main(name: str, language: str, folder: str) -> None:
    task = find_task(name, size="tiny", languages=[Language(language)])
    for seed in task.seeds:
        print(faults(task, module_of(seed, Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
