"""The mutation audit: mutants of a kernel before the service, and before an oracle outside it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.task import Task
from evolve.evaluation.local import package_path, worker_environment
from evolve.evaluation.mutation.mutant import Mutant

SEEDS = 200
_OWN_SEEDS = 24  # for the kernel itself, before any mutant: what is wrong with it would show soon
_LINE = 16 << 20  # bytes; the longest source or answer is far below


class Fate(StrEnum):
    """The fate of a mutant."""

    INVALID = "invalid"  # does not compile, or is refused by Python or Triton on every call
    UNPROVEN = "unproven"  # equivalent, or not proven wrong
    KILLED = "killed"  # provably wrong, and the service says so too
    SURVIVED = "survived"  # provably wrong, and the service calls it correct
    UNDECIDED = "undecided"  # the service itself failed


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant with the service's verdict and the oracle's.

    `status` is what the service says. `proof` is the oracle's (None: not proven), `kills` are the
    places of the ordinary ladder (`case/family`) whose inputs alone tell it from a right kernel.
    """

    mutant: Mutant
    fate: Fate
    status: Status
    feedback: str
    proof: Mapping[str, Any] | None = None
    kills: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        mutant = self.mutant
        return {
            "kind": mutant.kind.value,
            "line": mutant.line,
            "before": mutant.before,
            "after": mutant.after,
            "fate": self.fate.value,
            "status": self.status.value,
            "feedback": self.feedback,
            "proof": dict(self.proof) if self.proof else None,
            "kills": list(self.kills),
        }


class OracleProcess:
    """The oracle in its own process; answers one mutant after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self.places: tuple[str, ...] = ()

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer. Raises EvaluatorUnavailable if the oracle has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
            except ConnectionError:
                line = b""
        if not line:
            raise EvaluatorUnavailable("the oracle of the mutation audit ended; see its message")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def oracle(task: Task, cache: Path, device: str, seeds: int) -> AsyncIterator[OracleProcess]:
    """A started oracle for a task, ended with the block."""
    environment = worker_environment(package_path())
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "evolve.evaluation.mutation.oracle",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        limit=_LINE,
    )
    try:
        started = OracleProcess(process)
        data = replace(task, seeds=()).to_json()
        first = {"task": data, "seeds": seeds, "cache": str(cache), "device": device}
        started.places = tuple((await started.ask(first))["places"])
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def audit(
    evaluator: Evaluator,
    prover: OracleProcess,
    task: Task,
    source: str,
    mutants: Sequence[Mutant],
    tell: Callable[[Judged], None],
) -> list[Judged]:
    """The fate of every mutant, in order; `tell` gets each as soon as it is known.

    Raises:
        UsageError: the kernel itself is not correct.
        EvaluatorUnavailable: the service or the oracle cannot go on.
    """
    await _require_correct(evaluator, prover, task, source)
    turns = asyncio.Semaphore(evaluator.slots)

    async def try_one(mutant: Mutant) -> Judged:
        async with turns:
            judged = await _try(evaluator, prover, task, mutant)
        tell(judged)
        return judged

    return await asyncio.gather(*(try_one(mutant) for mutant in mutants))


async def _require_correct(
    evaluator: Evaluator, prover: OracleProcess, task: Task, source: str
) -> None:
    evaluation = await evaluator.evaluate(_request(task, source))
    if evaluation.status is not Status.CORRECT:
        raise UsageError(
            f"a mutation audit needs a correct kernel; this one is judged {evaluation.status}: "
            f"{evaluation.feedback}"
        )
    about = {"source": source, "device_class": evaluator.device_class}
    answer = await prover.ask(about | {"seeds": _OWN_SEEDS})
    if answer["proof"] or answer["invalid"]:
        raise UsageError(
            "a mutation audit needs a correct kernel; outside of the service this one is wrong: "
            f"{answer['invalid'] or answer['proof']}"
        )


async def _try(evaluator: Evaluator, prover: OracleProcess, task: Task, mutant: Mutant) -> Judged:
    evaluation = await evaluator.evaluate(_request(task, mutant.source))
    status, feedback = evaluation.status, evaluation.feedback
    if status is Status.INFRA:
        return Judged(mutant, Fate.UNDECIDED, status, feedback)
    if status in (Status.COMPILE_ERROR, Status.INVALID_INTERFACE):
        return Judged(mutant, Fate.INVALID, status, feedback)
    about = {"source": mutant.source, "device_class": evaluator.device_class}
    answer = await prover.ask(about)
    fate = _fate(answer, status)
    return Judged(mutant, fate, status, feedback, answer["proof"], tuple(answer["kills"]))


def _fate(answer: Mapping[str, Any], status: Status) -> Fate:
    if answer["invalid"]:
        return Fate.INVALID
    if answer["proof"] is None:
        return Fate.UNPROVEN
    return Fate.SURVIVED if status is Status.CORRECT else Fate.KILLED


def _request(task: Task, source: str) -> EvaluationRequest:
    return EvaluationRequest(
        task=task,
        instance=instance_digest(Program(source).digest, {}),
        source=source,
        fidelity=Fidelity.CHECK,
    )
