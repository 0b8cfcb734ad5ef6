"""The models of a source: of the task's reference, or of a candidate."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from evolve.core.task import Task
from evolve.worker.ipc.pytree import map_tensors
from evolve.worker.ipc.task_classes import PROGRAM_MODULE
from evolve.worker.reference.conditions import Conditions, named_state
from evolve.worker.reference.task_file import TaskCase, load_task_file
from evolve.worker.reference.torch_settings import apply_settings
from evolve.worker.runner.weights import ContractError, construct

FILENAME = "candidate.py"


def reference(text: str, place: torch.device) -> Callable[..., torch.nn.Module]:
    """The reference's, of a task as JSON."""
    task, threads = Task.from_json(json.loads(text)), torch.get_num_threads()
    cases = load_task_file(task, place, TaskCase).cases
    apply_settings(cases[0].task)  # no other task is judged in this process
    torch.set_num_threads(threads)  # both sides have as many
    return lambda case, seed, _, conditions: cases[case].made(seed, conditions)


def candidate(text: str, place: torch.device) -> Callable[..., torch.nn.Module]:
    """A candidate's: its source is executed as a file in the runner's own directory.

    Triton wants to read it there.
    """
    path = Path.cwd() / FILENAME
    path.write_text(text)
    module = ModuleType(PROGRAM_MODULE)
    module.__file__ = str(path)
    sys.modules[PROGRAM_MODULE] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    factory = getattr(module, "ModelNew", None)
    if not isinstance(factory, type) or not issubclass(factory, torch.nn.Module):
        raise ContractError("the module defines no class ModelNew derived from torch.nn.Module")

    def make(
        _: int, seed: int, arguments: dict[str, Any], conditions: Conditions
    ) -> torch.nn.Module:
        init = map_tensors(torch.clone, arguments["init"])
        model = construct(factory, seed, init, arguments["state"], place)
        if lacking := [name for name in conditions.state if name not in named_state(model)]:
            raise ContractError(
                f"Model.forward changes {lacking[:8]}, and ModelNew has no such buffers or "
                "parameters; register them under the same names, and change them too"
            )
        return conditions.apply_like(model)

    return make
