"""Curves of a run outside of its database.

Invariants:
1. Every told step is one point, under its number; the last values are those of the store.
2. A resumed run goes on where it was.
3. Neither keys nor source text of this machine reach a tracker.
4. A tracker that fails, or that is not installed, is said; no search ends because of it.
"""

import asyncio
import platform
from pathlib import Path
from typing import Any

import pytest

from evolve.app import components
from evolve.core.errors import UsageError
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_seeds, synthetic_task
from evolve.trackers import Feed, TrackerFailed
from evolve.trackers.tracker import require
from tests.cli.at_terminal import search
from tests.cli.recording import settings

KEY = "sk-very-secret-0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store.open("runs/evolve.db", create=True) as opened:
        yield opened


def begin(store: Store, *words: str, **changes: Any) -> tuple[RunRow, dict[str, Any]]:
    config = settings("name=demo", "termination.evaluations=4", *words) | {"audit": []} | changes
    task = synthetic_task(seeds=synthetic_seeds(5))
    run = store.create_run(name="demo", task=task, config=config, seed=0)
    return run, config


def sit(store: Store, run: RunRow, config: dict[str, Any]) -> int:
    return asyncio.run(search(store, run, config, SyntheticEvaluator()))


def curves(folder: str) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a folder: steps and values by tag, in the order of writing."""
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(Path(folder).iterdir()):
        for event in loading.LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def told(store: Store, run: RunRow) -> set[int]:
    return {step.sequence for step in store.steps(run.id) if step.status is not None}


def test_every_told_step_is_a_point_and_the_last_one_is_where_the_run_stands(store):
    pytest.importorskip("tensorboard")
    run, config = begin(store, "trackers=tensorboard")
    assert sit(store, run, config) == 0
    shown, progress = curves("runs/tensorboard/demo"), store.progress(run.id)
    assert {step for step, _ in shown["used/evaluations"]} == told(store, run)
    assert shown["used/evaluations"][-1][1] == progress.evaluations == 4
    assert shown["best/speedup"][-1][1] == pytest.approx(progress.best.value, rel=1e-6)
    assert shown["best/speedup_low"][-1][1] == pytest.approx(progress.best.low, rel=1e-6)
    assert {"verified/speedup", "step/correct", "config", "used/usd"} <= shown.keys()


@pytest.mark.slow  # points of a run are above
def test_a_resumed_run_goes_on_in_the_same_curves(store):
    pytest.importorskip("tensorboard")
    run, config = begin(store, "trackers=tensorboard", "termination.evaluations=2")
    sit(store, run, config)
    more = settings("name=demo", "termination.evaluations=4", "trackers=tensorboard")
    sit(store, run, more)
    shown = curves("runs/tensorboard/demo")
    steps = [step for step, _ in shown["used/evaluations"]]
    assert len(steps) == len({*steps})
    assert {*steps} == told(store, run)
    assert shown["used/evaluations"][-1][1] == 4


def test_neither_keys_nor_sources_are_shown(store, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("MY_KEY", KEY)
    words = ("trackers=tensorboard", f"termination.stop_file=/nowhere/{KEY}", "operators=llm")
    run, config = begin(store, *words, opponents={"file:mine.py": "SECRET_SOURCE = 1"})
    with Feed(components.build_trackers(config), run, print):
        pass
    [path] = Path("runs/tensorboard/demo").iterdir()
    written = path.read_bytes()
    assert b"termination" in written
    assert KEY.encode() not in written
    assert b"SECRET_SOURCE" not in written


def test_a_folder_that_cannot_be_written_is_said_and_the_search_goes_on(store, capsys):
    pytest.importorskip("tensorboard")
    Path("occupied").write_text("a file")
    run, config = begin(store, "trackers=tensorboard", "trackers.tensorboard.folder=occupied")
    assert sit(store, run, config) == 0
    said = capsys.readouterr().out
    assert "trackers.tensorboard: occupied/demo cannot be written" in said
    assert said.count("goes on without it") == 1
    assert "best kernel" in said


def test_wandb_keeps_a_run_offline_and_says_nothing_of_this_machine(store, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("MY_KEY", KEY)
    run, config = begin(store, "trackers=wandb", f"termination.stop_file=/nowhere/{KEY}")
    assert sit(store, run, config) == 0
    [kept] = Path("runs/wandb").glob("offline-run-*/*.wandb")
    assert b"best/speedup" in kept.read_bytes()
    for path in Path("runs/wandb").rglob("*"):
        if path.is_file():
            for private in (KEY, str(Path.cwd()), platform.node()):
                assert private.encode() not in path.read_bytes(), (path, private)


class Failing:
    """A user's own tracker whose disk is full after the first point."""

    def __init__(self) -> None:
        self.added = 0

    def begin(self, name, identity, config):
        assert identity.isalnum()

    def add(self, point):
        self.added += 1
        if self.added > 1:
            raise TrackerFailed("the disk is full")

    def end(self):
        raise AssertionError("it was left out before")


def test_a_tracker_that_fails_is_left_out_from_then_on(store):
    from evolve.search.execution.pipeline import Pipeline

    run, config = begin(store)
    said: list[str] = []
    failing = Failing()
    engine = components.build_search(store, run, config)
    with Feed({"mine": failing}, run, said.append) as feed:
        rule = components.build_termination(config)
        asyncio.run(Pipeline(engine, SyntheticEvaluator(), rule, listeners=[feed]).run())
    assert failing.added == 2
    assert said == ["trackers.mine: the disk is full; the search goes on without it"]


def test_a_tracker_that_is_not_installed_is_refused_with_what_to_install():
    with pytest.raises(UsageError, match=r"pip install 'evolve-kernels\[wandb\]'"):
        require("no_such_library", "wandb")


def test_a_setting_that_a_tracker_does_not_have_is_refused():
    with pytest.raises(UsageError, match=r"trackers\.tensorboard\.folder: 3 is not a text"):
        settings("trackers=tensorboard", "trackers.tensorboard.folder=3")
