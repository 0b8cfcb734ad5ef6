"""A new run's compiler seeds: asked of the judge, which has the compiler, and kept with the run."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from evolve.app.config.build import build, locate, naming
from evolve.app.device import kind_of
from evolve.app.frontend import Frontend
from evolve.app.models import has_model
from evolve.core.compiled import Compiled
from evolve.core.devices import device_kind
from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator
from evolve.core.source.normalise import normalised_digest
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator
from evolve.report.text import count_text
from operators.local.compiler_seed import CompilerSeed
from operators.local.inductor import NotConvertible, convert
from operators.local.ported_seed import PortedSeed
from operators.local.seed import Seed
from operators.local.template_seed import TemplateSeed
from operators.local.templates import has_products

_KINDS = (CompilerSeed, TemplateSeed, PortedSeed)
_REPLACING = {TemplateSeed, PortedSeed}  # of whose programs calls of libraries become kernels
_ON_CPU = ("default", "unfused")  # the others are settings of Triton's code


class NoStart(UsageError):
    """A task has no program to start from, and another try of the compiler would bring none."""


def variants(task: Task, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The requests to the compiler.

    On the CPU, where one C++ program costs as much to judge as a search may last, only if there is
    nothing else to start from.
    """
    names = wanted(config)
    if device_kind(kind_of(config)).is_gpu:
        return names
    has_seeds = bool(task.seeds) and any(_operators(config, Seed))
    if has_seeds or has_model(config):
        return ()
    return tuple(name for name in names if name in _ON_CPU)


def wanted(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Variants that operators take on this kind of device, for any task."""
    kinds = _KINDS if device_kind(kind_of(config)).is_gpu else (CompilerSeed,)
    return tuple(dict.fromkeys(name for kind in kinds for name in _taken(config, kind)))


def _taken(config: Mapping[str, Any], kind: type) -> list[str]:
    """Variants that operators of a class take."""
    found = []
    for where, node in _operators(config, kind):
        settings = {key: value for key, value in node.items() if key != "weight"}
        with naming(where):
            found += build(settings, where).variants
    return found


def _operators(config: Mapping[str, Any], kind: type) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The operators of a class under any name: where each is set, and its settings."""
    for name, node in config["operators"].items():
        where = f"operators.{name}"
        if node is not None:
            target = locate(node, where)
            if isinstance(target, type) and issubclass(target, kind):
                yield where, node


async def with_compiled(
    task: Task,
    config: Mapping[str, Any],
    evaluator: Evaluator,
    frontend: Frontend,
    *,
    needs_start: bool = True,
) -> Task:
    """The task with the compiler's output for it.

    Args:
        task: whose reference is compiled.
        config: of the run.
        evaluator: the judge.
        frontend: shows each variant that the compiler could not make.
        needs_start: whether a run without any program to start from is refused.

    Raises:
        NoStart: `needs_start`, and there is no program to start from.
        UsageError: the same, but the compiler failed, which may be for want of memory or time.
    """
    names = variants(task, config)
    why = ""
    error: type[UsageError] = NoStart
    if names and isinstance(evaluator, PooledEvaluator):
        with frontend.doing(f"compiling the reference, {count_text(len(names), 'variant')}"):
            answers = await evaluator.compiled(task, names)
            compiled, reasons = usable(task, config, answers)
        for reason in reasons:
            frontend.say(f"variant {reason}")
        why = f", and the compiler makes none of it ({'; '.join(reasons)})" if reasons else ""
        if any(isinstance(answer, str) for answer in answers.values()):
            error = UsageError
        task = replace(task, compiled=compiled)
    if needs_start:
        require_start(task, config, why, error)
    return task


def usable(
    task: Task, config: Mapping[str, Any], answers: Mapping[str, Compiled | str]
) -> tuple[tuple[Compiled, ...], list[str]]:
    """Variants that programs can be made of, and why there are none of the others.

    Variants that say the same stand for each other. One whose operators all take a variant that is
    kept so far is left out, and nothing is said of it; another is kept in the place of all those
    whose operators take it.
    """
    found: list[tuple[str, frozenset[type], Compiled]] = []
    reasons: list[str] = []
    taken = {kind: _taken(config, kind) for kind in _KINDS}
    for variant, answer in answers.items():
        users = frozenset(kind for kind, names in taken.items() if variant in names)
        if isinstance(answer, str):
            reasons.append(f"{variant}: {answer}")
            continue
        identity, reason = _identified(task, answer, users)
        if any(known == identity and of >= users for known, of, _ in found):
            continue
        if reason:
            reasons.append(f"{variant}: {reason}")
            continue
        found = [each for each in found if each[0] != identity or not each[1] <= users]
        found.append((identity, users, answer))
    return tuple(compiled for _, _, compiled in found), reasons


def _identified(task: Task, compiled: Compiled, users: Collection[type]) -> tuple[str, str]:
    """A key that equal variants share, and why this variant produces nothing."""
    try:
        identity, reason = normalised_digest(convert(task.source, task.name, compiled)), ""
    except NotConvertible as error:
        identity, reason = canonical_json([case.code for case in compiled.cases]), str(error)
    if _REPLACING & {*users} and has_products(compiled):
        return identity, ""
    if not reason and {*users} <= {TemplateSeed}:
        reason = "it calls no library, so there is nothing to replace"
    return identity, reason


def require_start(
    task: Task, config: Mapping[str, Any], why: str = "", error: type[UsageError] = NoStart
) -> None:
    """Raise the error, which gives the reason `why`, if a run would have nothing to start from."""
    if task.seeds or task.compiled or has_model(config):
        return
    raise error(
        f"task {task.name} has no program to start from on device={kind_of(config)}{why}: give one "
        "of yours, initial=[mine.py] (any ModelNew that is correct), put some into seeds/ beside "
        "the task file, or name a language model that writes the first one, llm.model=provider/NAME"
    )
