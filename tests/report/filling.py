"""A search that never ran: a store filled through its public methods, with a known outcome."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Label, Stage, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Program
from evolve.core.protocols import AddStatus, Elite, Failed, Offer, Proposal
from evolve.core.task import Task
from evolve.store import RunRow, Store, Ticket

TASK = Task(
    name="rmsnorm",
    source="import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)\n",
)
CONFIG = {
    "baseline": "eager",
    "termination": {"evaluations": 400, "wall_time": "2m"},
    "archive": {"_target_": "archives.map_elites.MapElites", "capacity": 1000},
    "llm": {"api_key": "sk-very-secret", "model": None},
}
ENVIRONMENT = {
    "device": "AMD EPYC 7763",
    "cores": "2",
    "torch": "2.13.0+cpu",
    "sandbox": "namespaces",
    "python": "3.11.9",
}
CASES = (("4096x1024", 2.0, 4.13, 1.08), ("512x4096", 1.0, 2.01, 1.0), ("64x96", 1.0, 0.0121, 0.3))

_SOURCE = '''\
"""RMS norm in one pass over each row."""

import torch
import tvm_ffi.cpp

BLOCK = 64
UNROLL = 1
TUNABLE = {{"BLOCK": (32, 64, 128, 256), "UNROLL": (1, 2, 4, 8)}}

cpp_source = r"""
#include <cmath>
#include <tvm/ffi/tvm_ffi.h>

void rmsnorm(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {{
  const int64_t rows = x.size(0), width = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  #pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {{
    float sums[{lanes}] = {{0}};
    for (int64_t i = 0; i < width; i += {lanes})
      for (int lane = 0; lane < {lanes}; ++lane)
        sums[lane] += in[row * width + i + lane] * in[row * width + i + lane];
{body}
  }}
}}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        MODULE.rmsnorm(x, y)
        return y
