"""The judge's verdict on one instance of a program: a closed status and exactly its payload."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from evolve.core.measurement import Interval, Ratio


class Status(StrEnum):
    """How an evaluation ended. Only `CORRECT` may carry ratios."""

    CORRECT = "correct"
    INVALID_INTERFACE = "invalid_interface"  # no ModelNew, wrong signature, other parameters
    COMPILE_ERROR = "compile_error"
    RUNTIME_EXCEPTION = "runtime_exception"
    ILLEGAL_ACCESS = "illegal_access"  # segmentation fault, illegal or misaligned device access
    ASSERT = "assert"  # abort, device assert
    OOM = "oom"
    TIMEOUT = "timeout"
    KILLED = "killed"  # the process ended by itself or by a signal before it had answered
    WRONG_TREE = "wrong_tree"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_VALUE = "wrong_value"
    NONDETERMINISTIC = "nondeterministic"
    MUTATED_INPUT = "mutated_input"
    ALIASED = "aliased"
    TIMING_UNBOUNDED = "timing_unbounded"  # correct, but no trustworthy time could be taken
    HACK = "hack"
    INFRA = "infra"  # our fault, never the candidate's: retried, and no score

    @classmethod
    def _missing_(cls, value: object) -> "Status | None":
        """Reads the former word of a stored verdict."""
        return cls.INVALID_INTERFACE if value == "contract" else None


class Stage(IntEnum):
    """The ladder, cheapest rung first; an evaluation records the last one passed."""

    NONE = 0
    INTERFACE = 1
    COMPILE = 2
    SMOKE = 3
    CORRECTNESS = 4
    SCREEN = 5
    TIMING = 6
    VERIFY = 7


class Fidelity(StrEnum):
    """How far up the ladder an evaluation goes.

    `CHECK` judges correctness and which kernels made the outcome, and takes no time; `SCREEN` times
    a few pairs only and never crowns a program; `REWARD` is for training: the whole ladder, its
    interval only as narrow as a decision needs; `SEARCH` is the whole ladder; `VERIFY` repeats it
    in fresh processes with fresh seeds and more pairs.
    """

    CHECK = "check"
    SCREEN = "screen"
    REWARD = "reward"
    SEARCH = "search"
    VERIFY = "verify"


EARLY_STOPPED = "early_stopped"
"""Label of a verdict whose timing ended at an interim analysis: its run needed no more."""

OPPONENT_FAILED = "opponent_failed"
"""Label of a verdict without the times of an opponent, whose name its evidence begins with."""

DEVICE_OOM = "device_oom"
"""Label of a verdict that lacked memory even with no other evaluation under way."""

DEVICE_BUSY = "device_busy"
"""Label of a verdict that failed because processes of others keep the device busy."""

UNTESTED_DEVICE = "untested_device"
"""Label of a verdict of a kind of device that is untested on hardware (`DeviceKind`)."""

_FORMER_LABELS = {"cut_short": EARLY_STOPPED, "no_room": DEVICE_OOM, "occupied": DEVICE_BUSY}
_FORMER_SAMPLES = {"told": "self_reported", "apart": "separate"}


def label_name(stored: str) -> str:
    """The present name of a label that may have been stored under a former one."""
    return _FORMER_LABELS.get(stored, stored)


@dataclass(frozen=True, slots=True)
class Label:
    """A finding about a candidate with the evidence for it; a label is never the boundary."""

    name: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case (shape and dtype) of a task.

    `times_ms` has the median time per call of each side (`candidate`, `eager`, ...), `ratios` the
    speedup of the candidate against each other side; both empty if the case was not timed.
    `speed_of_light` is the share of the device's limits that is reached: the time that the
    reference's bytes and operations would take at measured rates over the candidate's time; `bound`
    says which of them takes longer (`memory`, `fp32 arithmetic`). An estimate: above 1 is possible.
    """

    name: str
    weight: float
    timed: bool
    passed: bool
    times_ms: Mapping[str, Interval] = field(default_factory=dict)
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    speed_of_light: float | None = None
    bound: str = ""


Times = Mapping[str, Sequence[Sequence[float]]]
"""Milliseconds of a call by side: a row for each pair of processes, a number for each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSamples:
    """Raw times of calls recorded as a CUDA graph, and why some sides have none."""

    ms: Times = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[str, Ratio] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        given = {"ms": self.ms, "why_not": self.why_not}
        ratios = {side: ratio.to_json() for side, ratio in self.ratios.items()}
        return {name: dict(value) for name, value in given.items() if value} | {"ratios": ratios}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GraphSamples":
        ratios = {side: Ratio(*bounds) for side, bounds in data.get("ratios", {}).items()}
        return cls(ms=data.get("ms", {}), why_not=data.get("why_not", {}), ratios=ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSamples:
    """Raw times of a case, of the sides that were timed together.

    `overhead_ms` is the time of a window without calls, for each pair of processes.
    `self_reported` holds times by the clocks of the sides' own processes, which decide nothing.
    `separate` has the samples of sides that were timed after those, without room beside them.
    """

    calls_per_block: int = 0
    overhead_ms: Sequence[float] = ()
    ms: Times = field(default_factory=dict)
    graph: GraphSamples | None = None
    self_reported: Mapping[str, Any] = field(default_factory=dict)
    separate: tuple["CaseSamples", ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data as `Evaluation.samples` has it."""
        data: dict[str, Any] = {
            "calls_per_block": self.calls_per_block,
            "overhead_ms": list(self.overhead_ms),
            "ms": dict(self.ms),
        }
        if self.graph is not None:
            data["graph"] = self.graph.to_json()
        if self.self_reported:
            data["self_reported"] = dict(self.self_reported)
        if self.separate:
            data["separate"] = [samples.to_json() for samples in self.separate]
        return data

    @classmethod
    def from_json(cls, data: Any) -> "CaseSamples":
        """Samples as they are stored; none of anything but an object."""
        if not isinstance(data, Mapping):
            return cls()
        graph = data.get("graph")
        return cls(
            calls_per_block=data.get("calls_per_block", 0),
            overhead_ms=data.get("overhead_ms", ()),
            ms=data.get("ms", {}),
            graph=None if graph is None else GraphSamples.from_json(graph),
            self_reported=data.get("self_reported", {}),
            separate=tuple(map(cls.from_json, data.get("separate", ()))),
        )


