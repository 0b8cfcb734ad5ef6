"""`trackers=prometheus`: the runs of this process as metrics."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evolve.core.errors import UsageError
from evolve.serve.metrics.endpoint import Endpoint, families
from evolve.serve.token import read_token
from evolve.trackers import Point, TrackerFailed

TOKEN_VARIABLE = "EVOLVE_METRICS_TOKEN"
WORDS = "trackers=prometheus"
LABELS = ("run", "task", "project")
COUNTERS = {
    "used/proposals": ("proposals", "Proposals, failed ones included."),
    "used/tunings": ("tunings", "Proposals of operators that tune."),
    "used/evaluations": ("evaluations", "Full evaluations."),
    "used/screens": ("screens", "Evaluations that take few timings."),
    "used/wall_time_s": ("wall_time_seconds", "Active time of the run."),
    "used/device_time_s": ("device_time_seconds", "Exclusive device time."),
    "used/model_calls": ("model_calls", "Calls of models."),
    "used/tokens": ("tokens", "Tokens charged for calls of models."),
    "used/usd": ("usd", "US dollars charged for calls of models; missing if a price is unknown."),
}
GAUGES = {
    "best/speedup": ("best_speedup", "Speedup of the best program over the run's baseline."),
    "best/speedup_low": ("best_speedup_low", "Low end of its 95 % interval."),
    "best/speedup_high": ("best_speedup_high", "High end of its 95 % interval."),
    "best/speed_of_light": ("best_speed_of_light", "Its share of the device's limit."),
}
_FIDELITIES = {"step": "search", "screen": "screen", "verified": "verify"}


@dataclass(slots=True)
class RunState:
    """The newest values of a run, and counts of the steps of this session."""

    labels: tuple[str, ...]
    values: Mapping[str, float] = field(default_factory=dict)
    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    under_way: bool = True

    def add(self, point: Point) -> None:
        self.values = point.values
        for kind, fidelity in _FIDELITIES.items():
            if (correct := point.values.get(f"{kind}/correct")) is not None:
                self.steps[fidelity, "true" if correct else "false"] += 1


class Runs:
    """The collector of all runs of one address; runs that have ended keep their last values."""

    def __init__(self) -> None:
        self.states: dict[str, RunState] = {}  # by identity

    def collect(self) -> Iterator[Any]:
        core = families()
        states = list(self.states.values())
        for names, family in (
            (COUNTERS, core.CounterMetricFamily),
            (GAUGES, core.GaugeMetricFamily),
        ):
            for key, (name, about) in names.items():
                metric = family(f"evolve_run_{name}", about, labels=LABELS)
                for state in states:
                    if key in state.values:
                        metric.add_metric(state.labels, state.values[key])
                yield metric
        active = core.GaugeMetricFamily("evolve_run_active", "1 while it searches.", labels=LABELS)
        steps = core.CounterMetricFamily(
            "evolve_run_steps",
            "Told steps of this session.",
            labels=(*LABELS, "fidelity", "correct"),
        )
        for state in states:
            active.add_metric(state.labels, float(state.under_way))
            for outcome, count in state.steps.items():
                steps.add_metric((*state.labels, *outcome), count)
        yield from (active, steps)


@dataclass(slots=True)
class _Served:
    """An address that runs of this process share, as those of a bench do."""

    endpoint: Endpoint
    runs: Runs
    users: int = 0


_served: dict[tuple[str, int], _Served] = {}


class Prometheus:
    """`Tracker` that answers `GET /metrics`.

    Args:
        host: the interface; another than loopback needs a token.
        port: all runs of one process share it; 0 for any that is free.
        token_file: whose first line requests have to show; None: EVOLVE_METRICS_TOKEN, if it is
            set.

    Raises:
        UsageError: a library is missing, the port cannot be, or there is no token where one is
            needed.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 9464, token_file: str | None = None
    ) -> None:
        if not 0 <= port <= 65535:
            raise UsageError(f"trackers.prometheus.port={port}: it must be from 0 to 65535")
        token = read_token(
            token_file,
            os.environ,
            variable=TOKEN_VARIABLE,
            field="trackers.prometheus.token_file",
        )
        self._key = (host, port)
        self._runs = Runs()
        self._endpoint = Endpoint(self._runs, host=host, port=port, token=token, words=WORDS)
        self._state: RunState | None = None

    @property
    def url(self) -> str:
        """Where the metrics are, while a run is under way."""
        return _served[self._key].endpoint.url if self._key in _served else ""

    def begin(self, name: str, identity: str, config: Mapping[str, Any]) -> None:
        served = _served.get(self._key)
        if served is None:
            try:
                self._endpoint.open()
            except UsageError as error:
                raise TrackerFailed(str(error)) from error
            served = _served[self._key] = _Served(self._endpoint, self._runs)
        served.users += 1
        labels = (name, str(config["task"]), str(config.get("project") or ""))
        self._state = served.runs.states[identity] = RunState(labels)

    def add(self, point: Point) -> None:
        assert self._state is not None
        self._state.add(point)

    def end(self) -> None:
        if self._state is None:
            return
        self._state.under_way = False
        served = _served[self._key]
        served.users -= 1
        if not served.users:
            del _served[self._key]
            served.endpoint.close()
