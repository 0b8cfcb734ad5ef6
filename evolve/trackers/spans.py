"""OpenTelemetry by OTLP over HTTP: spans of a run, its steps, model calls and judge stages."""

import importlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation
from evolve.search.execution.calls import Answered
from evolve.search.execution.judging import Told
from evolve.store import TicketState
from evolve.trackers.tracker import Point, TrackerFailed, require

STAGES = (
    *("compile", "smoke", "correctness", "screen", "timing", "speed_of_light"),
    *("labels", "profile", "tools"),
)
"""Stages of the judge that take time, in the order of the ladder."""

EXPORT_S = 5.0  # for one batch, and for the last one when a session ends
SDK = "opentelemetry.sdk.trace"
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class OpenTelemetry:
    """`Tracker` that sends spans; times of stages are those that the judge has measured.

    Spans carry numbers and names, never source text, prompts or replies. Headers such as keys come
    from OTEL_EXPORTER_OTLP_HEADERS.

    Args:
        endpoint: of OTLP over HTTP, e.g. http://collector:4318/v1/traces; None:
            OTEL_EXPORTER_OTLP_ENDPOINT, or else http://localhost:4318.
        service: the name that spans are shown under.

    Raises:
        UsageError: a library is missing, or the endpoint cannot be.
    """

    def __init__(self, endpoint: str | None = None, service: str = "evolve") -> None:
        for library in ("opentelemetry", SDK, EXPORTER):
            require(library, "telemetry", tracker="opentelemetry")
        if endpoint is not None and ("@" in endpoint or not endpoint.startswith("http")):
            raise UsageError(
                "trackers.opentelemetry.endpoint: give http://HOST:4318/v1/traces; keys belong "
                "into OTEL_EXPORTER_OTLP_HEADERS"
            )
        self._endpoint, self._service = endpoint, service
        self._answered: dict[int, list[Answered]] = {}  # by sequence number of the step

    def begin(self, name: str, identity: str, config: Mapping[str, Any]) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a failure is said once
        sdk, resources = importlib.import_module(SDK), f"{SDK.removesuffix('.trace')}.resources"
        resource = importlib.import_module(resources).Resource.create(
            {"service.name": self._service}
        )
        export = importlib.import_module(f"{SDK}.export")
        otlp = importlib.import_module(EXPORTER).OTLPSpanExporter
        self._exporter = _Noting(otlp(endpoint=self._endpoint, timeout=EXPORT_S), export)
        self._provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(export.BatchSpanProcessor(self._exporter))
        self._trace = importlib.import_module("opentelemetry.trace")
        self._tracer = self._provider.get_tracer("evolve")
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        attributes = {"evolve.run": name, "evolve.identity": identity}
        attributes |= {f"evolve.{key}": str(config.get(key) or "") for key in ("task", "project")}
        attributes["evolve.config"] = canonical_json(config)
        self._run = self._tracer.start_span("run", attributes=attributes)

    def add(self, point: Point) -> None:
        """Nothing: `told` has more."""

    def answered(self, event: Answered) -> None:
        """A call has ended; its span is sent with the step's, which may end here."""
        self._require_exporter()
        sequence = event.ticket.sequence
        self._answered.setdefault(sequence, []).append(event)
        if event.ticket.state is TicketState.TOLD:  # nothing came of it that could be judged
            calls = self._answered.pop(sequence)
            self._step(event.ticket, calls, {"evolve.failure": True}, calls[0].began, event.ended)

    def told(self, told: Told) -> None:
        self._require_exporter()
        now = time.monotonic()
        calls = self._answered.pop(told.ticket.sequence, [])
        began = now if told.began is None else told.began
        first = min([began, *(call.began for call in calls)])
        step = self._step(told.ticket, calls, _outcome(told.evaluation), first, now)
        evaluation = self._span("evaluation", step, _outcome(told.evaluation), began, now)
        for name, start, end in stages(told.evaluation.durations_s, began, now):
            self._span(name, evaluation, {}, start, end)

    def end(self) -> None:
        self._run.end()
        self._provider.force_flush(int(EXPORT_S * 1000))
        self._provider.shutdown()
        self._require_exporter()

    def _step(
        self, ticket: Any, calls: list[Answered], more: dict[str, Any], start: float, end: float
    ) -> Any:
        attributes = {"evolve.sequence": ticket.sequence, "evolve.operator": ticket.operator} | more
        step = self._span("step", self._run, attributes, start, end)
        for call in calls:
            self._span("model call", step, _called(call), call.began, call.ended)
        return step

    def _span(
        self, name: str, parent: Any, attributes: dict[str, Any], start: float, end: float
    ) -> Any:
        """A span that is over, between two times on the clock of `time.monotonic`."""
        context = self._trace.set_span_in_context(parent)
        span = self._tracer.start_span(
            name, context=context, attributes=attributes, start_time=self._ns(start)
        )
        span.end(self._ns(max(start, end)))
        return span

    def _ns(self, seconds: float) -> int:
        return self._epoch_ns + int(seconds * 1e9)

    def _require_exporter(self) -> None:
        if self._exporter.failed:
            raise TrackerFailed("the endpoint takes no spans; is a collector there?")


def stages(
    durations_s: Mapping[str, float], start: float, end: float
) -> Iterator[tuple[str, float, float]]:
    """The judge's stages one after the other, the last one ending when the verdict came."""
    spent = [(name, durations_s[name]) for name in STAGES if name in durations_s]
    at = max(start, end - sum(seconds for _, seconds in spent))
    for name, seconds in spent:
        yield name, at, min(at + seconds, end)
        at = min(at + seconds, end)


def _outcome(evaluation: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "evolve.status": evaluation.status.value,
        "evolve.fidelity": evaluation.fidelity.value,
        "evolve.device_time_s": evaluation.device_time_s,
    }
    for name, ratio in evaluation.ratios.items():
        ends = {"": ratio.value, "_low": ratio.low, "_high": ratio.high}
        found |= {f"evolve.speedup.{name}{end}": value for end, value in ends.items()}
    return found


def _called(call: Answered) -> dict[str, Any]:
    """By the semantic conventions for generative AI."""
    reply = call.reply
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": reply.model,
        "evolve.status": reply.status.value,
        "evolve.attempts": reply.attempts,
    }
    if reply.usage is not None:
        found["gen_ai.usage.input_tokens"] = reply.usage.prompt
        found["gen_ai.usage.output_tokens"] = reply.usage.completion
    return found if reply.cost_usd is None else found | {"evolve.usd": reply.cost_usd}


class _Noting:
    """An exporter that remembers whether it failed last."""

    def __init__(self, exporter: Any, export: Any) -> None:
        self._exporter, self._success = exporter, export.SpanExportResult.SUCCESS
        self.failed = False

    def export(self, spans: Any) -> Any:
        result = self._exporter.export(spans)
        self.failed = result is not self._success
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))
