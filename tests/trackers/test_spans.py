"""Spans by OTLP over HTTP, received by a server of the tests.

Invariants:
1. A run's spans are a tree: run, steps, calls of models and evaluations, stages of the judge; each
   lies within its parent, and every told step has one.
2. No text of programs, prompts and replies is in them.
3. A collector that is away is said once, and the search goes on without it.
4. Without the tracker nothing of OpenTelemetry is imported.
"""

import asyncio
import gzip
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evolve.app import components
from evolve.core.errors import UsageError
from evolve.store import Store
from evolve.testing.model_server import ModelServer
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from evolve.trackers.spans import stages
from tests.cli.at_terminal import search
from tests.cli.recording import script, settings, words
from tests.serve.pulling import free_port

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)


class Judge(SyntheticEvaluator):
    """Says how long its stages took."""

    async def evaluate(self, request):
        await asyncio.sleep(0.03)
        verdict = await super().evaluate(request)
        spent = {"timing": 0.01, "compile": 0.005, "correctness": 0.002}
        pairs = {"only": {"overhead_ms": [0.1, 0.1]}}
        return replace(verdict, durations_s=spent, samples=pairs)


@pytest.fixture
def collector():
    """The URL of a collector, and the spans that it got."""
    spans = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    server.shutdown()
    server.server_close()


def sit(*more: str) -> None:
    """A run with a model, whose replies are sometimes no program."""
    with ModelServer(script) as server, Store.open("evolve.db", create=True) as store:
        config = settings("name=demo", "termination.evaluations=8", *words(server), *more)
        config |= {"audit": []}
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        assert asyncio.run(search(store, run, config, Judge())) == 0


def test_a_run_is_a_tree_of_spans(collector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-no-account")
    url, spans = collector
    sit("trackers=opentelemetry", f"trackers.opentelemetry.endpoint={url}")
    by_id = {span.span_id: span for span in spans}
    parents = {"run": {""}, "step": {"run"}, "model call": {"step"}, "evaluation": {"step"}}
    parents |= {name: {"evaluation"} for name in ("compile", "correctness", "timing")}
    for span in spans:
        above = by_id.get(span.parent_span_id)
        assert (above.name if above else "") in parents[span.name]
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if above:
            assert above.start_time_unix_nano <= span.start_time_unix_nano + 1000
            assert span.end_time_unix_nano <= above.end_time_unix_nano + 1000
    count = Counter(span.name for span in spans)
    with Store.open("evolve.db", read_only=True) as store:
        steps = list(store.steps(store.run().id))
        calls = store.progress(store.run().id).calls
    assert count["run"] == 1
    assert count["model call"] == calls > 0
    assert count["evaluation"] == count["timing"] == sum(step.status is not None for step in steps)
    assert count["step"] >= count["evaluation"]
    assert len({span.trace_id for span in spans}) == 1
    text = "".join(str(span) for span in spans)
    assert "gen_ai.usage.input_tokens" in text
    for secret in ("class ModelNew", "Let me think", "a-key-of-no-account"):
        assert secret not in text


@pytest.mark.slow
def test_a_collector_that_is_away_is_said_and_the_search_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-no-account")
    url = f"http://127.0.0.1:{free_port()}/v1/traces"
    sit("trackers=opentelemetry", f"trackers.opentelemetry.endpoint={url}")
    out, err = capfd.readouterr()
    assert (out + err).count("trackers.opentelemetry: the endpoint takes no spans") == 1


@pytest.mark.parametrize("endpoint", ["http://user:password@collector:4318", "collector:4318"])
def test_an_endpoint_that_cannot_be_is_refused_unrepeated(endpoint):
    config = settings("trackers=opentelemetry", f"trackers.opentelemetry.endpoint='{endpoint}'")
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        components.build_trackers(config)
    assert "password" not in str(refused.value)


def test_stages_follow_each_other_up_to_the_verdict():
    found = list(stages({"timing": 2.0, "compile": 1.0, "timing_inputs": 9.0}, 0.0, 5.0))
    assert found == [("compile", 2.0, 3.0), ("timing", 3.0, 5.0)]
    assert list(stages({"compile": 9.0}, 1.0, 5.0)) == [("compile", 1.0, 5.0)]


def test_nothing_is_imported_without_the_tracker(tmp_path: Path):
    code = (
        "import sys, evolve.trackers, evolve.app.session, evolve.serve.metrics.runs\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', "
        "'prometheus_client', 'uvicorn'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
