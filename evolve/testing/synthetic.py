"""A task without a device: a planted optimum, deterministic noise, planted failures.

Programs are ordinary Python modules that are never executed. The judge reads their module
constants and derives everything else (noise, failures) from the text, so that the same source
gets the same verdict in every process.
"""

import ast
import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evolve.core.digest import framed_digest
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task

OPTIMUM: Mapping[str, int] = {"BLOCK": 128, "UNROLL": 4, "STAGES": 3}
"""The constants of the best program of the synthetic task."""

PEAK_SPEEDUP = 4.0
"""The speedup of a program with the constants of `OPTIMUM`, noise apart."""

SEED_SOURCE = '''\
"""A synthetic kernel: nothing here is ever executed."""

TUNABLE = {
    "BLOCK": (16, 32, 64, 128, 256),
    "UNROLL": (1, 2, 4, 8),
    "STAGES": (1, 2, 3, 4),
}

BLOCK = 16
UNROLL = 1
STAGES = 1


def tile(x):
    return x[:BLOCK]


class ModelNew:
    def forward(self, x):
        return tile(x) * UNROLL * STAGES
'''

REFERENCE = """\
class Model:
    def forward(self, x):
        return x


def get_inputs():
    return [0.0]


def get_init_inputs():
    return []
"""
"""Source of the synthetic task's reference, which is never executed."""

_EAGER_MS = 1.0
_COMPILED_MS = 0.8  # of a baseline that is the reference, run in another way
_STAGE = {
    Fidelity.CHECK: Stage.CORRECTNESS,
    Fidelity.SCREEN: Stage.SCREEN,
    Fidelity.REWARD: Stage.TIMING,
    Fidelity.SEARCH: Stage.TIMING,
    Fidelity.VERIFY: Stage.VERIFY,
}
_FAILED_STAGE = {
    Status.INVALID_INTERFACE: Stage.NONE,
    Status.COMPILE_ERROR: Stage.INTERFACE,
    Status.RUNTIME_EXCEPTION: Stage.COMPILE,
}
# Device seconds, and the half-width of the interval (natural log), by fidelity.
_DEVICE_TIME_S = {
    Fidelity.CHECK: 0.05,
    Fidelity.SCREEN: 0.1,
    Fidelity.REWARD: 0.5,
    Fidelity.SEARCH: 1.0,
    Fidelity.VERIFY: 3.0,
}
_HALF_WIDTH = {
    Fidelity.SCREEN: 0.06,
    Fidelity.REWARD: 0.04,
    Fidelity.SEARCH: 0.02,
    Fidelity.VERIFY: 0.01,
}


def synthetic_task(*, seeds: tuple[str, ...] = (SEED_SOURCE,)) -> Task:
    """The task that `SyntheticEvaluator` judges."""
    return Task(name="synthetic", source=REFERENCE, size="tiny", seeds=seeds)


def synthetic_seeds(count: int) -> tuple[str, ...]:
    """So many programs for the synthetic task, with the same tunables and none tuned yet."""
    last = "tile(x) * UNROLL * STAGES"
    return tuple(SEED_SOURCE.replace(last, f"{last} + {number}") for number in range(count))


def constants(source: str) -> dict[str, float]:
    """The numeric module constants of a source. Raises SyntaxError if it does not parse."""
    found: dict[str, float] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        value = node.value.value
        if isinstance(value, (int, float)) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = float(value)
    return found


def true_speedup(source: str) -> float:
    """The noise-free speedup: every octave (or step, for STAGES) off the optimum costs a share."""
    found = constants(source)
    off = (
        abs(math.log2(max(found.get("BLOCK", 1.0), 1.0) / OPTIMUM["BLOCK"])),
        abs(math.log2(max(found.get("UNROLL", 1.0), 1.0) / OPTIMUM["UNROLL"])),
        abs(found.get("STAGES", 1.0) - OPTIMUM["STAGES"]),
    )
    return PEAK_SPEEDUP * math.exp(-0.35 * off[0] - 0.25 * off[1] - 0.15 * off[2])