'''
_FAILURES = (
    (Status.COMPILE_ERROR, 0.10),
    (Status.WRONG_VALUE, 0.09),
    (Status.RUNTIME_EXCEPTION, 0.04),
    (Status.TIMEOUT, 0.02),
    (Status.ILLEGAL_ACCESS, 0.02),
    (Status.HACK, 0.01),
    (Status.MUTATED_INPUT, 0.01),
)


def source(number: int, lanes: int) -> str:
    """A different text for every number."""
    body = "\n".join(
        f"    // variant {number}, strategy {index}: "
        + ("prefetch the next row" if (number >> index) % 2 else "keep the scale in a register")
        for index in range(4)
    )
    return _SOURCE.format(lanes=lanes, body=body)


def evaluation(
    task: Task, status: Status, fidelity: Fidelity, log_speedup: float = 0.0, spread: float = 0.02
) -> Evaluation:
    """A verdict as a judge on a CPU would give it."""
    correct = status is Status.CORRECT
    extra = {}
    if correct:
        cases = tuple(_case(*case, log_speedup, spread) for case in CASES)
        extra = {"ratios": {"eager": ratio(log_speedup, spread)}, "cases": cases, "custom": True}
    return Evaluation(
        status=status,
        stage=Stage.TIMING if correct else Stage.SMOKE,
        fidelity=fidelity,
        task_revision=task.revision,
        device_class="cpu",
        evaluator_version="1",
        environment=ENVIRONMENT,
        durations_s={"compile": 0.2, "timing": 0.4, "timing_turn": 0.1},
        device_time_s=0.9 if fidelity is Fidelity.SEARCH else 0.2,
        **extra,
    )


def ratio(log_speedup: float, spread: float) -> Ratio:
    bounds = (log_speedup, log_speedup - spread, log_speedup + spread)
    return Ratio(*(math.exp(bound) for bound in bounds))


def _case(
    name: str, weight: float, eager: float, factor: float, log_speedup: float, spread: float
) -> CaseResult:
    own = ratio(log_speedup + math.log(factor), spread)
    return CaseResult(
        name=name,
        weight=weight,
        timed=True,
        passed=True,
        times_ms={
            "eager": Interval(eager, eager * 0.99, eager * 1.01),
            "candidate": Interval(
                eager / own.value, 0.99 * eager / own.value, 1.01 * eager / own.value
            ),
        },
        ratios={"eager": own},
    )


DESCRIPTORS = {"vector": "avx2", "tiling": 8.0, "memory_bytes": 1048576 * 10.0, "error": 0.1}


@dataclass(kw_only=True)
class Filling:
    """Fills one run step by step and keeps what a test wants to compare with."""

    store: Store
    name: str = "demo"
    task: Task = TASK
    seed: int = 0
    axes: bool = True
    config: Mapping[str, Any] = field(default_factory=lambda: CONFIG)
    run: RunRow = field(init=False)
    slots: dict[str, Elite] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = self.store.create_run(
            name=self.name, task=self.task, config=self.config, seed=self.seed
        )
        self.store.claim(self.run.id)
        self._rng = random.Random(self.seed)

    def step(
        self,
        operator: str,
        outcome: Proposal | Failed,
        verdict: Evaluation | None = None,
        slot: str = "",
    ) -> Ticket:
        """One ticket from ask to tell."""
        parents = outcome.parents if isinstance(outcome, Proposal) else ()
        ticket = self.store.propose(self.store.ask(self.run.id, operator, parents), outcome)
        if verdict is None:
            self.store.tell(ticket, None, None)
            return ticket
        self.store.start_evaluation(ticket)
        ticket = self.store.evaluated(ticket, verdict)
        elite = self._elite(ticket, verdict)
        self.store.tell(ticket, elite, self._offer(elite, slot) if elite else None)
        return ticket

    def search(self, programs: int, tuning: float = 0.35) -> "Filling":
        """A plausible search: seed, tune, improve, recombine; some fail, a few lead on."""
        root = Proposal(program=Program(source(0, 1)), note="the task's own seed")
        first = evaluation(self.task, Status.CORRECT, Fidelity.SEARCH, 0.05)
        self.step("seed", root, first, self._slot(0.05))
        for number in range(1, programs):
            self.store.heartbeat(self.run.id, 0.3)
            if self._rng.random() < 0.03:
                self.step("improve", Failed("the reply holds no edit"))
            elif self._rng.random() < tuning:
                self._tune()
            else:
                self._child(number)
        return self

    def verify(self) -> Ticket:
        best = max(self.slots.values(), key=lambda elite: elite.fitness.value)
        program = Program(self.store.source(best.program))
        again = Proposal(
            program=program,
            assignment=best.assignment,
            fidelity=Fidelity.VERIFY,
            parents=(best.program,),
        )
        verdict = evaluation(
            self.task, Status.CORRECT, Fidelity.VERIFY, best.fitness.value - 0.015, 0.008
        )
        return self.step("verify", again, replace(verdict, descriptors=DESCRIPTORS))

    def finish(self, reason: str = "400 evaluations") -> None:
        self.store.release(self.run.id, "finished", reason)

    def _tune(self) -> None:
        elite = self._parent()
        trial = {
            "BLOCK": self._rng.choice((32, 64, 128, 256)),
            "UNROLL": self._rng.choice((1, 2, 4, 8)),
        }
        fidelity = Fidelity.SCREEN if self._rng.random() < 0.5 else Fidelity.SEARCH
        program = Program(self.store.source(elite.program))
        proposal = Proposal(
            program=program, assignment=trial, fidelity=fidelity, parents=(elite.program,)
        )
        value = min(elite.fitness.value + self._rng.gauss(0.0, 0.06), math.log(4.6))
        self.step(
            "tune",
            proposal,
            evaluation(self.task, Status.CORRECT, fidelity, value),
            self._slot(value),
        )

    def _child(self, number: int) -> None:
        elite = self._parent()
        parents = [elite.program]
        operator = "improve"
        if len(self.slots) > 3 and self._rng.random() < 0.25:
            operator = "recombine"
            parents.append(self._parent().program)
        proposal = Proposal(
            program=Program(source(number, 2 ** self._rng.randrange(4))),
            parents=tuple(dict.fromkeys(parents)),
            note="Split the sum over independent lanes so that the loop can be vectorised.",
        )
        status = self._status()
        value = min(elite.fitness.value + self._rng.gauss(-0.12, 0.22), math.log(4.2))
        self.step(
            operator,
            proposal,
            evaluation(self.task, status, Fidelity.SEARCH, value),
            self._slot(value),
        )

    def _parent(self) -> Elite:
        ranked = sorted(self.slots.values(), key=lambda elite: -elite.fitness.value)
        return ranked[min(int(self._rng.expovariate(0.7)), len(ranked) - 1)]

    def _status(self) -> Status:
        draw = self._rng.random()
        for status, share in _FAILURES:
            if draw < share:
                return status
            draw -= share
        return Status.CORRECT

    def _slot(self, value: float) -> str:
        if not self.axes:
            return str(len(self.slots) % 8)
        level = min(max(int(value * 4), 0), 5)
        return f"vector_width={self._rng.choice((1, 4, 8))}|tiling={2**level}..{2 ** (level + 1)}"

    def _elite(self, ticket: Ticket, verdict: Evaluation) -> Elite | None:
        fitness = verdict.fitness(self.run.baseline)
        if fitness is None or verdict.fidelity is not Fidelity.SEARCH or ticket.proposal is None:
            return None
        return Elite(
            program=ticket.proposal.program.digest,
            assignment=ticket.proposal.assignment,
            fitness=fitness,
            descriptors={},
            sequence=ticket.sequence,
            operator=ticket.operator,
            parents=ticket.parents,
        )

    def _offer(self, elite: Elite, slot: str) -> Offer:
        held = self.slots.get(slot)
        if held and held.fitness.value >= elite.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        self.slots[slot] = elite
        return Offer(
            AddStatus.IMPROVED if held else AddStatus.NEW, slot, held.program if held else None
        )


def labelled(verdict: Evaluation, name: str, evidence: str) -> Evaluation:
    return replace(verdict, labels=(Label(name, evidence),))
