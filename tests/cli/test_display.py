"""What a display knows.

Invariants:
1. After a resume it stands where it stood: counts, the best, whether that is verified.
2. A better program is not called verified because the one before it was; what loses its duel is not
   shown as the best.
3. What fails is seen: a line per failed step, and at the end what most came to.
4. What is under way is seen at all times, with the time since; a Ctrl-C leaves the panel whole.
"""

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.estimate.forecast import forecast_text
from evolve.app.text import speedup_text
from evolve.cli.console import live
from evolve.cli.console.live import Tally
from evolve.core.evaluation import Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.protocols import Failed
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.store.champion import CHAMPION, champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.at_terminal import search
from tests.cli.conftest import ROOT
from tests.cli.recording import record, settings
from tests.search.conftest import make_search


def tally_of(store: Store) -> Tally:
    config = settings("termination.evaluations=12")
    tally = Tally(config["termination"], components.build_termination(config), "eager")
    tally.recall(store, store.run("demo"))
    return tally


def test_counts_and_best_are_those_of_the_store(recorded: Path):
    with Store.open(recorded) as store:
        tally = tally_of(store)
        steps = list(store.steps(store.run("demo").id))
    judged = Counter(str(step.status) for step in steps if step.status)
    assert tally.counts.total() == judged.total() > 12
    assert "verified in fresh processes" in tally.best_text()


def test_of_a_very_long_run_only_the_sitting_is_counted(recorded: Path, monkeypatch):
    monkeypatch.setattr(live, "MAX_RECOUNTED", 3)
    with Store.open(recorded) as store:
        assert tally_of(store).counts_text() == "none since the run was resumed"


@pytest.mark.slow  # the one that has won is in another test
def test_a_better_program_is_not_verified_yet(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = record(store, synthetic_task(), SyntheticEvaluator(), "termination.evaluations=1")
        tally = tally_of(store)
        before = tally.best
        config = settings("termination.evaluations=60")
        engine = Search(
            store=store,
            run=run,
            archive=components.build_archive(config),
            selection=components.build_selection(config),
            operators=components.build_operators(config),
        )
        pipeline = Pipeline(
            engine,
            SyntheticEvaluator(),
            components.build_termination(config),
            listeners=[tally.add],
            verify=False,
        )
        asyncio.run(pipeline.run())
    assert before is not None
    assert tally.best is not None
    assert tally.best.value > before.value
    assert tally.best_text().endswith("not verified yet")


class Drawn(SyntheticEvaluator):
    """A judge who finds challengers as fast as the champion when he times them together."""

    def judge(self, request):
        verdict = super().judge(request)
        duel = {CHAMPION: Ratio(1.0, 0.98, 1.02)} if CHAMPION in request.opponents else {}
        return replace(verdict, ratios=verdict.ratios | duel)


def test_who_has_won_is_shown_whatever_was_verified_last(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = record(store, synthetic_task(), Drawn(), "termination.evaluations=1")
        tally, before = tally_of(store), champion(store, run)
        search = make_search(store, run)
        faster = search.offer(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 128") + "X = 1\n")
        search.tell(faster, Drawn().judge(search.request(faster)))
        rule = from_config({"evaluations": 2})
        asyncio.run(Pipeline(make_search(store, run), Drawn(), rule, listeners=[tally.add]).run())
        last = store.step(run.id, store.made_by(run.id, VERIFY)[-1])
    assert last.ratios["eager"].value > before.ratio.value
    assert tally.best_text() == f"{speedup_text(before.ratio)}, verified in fresh processes"


class Unmoved(SyntheticEvaluator):
    """A judge to whom everything is wrong."""

    async def evaluate(self, request):
        right = await super().evaluate(request)
        feedback = f"case main: {'too far off, ' * 30}\nand more"
        return replace(right, status=Status.WRONG_VALUE, ratios={}, cases=(), feedback=feedback)


def test_a_failed_step_is_one_line_and_the_summary_says_how_most_failed(tmp_path: Path, capsys):
    config = settings("termination.evaluations=2")
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        asyncio.run(search(store, run, config, Unmoved()))
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("fail #")]
    assert "wrong value: case main: too far off" in failed[0]
    assert all(len(line) <= 150 for line in failed)
    summary = f"  {len(failed)} of {len(failed)} ended as 'wrong value', such as: case main"
    assert any(line.startswith(summary) for line in lines)


ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@contextmanager
def on_a_terminal(tmp_path: Path, columns: int, *words: str):
    """A session on a terminal: the process, and a function that gives what it has printed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    command = [sys.executable, "-m", "tests.cli.session", str(tmp_path / "evolve.db"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        start_new_session=True,
    )
    text = bytearray()

    def shown(until: str, patience_s: float = 30) -> str:
        deadline = time.monotonic() + patience_s
        while until not in (plain := ANSI.sub("", text.decode(errors="replace"))):
            assert time.monotonic() < deadline, plain
            if select.select([master], [], [], 0.2)[0]:
                try:
                    text.extend(os.read(master, 65536))
                except OSError:  # its end
                    assert until in ANSI.sub("", text.decode(errors="replace")), text.decode()
        return plain

    try:
        yield process, slave, master, shown
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


@pytest.mark.sample(1)
@pytest.mark.parametrize("columns", [80, 140])
def test_what_is_under_way_is_on_the_panel_and_ctrl_c_leaves_it_whole(tmp_path: Path, columns):
    with on_a_terminal(tmp_path, columns, "1.5") as (process, slave, master, shown):
        panel = shown("#0 seed: judging, 1 s")
        assert not [line for line in panel.splitlines() if len(line.rstrip()) > columns]
        assert not termios.tcgetattr(slave)[3] & termios.ECHOCTL
        os.write(master, b"\x03")
        end = shown("evolve resume demo")
        assert "SIGINT: finishing what is under way" in end
        assert "^C" not in end
        assert process.wait(20) == 75
        assert termios.tcgetattr(slave)[3] & termios.ECHOCTL


@pytest.mark.slow
def test_what_is_under_way_is_a_line_now_and_then_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.setattr(live, "QUIET_S", 0.5)
    config = settings("termination.evaluations=2")
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        asyncio.run(search(store, run, config, SyntheticEvaluator(latency_s=1.7)))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("now #0 seed: judging, 1 s") for line in lines)
    assert any("verifying the best in fresh processes: judging" in line for line in lines)


def test_a_limit_that_is_used_up_is_called_so_and_comes_in_no_time_at_all():
    assert forecast_text({"wall_time": 0.5}, 30.0) == "wall_time comes first, in about 30.0 s"
    said = forecast_text({"wall_time": 1.0, "evaluations": 0.2}, 30.0)
    assert said == "wall_time is used up: what is under way ends, then the best is verified"


class Silent:
    """An operator that has nothing to show for itself."""

    parents = 0

    def propose(self, context):
        return Failed("the edit matched no line of its parent")


def test_a_proposal_that_gave_no_program_is_a_line_at_once(tmp_path: Path, capsys):
    config = settings("termination.proposals=3")
    config["operators"] = {
        "seed": config["operators"]["seed"],
        "edit": {"_target_": "tests.cli.test_display.Silent"},
    }
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        asyncio.run(search(store, run, config, SyntheticEvaluator()))
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("fail #")]
    assert failed
    assert failed[0].endswith("edit: the edit matched no line of its parent")