def stages_s(durations_s: Mapping[str, float]) -> float:
    """Seconds of all stages of a judgement; `timing_turn` and others are parts of `timing`."""
    return math.fsum(s for name, s in durations_s.items() if not name.startswith("timing_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The judge's verdict on one instance.

    `ratios` maps a baseline (`eager`, `file:mine.py`, `elite`) to the speedup against it, weighted
    over the timed cases, each from one interleaved run. `custom` says whether custom kernels
    produced the outcome (None: not established). `suite` is the suite's own verdict, if the task
    has one. `samples` holds the raw times by case as they are stored (`case_samples`).
    `durations_s` are seconds by stage; `timing_turn` and others are parts of `timing`: waiting for
    one's turn, `opening` processes, waiting for the `lock`, `judging` outputs, `closing`.
    `device_time_s` is the cost of the evaluation in exclusive device seconds.
    """

    status: Status
    stage: Stage
    fidelity: Fidelity
    task_revision: str
    device_class: str
    evaluator_version: str
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    cases: tuple[CaseResult, ...] = ()
    custom: bool | None = None
    suite: bool | None = None
    labels: tuple[Label, ...] = ()
    feedback: str = ""
    descriptors: Mapping[str, float | str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, Any] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    device_time_s: float = 0.0

    def __post_init__(self) -> None:
        if self.ratios and self.status is not Status.CORRECT:
            raise ValueError(f"an evaluation with status {self.status} carries no ratios")

    @property
    def strict(self) -> bool:
        """Our verdict: correct under the error budget, and made by custom kernels."""
        return self.status is Status.CORRECT and self.custom is True

    @property
    def is_worth_another_try(self) -> bool:
        """Whether the judge failed, except for failures that it has already retried alone.

        Not for want of memory, then, nor because others keep the device busy.
        """
        return self.status is Status.INFRA and not any(
            label.name in (DEVICE_OOM, DEVICE_BUSY) for label in self.labels
        )

    @property
    def early_stopped(self) -> bool:
        """Whether it is known no better than that run had use for."""
        return any(label.name == EARLY_STOPPED for label in self.labels)

    @property
    def case_samples(self) -> dict[str, CaseSamples]:
        """The raw times by case."""
        return {case: CaseSamples.from_json(row) for case, row in self.samples.items()}

    def fitness(self, baseline: str) -> Interval | None:
        """Natural log of the speedup against `baseline`; None unless strict and timed."""
        ratio = self.ratios.get(baseline)
        if not self.strict or ratio is None:
            return None
        return ratio.log()

    def to_json(self) -> dict[str, Any]:
        """Plain data for the wire and the store; `from_json` gives an equal object back."""
        return {
            "status": self.status.value,
            "stage": int(self.stage),
            "fidelity": self.fidelity.value,
            "task_revision": self.task_revision,
            "device_class": self.device_class,
            "evaluator_version": self.evaluator_version,
            "ratios": {name: ratio.to_json() for name, ratio in self.ratios.items()},
            "cases": [_case_to_json(case) for case in self.cases],
            "custom": self.custom,
            "suite": self.suite,
            "labels": [[label.name, label.evidence] for label in self.labels],
            "feedback": self.feedback,
            "descriptors": dict(self.descriptors),
            "environment": dict(self.environment),
            "samples": dict(self.samples),
            "durations_s": dict(self.durations_s),
            "device_time_s": self.device_time_s,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Evaluation":
        fields = dict(data)
        fields["status"] = Status(data["status"])
        fields["stage"] = Stage(data["stage"])
        fields["fidelity"] = Fidelity(data["fidelity"])
        fields["ratios"] = {name: Ratio(*bounds) for name, bounds in data["ratios"].items()}
        fields["cases"] = tuple(_case_from_json(case) for case in data["cases"])
        fields["labels"] = tuple(Label(label_name(name), said) for name, said in data["labels"])
        samples = data.get("samples", {})
        fields["samples"] = {case: _renamed(row) for case, row in samples.items()}
        return cls(**fields)


def _renamed(row: Any) -> Any:
    """A case's samples under their present names; anything but an object is kept."""
    if not isinstance(row, Mapping):
        return row
    return {_FORMER_SAMPLES.get(name, name): value for name, value in row.items()}


def _case_to_json(case: CaseResult) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": case.name,
        "weight": case.weight,
        "timed": case.timed,
        "passed": case.passed,
        "times_ms": {side: time.to_json() for side, time in case.times_ms.items()},
        "ratios": {side: ratio.to_json() for side, ratio in case.ratios.items()},
    }
    if case.speed_of_light is not None:
        data |= {"speed_of_light": case.speed_of_light, "bound": case.bound}
    return data


def _case_from_json(data: Mapping[str, Any]) -> CaseResult:
    fields = dict(data)
    fields["times_ms"] = {side: Interval(*time) for side, time in data["times_ms"].items()}
    fields["ratios"] = {side: Ratio(*ratio) for side, ratio in data["ratios"].items()}
    return CaseResult(**fields)
