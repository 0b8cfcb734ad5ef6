"""A new run's compiler seeds: asked of the judge, which has the compiler, and kept with the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evolve.cli.config.build import build
from evolve.cli.device import kind_of
from evolve.core.compiled import Compiled
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.report.text import count_text

OPERATOR = "inductor"


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the compiler is to be asked for.

    Nothing on the CPU, where it writes C++ against headers of its own.
    """
    node = config["operators"].get(OPERATOR)
    if node is None or kind_of(config) != "cuda":
        return ()
    settings = {key: value for key, value in node.items() if key != "weight"}
    found: tuple[str, ...] = build(settings, f"operators.{OPERATOR}").variants
    return found


async def with_compiled(task: Task, config: Mapping[str, Any], evaluator: Evaluator) -> Task:
    """The task with what the compiler makes of it; equal code of two variants is kept once."""
    wanted = variants(config)
    if not wanted or not isinstance(evaluator, LocalEvaluator):
        return task
    print(f"compiling the reference, {count_text(len(wanted), 'variant')} ...", flush=True)
    found: dict[str, Compiled] = {}
    for variant in wanted:
        answer = await evaluator.compiled(task, variant)
        if isinstance(answer, str):
            print(f"variant {variant}: {answer}")
        else:
            found.setdefault(answer.code, answer)
    return replace(task, compiled=tuple(found.values()))
