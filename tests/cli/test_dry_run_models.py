"""A dry run that asks models, over real HTTP.

Invariants:
1. It really asks each model for a proposal, and says what the budget buys.
2. Its calls are charged and kept as those of a run.
"""

import asyncio
from pathlib import Path

import pytest

from evolve.app.estimate.dry_run import forecast_lines
from evolve.app.estimate.llm_probe import call_lines, forecast, sample_calls
from evolve.core.errors import UsageError
from evolve.store import Store
from evolve.testing.model_server import Answer, ModelServer, Refusal
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import diagnosing, script, settings, words, words_for

NOISE = {
    "seconds_per_evaluation": 2.0,
    "device_seconds_per_evaluation": 0.5,
    "reference_ms": [1.0, 0.9, 1.1],
    "half_width": 0.01,
}


def sampled(*words: str):
    """What a dry run asks, with the run that keeps it."""
    config = settings(*words) | {"opponents": {}}
    calls, slots = asyncio.run(sample_calls(config, synthetic_task(), SyntheticEvaluator()))
    return calls, slots


def test_a_dry_run_asks_each_model_for_one_proposal_and_says_what_it_takes(task_folder):
    with ModelServer(lambda request: Answer(script(request), delay_s=0.1)) as server:
        calls, slots = sampled(*words(server))
        assert len(server.log.requests) == 1
    [line] = call_lines(calls)
    assert "openai/scripted: one proposal took 1 call, " in line
    assert line.endswith("it gave a program")
    limits = settings("termination.usd=1", "termination.wall_time=null")["termination"]
    lines = list(forecast_lines(limits, NOISE, (calls, slots)))
    assert any(line.startswith("limit       usd=1.0: about") for line in lines)
    assert "USD" in lines[-2]
    assert "comes first" in lines[-1]


@pytest.mark.slow  # one round is above
def test_a_dry_run_counts_every_round_of_a_proposal_and_keeps_what_it_paid_for(task_folder):
    universal = ("operators=[seed,universal]", "operators.universal.diagnosis=model")
    with ModelServer(diagnosing) as server:
        for _ in range(2):
            calls, slots = sampled(*words(server), *universal)
        assert len(server.log.requests) == 4
    assert "one proposal took 2 calls, " in next(call_lines(calls))
    assert forecast(calls, slots).tokens == calls[0].prompt + calls[0].completion
    assert not Path("runs/evolve.db").exists()
    with Store.open("runs/dry-runs.db", read_only=True) as store:
        runs = store.runs()
        assert [run.name for run in runs] == ["dry-run-1", "dry-run-2"]
        costs = [sum(cost.usd for cost in store.costs(run.id)) for run in runs]
        assert costs[1] == pytest.approx(calls[0].usd)
        replies = [line for line in store.dump(runs[0].id) if "LIMIT: memory" in line]
        assert replies


@pytest.mark.slow  # limits of calls are in llm
def test_a_dry_run_asks_nothing_that_a_limit_does_not_allow(task_folder):
    with ModelServer(script) as server:
        [call], _ = sampled(*words(server), "termination.tokens=10")
        assert not server.log.requests
    assert not call.is_counted
    assert call.said.startswith("not asked: ")
    assert "10 tokens" in call.said


@pytest.mark.slow  # a refused key is in test_models, a dry run in the test above
def test_a_dry_run_with_a_refused_key_says_so_and_charges_nothing(task_folder):
    with ModelServer(lambda request: Refusal(401)) as server, pytest.raises(UsageError):
        sampled(*words(server))
    with Store.open("runs/dry-runs.db", read_only=True) as store:
        progress = store.progress(store.run("dry-run-1").id)
    assert (progress.calls, progress.usd, progress.usd_reserved) == (0, 0.0, 0.0)


def limits_with(devices: int, **limits) -> dict[str, str]:
    found = forecast_lines(limits, NOISE, devices=devices)
    limited = [line.split() for line in found if line.startswith("limit")]
    return {words[1].partition("=")[0]: " ".join(words[2:]) for words in limited}


def test_several_gpus_judge_at_once_and_use_up_device_time_sooner():
    limits = {"evaluations": 60, "wall_time": "1m", "device_time": "30s"}
    assert limits_with(1, **limits) == {
        "evaluations": "about 2 min 0 s, 60 evaluations",
        "wall_time": "about 1 min 0 s, 30 evaluations",
        "device_time": "about 2 min 0 s, 60 evaluations",
    }
    assert limits_with(4, **limits) == {
        "evaluations": "about 30.0 s, 60 evaluations",
        "wall_time": "about 1 min 0 s, 120 evaluations",
        "device_time": "about 30.0 s, 60 evaluations",
    }


@pytest.mark.slow
def test_a_dry_run_with_a_model_that_is_down_says_so(task_folder):
    calls, slots = sampled(*words_for("http://127.0.0.1:9/v1"), "llm.deadline_s=1")
    assert not calls[0].is_counted
    assert forecast(calls, slots) is None
    assert "scripted" in next(call_lines(calls))


def test_without_a_model_nothing_is_asked(task_folder):
    config = settings() | {"opponents": {}}
    assert asyncio.run(sample_calls(config, synthetic_task(), SyntheticEvaluator())) is None
