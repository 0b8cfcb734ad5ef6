"""Judge, operator and loop for landscapes: the real engine and store, without a device or a model.

Noise, failures and proposals follow from texts, numbers of tickets and seeds alone, so that the
same run takes the same steps again.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolve.core.digest import framed_digest
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Elite, EvaluationRequest, Proposal
from evolve.search.engine import Search
from evolve.store import TicketState
from evolve.testing.landscapes import LEVELS, PEAK, Landscape, Point, constants, point_of

_EAGER_MS = 1.0
_STAGE = {Fidelity.SCREEN: Stage.SCREEN, Fidelity.VERIFY: Stage.VERIFY}
_NOISE = {Fidelity.SCREEN: 3.0, Fidelity.VERIFY: 1 / 3}  # of a full measurement's
_DEVICE_TIME_S = {Fidelity.SCREEN: 0.1, Fidelity.VERIFY: 3.0}
_PLANTED = {"CHEAT": Status.HACK, "WRONG": Status.WRONG_VALUE}
_PATTERNS = ("elementwise", "reduction", "two_pass", "tiled", "online")
_ACCESS = ("scalar", "vector", "blocked")
_PARALLELISM = ("serial", "threads", "simd", "threads+simd")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandscapeEvaluator:
    """An `Evaluator` (see evolve.core.protocols) for a landscape; pure in the request.

    Opponents are timed along, as in a duel; without a source they are the reference. Points are
    described in the words of the real judge, so
    that archives need no axes of their own: the structure is the compute pattern, the first two
    knobs are memory access and parallelism.

    Args:
        landscape: the one to judge.
        seed: of the noise.
        unlucky: by source, an offset of the log speedup of its first measurement.
    """

    landscape: Landscape
    seed: int = 0
    unlucky: Mapping[str, float] = field(default_factory=dict)
    slots: int = 1
    device_class: str = "landscape"
    evaluator_version: str = "landscape-1"

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return self.judge(request)

    async def close(self) -> None:
        """Nothing is held."""

    def judge(self, request: EvaluationRequest) -> Evaluation:
        """The verdict at once."""
        found = constants(request.source)
        status = next((_PLANTED[name] for name in _PLANTED if name in found), Status.CORRECT)
        correct = status is Status.CORRECT
        verdict = Evaluation(
            status=status,
            stage=_STAGE.get(request.fidelity, Stage.TIMING) if correct else Stage.SMOKE,
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self.device_class,
            evaluator_version=self.evaluator_version,
            custom=True if correct else None,
            feedback="" if correct else f"planted: {status}",
            environment={"device": self.device_class},
            device_time_s=_DEVICE_TIME_S.get(request.fidelity, 1.0) if correct else 0.1,
        )
        return self._timed(verdict, request) if correct else verdict

    def _timed(self, verdict: Evaluation, request: EvaluationRequest) -> Evaluation:
        deviation = self.landscape.noise * _NOISE.get(request.fidelity, 1.0)
        noise = self._draw(request).gauss(0.0, deviation)
        if request.repeat == 0 and request.fidelity is Fidelity.SEARCH:
            noise += self.unlucky.get(request.source, 0.0)
        speedup = math.exp(PEAK * self.landscape.score(request.source) + noise)
        spread = math.exp(1.96 * deviation)
        times = {"candidate": _EAGER_MS / speedup, "eager": _EAGER_MS} | {
            name: _EAGER_MS / math.exp(PEAK * self.landscape.score(source)) if source else _EAGER_MS
            for name, source in request.opponents.items()
        }
        ratios = {
            name: Ratio(*_around(time * speedup / _EAGER_MS, spread))
            for name, time in times.items()
            if name != "candidate"
        }
        case = CaseResult(
            name="only",
            weight=1.0,
            timed=True,
            passed=True,
            times_ms={
                name: Interval(*_around(time, 1.0 if name == "eager" else spread))
                for name, time in times.items()
            },
            ratios=ratios,
        )
        return replace(
            verdict,
            ratios=ratios,
            cases=(case,),
            descriptors=_described(point_of(request.source)),
        )

    def _draw(self, request: EvaluationRequest) -> random.Random:
        names = (str(self.seed), request.source, request.fidelity, str(request.repeat))
        return random.Random(int(framed_digest("landscape", *names), 16))


def _around(value: float, spread: float) -> tuple[float, float, float]:
    return value, value / spread, value * spread


def _described(point: Point) -> dict[str, float | str]:
    def word(words: Sequence[str], knob: int) -> str:
        return words[knob * len(words) // LEVELS]

    return {
        "compute_pattern": _PATTERNS[point.structure % len(_PATTERNS)],
        "memory_access": word(_ACCESS, point.knobs[0]),
        "parallelism": word(_PARALLELISM, point.knobs[1]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutate:
    """An `Operator` that stands in for a model: small changes of one program, and model's mishaps.

    One knob or two move by one to three levels, and sometimes the structure is another one.

    Args:
        landscape: which structures there are.
        switch: share of proposals with another structure.
        duplicates: share that is the parent with a comment.
        cheats: share that the judge finds cheating.
        wrong: share with wrong results.
    """

    landscape: Landscape
    switch: float = 0.1
    duplicates: float = 0.05
    cheats: float = 0.05
    wrong: float = 0.1
    parents: int = 1

    def propose(self, context: Context) -> Proposal | Declined:
        if not context.parents:
            return Declined("there is no program yet")
        parent = context.parents[0].program
        source = self.child(context.facts.source(parent), context.rng)
        return Proposal(program=Program(source), parents=(parent,))

    def child(self, source: str, rng: random.Random) -> str:
        """A program made of another one, with the mishaps."""
        kind = rng.random() - self.duplicates
        if kind < 0:
            return f"{source}\n# note {rng.random()}\n"
        child = self.move(point_of(source), rng).source()
        if kind < self.cheats:
            return f"{child}\n\nCHEAT = True\n"
        if kind < self.cheats + self.wrong:
            return f"{child}\n\nWRONG = True\n"
        return child

    def move(self, point: Point, rng: random.Random) -> Point:
        """Another point near by, without the mishaps."""
        structure, knobs = point.structure, list(point.knobs)
        others = [n for n in range(len(self.landscape.structures)) if n != structure]
        if others and rng.random() < self.switch:
            structure = rng.choice(others)
        for number in rng.sample(range(len(knobs)), rng.choice((1, 2))):
            step = rng.choice((-3, -2, -1, 1, 2, 3))
            knobs[number] = min(max(knobs[number] + step, 0), LEVELS - 1)
        return Point(structure, tuple(knobs))


def climb(search: Search, evaluator: LandscapeEvaluator, evaluations: int) -> Elite | None:
    """Ask, judge and tell until so many evaluations are made, or nothing is left to propose.

    Returns:
        The leader. At most ten tickets are asked per evaluation, for those that end as duplicates.
    """
    for _ in range(10 * evaluations):
        if not evaluations or (ticket := search.ask()) is None:
            break
        if ticket.state is TicketState.PROPOSED:
            search.tell(ticket, evaluator.judge(search.request(ticket)))
            evaluations -= 1
    return search.leader
