"""Stopping a run.

Invariants:
1. SIGINT, SIGTERM and SIGUSR1 drain: what is under way is told, nothing more is asked, the exit
   status is 75, and the run says that it was interrupted.
2. A second Ctrl-C leaves at once, also when what is under way would take long.
3. After either, a resume goes on without asking for anything again.
4. While one process continues a run, another one is refused.
5. Before the search has begun, each of them ends the command in order: a message, 130 for Ctrl-C
   and 75 for the others, and nothing left behind.
6. Signals after a stop do not replace its exit status.
7. A search outlives its terminal and the reader of its output.
8. What has not been sent to a model yet is not waited for, nor is the client that is loading.
"""

import asyncio
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from evolve.cli import signals
from evolve.store import Store
from evolve.testing.model_server import ModelServer
from tests import forked
from tests.cli.conftest import ROOT


def sit(database: Path, latency_s: float, *words: str) -> forked.Forked:
    """A session that has begun to search."""
    words = (str(database), str(latency_s), *words)
    process = forked.start("tests.cli.session", *words, cwd=database.parent)
    deadline = time.monotonic() + 30
    while process.printed()[0].partition("\n")[0] != "session":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_for_tickets(database)
    return process


def wait_for_tickets(database: Path, *, evaluated: bool = False) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with Store.open(database, read_only=True) as store:
            if any(step.status or not evaluated for step in store.steps(store.run("demo").id)):
                return
        time.sleep(0.05)
    raise AssertionError("the session never asked for anything")


def state(database: Path) -> tuple[str, str]:
    with Store.open(database, read_only=True) as store:
        run = store.run("demo")
        return run.state, run.reason


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_drains_and_the_run_can_be_resumed(tmp_path: Path, number: signal.Signals):
    database = tmp_path / "evolve.db"
    process = sit(database, 0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 75, err
    assert f"stopped by {number.name}" in out
    assert "evolve resume demo" in out
    assert state(database) == ("interrupted", f"stopped by {number.name}")
    with Store.open(database, read_only=True) as store:
        assert store.open_tickets(store.run("demo").id) == []


@pytest.mark.sample(1)
@pytest.mark.quiet
@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_a_stop_waits_for_no_call_that_is_not_sent_yet(tmp_path: Path, after_s: float):
    """LiteLLM takes seconds to load, and nothing else is under way."""
    database = tmp_path / "evolve.db"
    with ModelServer(["no program"]) as server:
        model = ("llm.model=openai/scripted", f"llm.api_base={server.api_base}")
        process = sit(database, 0.05, *model)
        time.sleep(after_s)
        seen = len(server.log.requests)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
        print(f"stopped after {took:.1f} s")
        assert process.returncode == 75, err
        assert "Traceback" not in err
        assert seen == len(server.log.requests) == 0
        assert took < 2.0
    with Store.open(database, read_only=True) as store:
        assert store.progress(store.run("demo").id).calls == 0


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once_and_nothing_is_lost(tmp_path: Path):
    database = tmp_path / "evolve.db"
    process = sit(database, 60)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - started < 20
    assert process.returncode == 130
    with Store.open(database, read_only=True) as store:
        waiting = store.open_tickets(store.run("demo").id)
    assert waiting
    assert [ticket.attempts for ticket in waiting] == [0] * len(waiting)  # however often that is
    again = sit(database, 0.0)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    with Store.open(database, read_only=True) as store:
        run = store.run("demo")
        asked = [step.sequence for step in store.steps(run.id)]
        assert all(store.step(run.id, ticket.sequence).status for ticket in waiting)
    assert asked == sorted(set(asked))


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once_also_where_the_run_was_taken_over(tmp_path: Path):
    database = tmp_path / "evolve.db"
    process = sit(database, 60)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE lease SET owner = 'another'")
        connection.commit()
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - started < 20
    assert process.returncode == 130


@pytest.mark.slow
def test_signals_after_the_first_do_not_replace_the_exit_status(tmp_path: Path):
    database = tmp_path / "evolve.db"
    process = sit(database, 0.5)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.1)
    while process.poll() is None:  # during the drain, the report, and the end of the judge
        process.send_signal(signal.SIGTERM)
        time.sleep(0.005)
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert state(database) == ("interrupted", "stopped by SIGUSR1")


