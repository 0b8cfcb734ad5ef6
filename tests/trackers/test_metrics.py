"""Prometheus metrics of runs, and the dashboard that shows them.

Invariants:
1. While a run is under way its numbers are answered over HTTP, with the names in its database.
2. Runs of one process share one address; without the token of an address nothing is answered.
3. Every metric that the dashboard asks for exists.
"""

import asyncio
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from evolve.core.errors import UsageError
from evolve.serve.counters import Counters
from evolve.serve.metrics.runs import Prometheus, Runs, RunState
from evolve.serve.metrics.workers import Workers, endpoint
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_seeds, synthetic_task
from evolve.trackers import Point, TrackerFailed
from tests.cli.at_terminal import search
from tests.cli.recording import settings
from tests.serve.pulling import TOKEN, free_port, token_file

exposition = pytest.importorskip("prometheus_client.parser")
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "evolve.json"
COUNTED = ("proposals", "tunings", "evaluations", "screens")
POINT = Point(
    3,
    {
        **dict.fromkeys(
            ("used/proposals", "used/tunings", "used/evaluations", "used/screens"), 4.0
        ),
        **dict.fromkeys(("used/wall_time_s", "used/device_time_s", "used/model_calls"), 5.0),
        "used/tokens": 6.0,
        "used/usd": 0.5,
        "step/correct": 1.0,
        "best/speedup": 2.0,
        "best/speedup_low": 1.9,
        "best/speedup_high": 2.1,
        "best/speed_of_light": 0.5,
    },
)


def read(url: str, token: str = "") -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and values of labels, which come by their names: project, run, task."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in exposition.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_a_run_answers_with_its_numbers_while_it_is_under_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    port = free_port()
    words = ("trackers=prometheus", f"trackers.prometheus.port={port}", "project=kernels")
    config = settings("name=demo", "termination.evaluations=6", *words) | {"audit": []}
    scraped: list[dict[str, Any]] = []

    class Judge(SyntheticEvaluator):
        async def evaluate(self, request):
            if self.calls == 4:
                url = f"http://127.0.0.1:{port}/metrics"
                scraped.append(await asyncio.to_thread(read, url))
            return await super().evaluate(request)

    with Store.open("runs/evolve.db", create=True) as store:
        task = synthetic_task(seeds=synthetic_seeds(5))
        run = store.create_run(name="demo", task=task, config=config, seed=0)
        assert asyncio.run(search(store, run, config, Judge())) == 0
        told = [step for step in store.steps(run.id) if step.status is not None]
    (found,) = scraped
    labels = ("kernels", "demo", "synthetic")
    assert found["evolve_run_evaluations_total"][labels] == pytest.approx(4, abs=1)
    assert found["evolve_run_active"] == {labels: 1.0}
    assert 0 < sum(found["evolve_run_steps_total"].values()) <= len(told)
    with pytest.raises(urllib.error.URLError):
        read(f"http://127.0.0.1:{port}/metrics")


def test_runs_of_one_process_share_an_address():
    async def body() -> None:
        port = free_port()
        first, second = Prometheus(port=port), Prometheus(port=port)
        first.begin("first", "1", {"task": "softmax"})
        second.begin("second", "2", {"task": "rmsnorm", "project": "kernels"})
        second.add(POINT)
        first.end()
        found = await asyncio.to_thread(read, second.url)
        assert found["evolve_run_active"] == {
            ("", "first", "softmax"): 0.0,
            ("kernels", "second", "rmsnorm"): 1.0,
        }
        assert list(found["evolve_run_usd_total"].values()) == [0.5]
        second.end()
        assert second.url == ""

    asyncio.run(body())


def test_a_taken_port_is_said_and_the_search_goes_on():
    async def body() -> None:
        first, second = Prometheus(port=free_port()), Prometheus(port=0)
        first.begin("first", "1", {"task": "softmax"})
        taken = int(first.url.rpartition(":")[2].partition("/")[0])
        other = Prometheus(host="localhost", port=taken)
        with pytest.raises(TrackerFailed, match="name another port"):
            other.begin("other", "2", {"task": "softmax"})
        other.end()
        second.begin("second", "3", {"task": "softmax"})
        assert await asyncio.to_thread(read, second.url)
        second.end()
        first.end()

    asyncio.run(body())


def test_without_the_token_nothing_is_answered(tmp_path):
    async def body() -> None:
        tracker = Prometheus(port=free_port(), token_file=str(token_file(tmp_path)))
        tracker.begin("first", "1", {"task": "softmax"})
        for token in ("", "wrong-horse-battery-staple"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(read, tracker.url, token)
        assert "evolve_run_active" in await asyncio.to_thread(read, tracker.url, TOKEN)
        tracker.end()

    asyncio.run(body())


def test_an_address_that_others_reach_needs_a_token():
    with pytest.raises(UsageError, match="needs a token; give token_file"):
        Prometheus(host="0.0.0.0")


@pytest.mark.parametrize("address", ["9465", ":9465", "127.0.0.1:", "127.0.0.1:99999", "a b"])
def test_a_bad_address_of_a_workers_metrics_is_refused(address):
    with pytest.raises(UsageError, match="write HOST:PORT"):
        endpoint(address, [], TOKEN)


def test_every_metric_of_the_dashboard_exists():
    runs = Runs()
    runs.states["1"] = state = RunState(("demo", "softmax", "kernels"))
    state.add(POINT)
    names = {sample.name for family in runs.collect() for sample in family.samples}
    names |= {
        family.name + "_total" * (family.type == "counter") for family in Workers([]).collect()
    }
    names |= set(re.findall(r"^(evolve_serve_\w+)", "\n".join(Counters().lines({})), re.MULTILINE))
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\bevolve_\w+", target["expr"])
    }
    assert len(asked) >= 12
    assert asked <= names