@dataclass(kw_only=True)
class SyntheticEvaluator:
    """An `Evaluator` (see evolve.core.protocols) for the synthetic task.

    Args:
        slots: how many requests may be under way at once.
        latency_s: wall time of one evaluation.
        noise: standard deviation of the log speedup; drawn from the source's digest, afresh if the
            source is evaluated again.
        failures: share of sources that end with a status other than correct, by status. The
            task's own seeds and the optimum are spared.
        device_class: recorded with every evaluation.
        evaluator_version: recorded with every evaluation.

    Attributes:
        calls: evaluations started.
        peak: most evaluations ever under way at once.
        closed: whether `close` was called.
    """

    slots: int = 1
    latency_s: float = 0.0
    noise: float = 0.005
    failures: Mapping[Status, float] = field(default_factory=dict)
    device_class: str = "synthetic"
    evaluator_version: str = "synthetic-1"
    calls: int = field(default=0, init=False)
    peak: int = field(default=0, init=False)
    closed: bool = field(default=False, init=False)
    _under_way: int = field(default=0, init=False)

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.calls += 1
        self._under_way += 1
        self.peak = max(self.peak, self._under_way)
        try:
            await asyncio.sleep(self.latency_s)
            return self.judge(request)
        finally:
            self._under_way -= 1

    async def close(self) -> None:
        self.closed = True

    def judge(self, request: EvaluationRequest) -> Evaluation:
        """The verdict at once; a pure function of the request and the settings."""
        status = self._status(request)
        correct = status is Status.CORRECT
        return Evaluation(
            status=status,
            stage=_STAGE[request.fidelity] if correct else _FAILED_STAGE.get(status, Stage.SMOKE),
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self.device_class,
            evaluator_version=self.evaluator_version,
            custom=True if correct else None,
            feedback="" if correct else f"planted failure: {status}",
            environment={"device": self.device_class},
            descriptors=_descriptors(request.source) if correct else {},
            device_time_s=_DEVICE_TIME_S[request.fidelity] if correct else 0.0,
            **(self._times(request) if correct and request.fidelity in _HALF_WIDTH else {}),
        )

    def _status(self, request: EvaluationRequest) -> Status:
        try:
            found = constants(request.source)
        except SyntaxError:
            return Status.COMPILE_ERROR
        if "class ModelNew" not in request.source:
            return Status.INVALID_INTERFACE
        if request.source in request.task.seeds or OPTIMUM.items() <= found.items():
            return Status.CORRECT
        draw = _draw("failure", request.source).random()
        for status, share in sorted(self.failures.items()):
            if draw < share:
                return status
            draw -= share
        return Status.CORRECT

    def _times(self, request: EvaluationRequest) -> dict[str, Any]:
        again = [str(request.repeat)] if request.repeat else []
        candidate = self._time_ms(request.source, request.fidelity, *again)
        sides = {"eager": _EAGER_MS} | {
            name: self._time_ms(source, request.fidelity)
            for name, source in request.opponents.items()
        }
        spread = _HALF_WIDTH[request.fidelity]
        ratios = {name: Ratio(*_around(time / candidate, spread)) for name, time in sides.items()}
        times = {
            name: Interval(*_around(time, spread))
            for name, time in {"candidate": candidate, **sides}.items()
        }
        case = CaseResult(
            name="only", weight=1.0, timed=True, passed=True, times_ms=times, ratios=ratios
        )
        samples = {"only": {name: [[candidate, time]] for name, time in sides.items()}}
        return {"ratios": ratios, "cases": (case,), "samples": samples}

    def _time_ms(self, source: str, fidelity: Fidelity, *again: str) -> float:
        if not source:
            return _COMPILED_MS
        noise = _draw("noise", source, fidelity, *again).gauss(0.0, self.noise)
        return _EAGER_MS / true_speedup(source) * math.exp(noise)


def _descriptors(source: str) -> dict[str, float | str]:
    found = constants(source)
    return {
        "block": found.get("BLOCK", 1.0),
        "unroll": found.get("UNROLL", 1.0),
        "pipelining": "deep" if found.get("STAGES", 1.0) > 2 else "shallow",
    }


def _draw(*names: str) -> random.Random:
    return random.Random(int(framed_digest(*names), 16))


def _around(value: float, spread: float) -> tuple[float, float, float]:
    return value, value * math.exp(-spread), value * math.exp(spread)