UNDER_FIRE = """
import asyncio, contextlib, os, signal, threading
from evolve.cli import signals

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # between the rounds
target = os.getpid()
if os.fork() == 0:
    while os.getppid() == target:
        os.kill(target, signal.SIGTERM)
    os._exit(0)
threading.Thread(target=threading.Event().wait, daemon=True).start()  # whom no mask of ours is for
for _ in range(100):
    with contextlib.suppress(signals.Stopped):
        signals.run(asyncio.sleep(30))
        raise SystemExit("not stopped")
"""


def test_no_signal_of_a_stream_of_them_finds_a_moment_in_which_it_kills():
    process = subprocess.run(
        [sys.executable, "-c", UNDER_FIRE], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr


def test_a_signal_in_the_last_moment_of_a_block_calls_nobody_after_it():
    heard: list[signal.Signals] = []

    async def search() -> None:
        with signals.handling(heard.append):
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.05)

    asyncio.run(search())
    assert heard == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.slow  # test_verbs and test_databases have two processes
def test_a_second_process_cannot_continue_the_same_run(evolve, tmp_path: Path):
    database = tmp_path / "evolve.db"
    process = sit(database, 0.5)
    wait_for_tickets(database, evaluated=True)
    try:
        done = evolve(
            *("resume", "demo", "store.path=evolve.db", "device=replay", "device.run=demo")
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert done.returncode == 2
    assert "another process" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_search_whose_reader_went_away_goes_on(tmp_path: Path):
    database = tmp_path / "evolve.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.session", str(database), "0.1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "session\n"
    wait_for_tickets(database)
    process.stdout.close()
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 75
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert state(database) == ("interrupted", "stopped by SIGTERM")


@pytest.mark.slow
def test_a_search_that_was_started_without_a_place_to_print_to_ends_well(tmp_path: Path):
    database = tmp_path / "evolve.db"
    command = f"exec {sys.executable} -m tests.cli.session {database} 0.0 >&- 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    assert state(database)[0] == "finished"


@pytest.mark.slow
def test_a_search_whose_terminal_is_closed_goes_on(tmp_path: Path):
    database = tmp_path / "evolve.db"
    main_end, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.session", str(database), "0.1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "60"},
        preexec_fn=lambda: os.login_tty(other_end),
    )
    os.close(other_end)
    wait_for_database(database)
    wait_for_tickets(database)
    os.close(main_end)  # the kernel sends SIGHUP, and writing fails from now on
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 75
    assert state(database) == ("interrupted", "stopped by SIGTERM")


@pytest.mark.slow
def test_on_a_terminal_the_display_is_taken_away_and_lines_break_between_words(tmp_path: Path):
    database = tmp_path / "evolve.db"
    main_end, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.session", str(database), "0.2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "60"},
        stdout=other_end,
        stderr=other_end,
    )
    os.close(other_end)
    wait_for_database(database)
    wait_for_tickets(database)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    shown = read_all(main_end)
    assert process.wait(timeout=30) == 75
    for word in ("demo: synthetic", "best", "evaluations", "comes first", "evolve resume demo"):
        assert word in shown
    *_, summary = shown.split("\x1b[?25h")  # the cursor is back
    lines = [line.rstrip("\r") for line in summary.split("\n")]
    assert max(len(line) for line in lines if " " in line.strip()) <= 60
    assert "Run demo stopped, and can be resumed: stopped by SIGTERM." in lines


def wait_for_database(database: Path) -> None:
    deadline = time.monotonic() + 30
    while not database.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)


def read_all(descriptor: int) -> str:
    """What a pseudo-terminal has been given until its other end was closed."""
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(descriptor)
    return b"".join(pieces).decode(errors="replace")


WAITING_TASK = """
import time
time.sleep(60)
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
"""


@pytest.mark.sample(1)
@pytest.mark.quiet
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)]
)
def test_a_signal_before_the_search_ends_the_start_in_order(
    tmp_path: Path, number: signal.Signals, status: int
):
    (tmp_path / "waits.py").write_text(WAITING_TASK)
    (tmp_path / "seed.py").write_text("class ModelNew: ...")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "evolve.cli.main", "run", "task=./waits.py"),
            *("initial=[seed.py]", f"device.python={sys.executable}", "termination.evaluations=10"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "auditing the task waits ...\n"
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 3.0  # about 0.5 s where nothing else is done
    assert process.returncode == status
    assert err == f"evolve: {number.name}: stopped before the run began\n"
    assert not [path for path in temporary.iterdir() if path.is_dir()]  # the lock stays
    assert not (tmp_path / "runs").exists()
