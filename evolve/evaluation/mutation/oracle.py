"""`python -m evolve.evaluation.mutation.oracle`: proves mutants wrong, outside of the service.

It shares the task's definition, its input families and its error budgets with the judge, and
neither seeds, nor processes, nor the way there: a mutant and the reference are simply run. A mutant
is provably wrong if its error is over four times the budget, or if it crashes or hangs, on
any of its inputs; the first proof ends the search for one. All others are equivalent, or unproven.

JSON lines: the first holds the task, each later one names a source, each gets one answer.
"""

import json
import math
import os
import shutil
import sys
from collections import OrderedDict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.evaluation.mutation.subject import Fault, Inputs, Outputs, Subject
from evolve.languages.registry import preloaded
from evolve.worker.build.cache import BuildCache
from evolve.worker.correctness.cases import LoadedCase, load_task
from evolve.worker.correctness.compare import judge
from evolve.worker.correctness.oracle import Expected
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.reference.seeding import derived_seed
from evolve.worker.session.candidate_session import Candidate

PROOF = 4.0  # times the budget
MODELS = 11  # sets of weights for each case; no divisor of the number of families
CHECKS = {"task": 3}  # inputs of a family that the service checks in each case; 1 of the others
_DISJOINT = 1 << 62  # the service's seeds are below
_KEPT = 256 << 20  # bytes of expected outcomes


@dataclass(frozen=True, slots=True)
class Proof:
    """The inputs on which a mutant is wrong; `error` in budgets, None if there was no value."""

    case: str
    family: str
    number: int
    how: str
    error: float | None


class Oracle:
    """Judges mutants of one task.

    Args:
        task: The task, at the size that the service judges it.
        seeds: Inputs of every case; input `k` is of family `k` modulo their number.
        cache: The folder where the service keeps builds, so that each is made once; a folder of the
            audit's own, because builds that have been examined are removed.
        device: Where mutants run.
    """

    def __init__(self, task: Task, seeds: int, cache: Path, device: str) -> None:
        torch.set_num_threads(1)  # a fork must not inherit a pool of threads that it has not got
        self._task = task.revision
        self._cases = load_task(task).cases
        self._seeds = seeds
        self._builds = BuildCache(cache)
        self._device = device
        self._expected: OrderedDict[Inputs, tuple[Expected, int]] = OrderedDict()

    def examine(self, source: str, device_class: str, seeds: int | None = None) -> dict[str, Any]:
        """Proof, or why it cannot run at all, and what each family of inputs makes of it.

        `device_class` is what the service built it for. `seeds` asks for fewer inputs than usual.
        `invalid` is what the very first call raises: a mutant that Triton or Python refuses.
        `kills` lists the places of the ordinary ladder (`case/family`) that tell it from the right
        kernel; it is made only for what is proven wrong.
        """
        build = self._builds.finished(Candidate(source).build_key(device_class))
        with Subject(source, build, self._cases, self._device) as subject:
            proof = self._prove(subject, seeds or self._seeds)
            invalid = proof is not None and proof.number == 0 and proof.how.startswith("raised")
            kills = self._kills(subject, proof) if proof and not invalid else []
        if build:
            shutil.rmtree(build, ignore_errors=True)
        if proof and invalid:
            return {"proof": None, "invalid": proof.how, "kills": []}
        return {"proof": asdict(proof) if proof else None, "invalid": "", "kills": kills}

    def places(self) -> list[str]:
        """All `case/family` of the ordinary ladder."""
        return [f"{case.name}/{family}" for case in self._cases for family in case.families()]

    def _prove(self, subject: Subject, seeds: int) -> Proof | None:
        for number in range(seeds):
            for at, case in enumerate(self._cases):
                families = case.families()
                inputs = self._inputs(at, families[number % len(families)], number)
                how, error = self._error(subject, inputs)
                if error > PROOF:
                    finite = error if math.isfinite(error) else None
                    return Proof(case.name, inputs.family, number, how, finite)
        return None

    def _kills(self, subject: Subject, proof: Proof) -> list[str]:
        if proof.how.startswith(("hung", "died")):  # whatever the values are; and it takes long
            return [f"{proof.case}/{proof.family}"]
        return [
            f"{case.name}/{family}"
            for at, case in enumerate(self._cases)
            for family in case.families()
            if any(self._is_killed(subject, at, family, n) for n in range(CHECKS.get(family, 1)))
        ]

    def _is_killed(self, subject: Subject, at: int, family: str, number: int) -> bool:
        _, error = self._error(subject, self._inputs(at, family, self._seeds + number))
        return error > 1

    def _error(self, subject: Subject, inputs: Inputs) -> tuple[str, float]:
        """The fault in a word or two, and the error in budgets."""
        case = self._cases[inputs.case]
        expected = self._expect(case, inputs)
        outcome = subject.call(inputs)
        if isinstance(outcome, Fault):
            return f"{outcome.how}: {outcome.detail}", math.inf
        return _judged(case, outcome, expected, inputs)

    def _inputs(self, at: int, family: str, number: int) -> Inputs:
        name = self._cases[at].name
        return Inputs(
            case=at,
            model_seed=self._seed(name, "model", str(number % MODELS)),
            seed=self._seed(name, family, str(number)),
            family=family,
        )

    def _seed(self, *purpose: str) -> int:
        return _DISJOINT | derived_seed(0, "mutation oracle", self._task, *purpose)

    def _expect(self, case: LoadedCase, inputs: Inputs) -> Expected:
        if inputs not in self._expected:
            model, values = case.model(inputs.model_seed), case.inputs(inputs.seed, inputs.family)
            expected = case.expected(model, values, inputs.family)
            kept = (*model.parameters(), *tensors_of(values))  # which it holds on to
            size = expected.nbytes + sum(tensor.nbytes for tensor in kept)
            self._expected[inputs] = expected, size
            while len(self._expected) > 1 and sum(n for _, n in self._expected.values()) > _KEPT:
                self._expected.popitem(last=False)
        return self._expected[inputs][0]


def _judged(
    case: LoadedCase, outcome: Outputs, expected: Expected, inputs: Inputs
) -> tuple[str, float]:
    values = case.inputs(inputs.seed, inputs.family) if case.check else []
    verdict = judge(case, outcome.tensors, outcome.spec, expected, values, explain=False)
    if verdict.margin is not None:
        return str(verdict.status), verdict.margin
    return str(verdict.status), 0.0 if verdict.status is Status.CORRECT else math.inf


def main() -> None:
    """Answer until the end of standard input; nothing else is written to standard output."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    oracle = Oracle(
        Task.from_json(first["task"]), first["seeds"], Path(first["cache"]), first["device"]
    )
    _import_languages()
    print(json.dumps({"places": oracle.places()}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(oracle.examine(**json.loads(line))), file=replies, flush=True)


def _import_languages() -> None:
    """Once here and not in every fork."""
    for name in preloaded():
        try:
            __import__(name)
        except ImportError:
            continue


if __name__ == "__main__":
    main()
