"""`evolve ui` over a large store: when a stored step reaches a page, and what watching costs.

    python -m tests.benchmarks.bench_ui [--steps 100000] [--watchers 10] [--events 2000]
    python -m tests.benchmarks.bench_ui --minutes 60 --rate 1 --steps 2000

The step is written by this process; the server is another one on the same machine. With a Chromium
it also measures the page: its first paint, when all steps are drawn, updates, and memory over many
events. The second form measures only memory: steps at a rate while the page is open in Chromium, a
line for each minute, and the same page loaded afresh at the end, which holds as many steps.
"""

import argparse
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.store import Store
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import print_conditions
from tests.report.filling import TASK, evaluation, source
from tests.serve.browsing import BROWSER, Tab, browsing

TOKEN = "bench-0123456789abcdef"
ROUNDS = 20
WRITTEN = 100
TURNS = 7


class Server(NamedTuple):
    """A running `evolve ui`: its address and its process."""

    url: str
    pid: int


def judge_all(path: Path) -> None:
    """Give the steps times and durations as those of eight judges that work at once."""
    durations = json.dumps({"compile": 1.0, "timing": 2.9})
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE evaluation SET durations_s = ?", (durations,))
        connection.execute("UPDATE ticket SET elapsed_s = 5 + sequence * 0.5")


@contextlib.contextmanager
def served(path: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "evolve", "ui", str(path), "--port", "0"]
    environment = os.environ | {"EVOLVE_UI_TOKEN": TOKEN}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().removeprefix("open ").strip(), process.pid)
    finally:
        process.terminate()
        process.wait()


class Watcher(threading.Thread):
    """Notes when each step arrived."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.is_ready = threading.Event()
        self.came: dict[int, float] = {}

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.stream("GET", f"{self.url}api/events", headers=headers, timeout=60) as stream,
        ):
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    self._take(json.loads(line[6:]))

    def _take(self, event: dict) -> None:
        if event.get("hello"):
            self.is_ready.set()
        for steps in event.get("steps", {}).values():
            self.came |= {step["n"]: time.perf_counter() for step in steps}


def watch(url: str, count: int) -> None:
    """Be the watchers: print a line once all of them are told what is new, and go on for ever."""
    watchers = [Watcher(url) for _ in range(count)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.is_ready.wait(60)
    print("ready", flush=True)
    threading.Event().wait()


@contextlib.contextmanager
def watched(url: str, count: int) -> Iterator[None]:
    """Watchers in a process of their own, as browsers are, within this block."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_ui", "--watch", url]
    process = subprocess.Popen(
        [*command, "--watchers", str(count)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()


def write(store: Store, run: int, number: int) -> int:
    """A whole step; its number."""
    proposal = Proposal(program=Program(source(10**6 + number, 4)))
    ticket = store.propose(store.ask(run, "improve", ()), proposal)
    store.start_evaluation(ticket)
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, 0.1)
    store.tell(store.evaluated(ticket, verdict), None, None)
    return ticket.sequence


class Rate(NamedTuple):
    """Milliseconds of one step, which is all that the store does for a search, by both clocks."""

    wall: float
    processor: float


def rate(store: Store, run: int, start: int) -> Rate:
    wall, processor = time.perf_counter(), time.process_time()
    for number in range(start, start + WRITTEN):
        write(store, run, number)
    return Rate(elapsed(wall) / WRITTEN, 1000 * (time.process_time() - processor) / WRITTEN)


def rates(store: Store, run: int, url: str, watchers: int) -> Iterator[str]:
    """Lines about steps without and with watchers, in turn, as the load of a host changes."""
    alone: list[Rate] = []
    seen: list[Rate] = []
    for turn in range(TURNS):
        alone.append(rate(store, run, 2 * turn * WRITTEN))
        with watched(url, watchers):
            seen.append(rate(store, run, (2 * turn + 1) * WRITTEN))
    for clock in Rate._fields:
        before, after = ([getattr(each, clock) for each in found] for found in (alone, seen))
        ratios = [after / before for after, before in zip(after, before, strict=True)]
        yield f"step, {clock} time, not watched   {spread(before)}"
        yield f"step, {clock} time, {watchers} watchers   {spread(after)}"
        middle = statistics.median(ratios)
        yield f"ratio, {clock} time   {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def latency_ms(store: Store, run: int, watcher: Watcher) -> Iterator[float]:
    for number in range(ROUNDS):
        store.heartbeat(run, 0.1)
        sequence, told = write(store, run, 10_000 + number), time.perf_counter()
        while sequence not in watcher.came:
            time.sleep(0.005)
        yield 1000 * (watcher.came[sequence] - told)
        time.sleep(0.037 * (number % 7))


def browsed(store: Store, run: int, url: str, events: int) -> Iterator[str]:
    """Lines about the page of a run in a browser."""
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder)) as tab:
        tab.call("HeapProfiler.enable")
        name = store.runs()[0].name
        began = time.perf_counter()
        tab.open(f"{url}#token={TOKEN}/run/{name}")
        tab.wait("document.querySelector('.figure')")
        painted = tab.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        yield f"first paint         {painted:.0f} ms, the run's figures {elapsed(began):.0f} ms"
        shown = f"{store.next_sequence(run):,} of {store.next_sequence(run):,} steps"
        tab.wait_for_text(shown)
        yield f"all steps drawn     {elapsed(began):.0f} ms"
        took = sorted(update_ms(store, run, tab, number) for number in range(ROUNDS))
        yield f"update on the page  {statistics.median(took):.0f} ms (at most {took[-1]:.0f})"
        for part in range(3):
            yield f"memory of scripts   {heap_mb(tab):.1f} MB after {part * events} events"
            if part < 2:
                many(store, run, 30_000 + part * events, events)
                last = f"{store.next_sequence(run):,}"
                tab.wait_for_text(f"{last} of {last} steps")


def elapsed(since: float) -> float:
    return 1000 * (time.perf_counter() - since)


def update_ms(store: Store, run: int, tab: Tab, number: int) -> float:
    """From a stored step until the page shows it, by the page's own clock."""
    store.heartbeat(run, 0.1)
    last = f"{store.next_sequence(run) + 1:,}"
    tab.ask(f"""window.came = new Promise(done => {{
        const text = () => document.getElementById("main").textContent;
        const look = () => text().includes("{last} of {last} steps")
            ? done(Date.now()) : setTimeout(look, 10);
        look(); }}); 0""")
    write(store, run, 20_000 + number)
    told = time.time()
    waited = tab.call("Runtime.evaluate", expression="came", awaitPromise=True, returnByValue=True)
    time.sleep(0.3)
    return 1000 * (waited["result"]["value"] / 1000 - told)


def many(store: Store, run: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        write(store, run, number)
        if number % 100 == 0:
            store.heartbeat(run, 0.1)


def heap_mb(tab: Tab) -> float:
    tab.call("HeapProfiler.collectGarbage")
    return tab.call("Runtime.getHeapUsage")["usedSize"] / 1e6


def memory(path: Path, minutes: int, rate: float) -> Iterator[str]:
    """A line for each minute of steps at a rate, with the page of the run open."""
    with (
        Store.open(path) as store,
        served(path) as server,
        tempfile.TemporaryDirectory() as folder,
        browsing(Path(folder)) as tab,
    ):
        run = store.runs()[0]
        store.claim(run.id)
        tab.call("HeapProfiler.enable")
        tab.open(f"{server.url}#token={TOKEN}/run/{run.name}")
        _wait_for_all(store, run.id, tab)
        yield "minute    steps  server MB  page MB   nodes  listeners"
        began = time.monotonic()
        for minute in range(minutes + 1):
            _paced(store, run.id, began, 60 * minute, rate)
            _wait_for_all(store, run.id, tab)
            yield _sample(f"{minute:6}", store.next_sequence(run.id), server.pid, tab)
        tab.call("Page.reload")
        _wait_for_all(store, run.id, tab)
        yield _sample("afresh", store.next_sequence(run.id), server.pid, tab)


def _paced(store: Store, run: int, began: float, until: float, rate: float) -> None:
    """Write steps at a rate up to a time since the start, in seconds."""
    while (now := time.monotonic() - began) < until:
        number = write(store, run, store.next_sequence(run))
        if number % 10 == 0:
            store.heartbeat(run, 10 / rate)
        time.sleep(max(0, 1 / rate - (time.monotonic() - began - now)))


def _wait_for_all(store: Store, run: int, tab: Tab) -> None:
    asked = f"{store.next_sequence(run):,}"
    tab.wait_for_text(f"{asked} of {asked} steps")


def _sample(name: str, steps: int, pid: int, tab: Tab) -> str:
    heap = heap_mb(tab)
    counts = tab.call("Memory.getDOMCounters")
    return (
        f"{name} {steps:8,} {resident_mb(pid):10.1f} {heap:8.2f} {counts['nodes']:7,} "
        f"{counts['jsEventListeners']:10,}"
    )


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmRSS"))
    return int(kib) / 1024


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ms ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--watchers", type=int, default=10)
    options.add_argument("--events", type=int, default=2000, help="of each memory measurement")
    options.add_argument("--minutes", type=int, default=0, help="measure only memory, so long")
    options.add_argument("--rate", type=float, default=1.0, help="steps a second, with --minutes")
    options.add_argument("--watch", metavar="URL", help="be the watchers of another process")
    chosen = options.parse_args()
    if chosen.watch:
        watch(chosen.watch, chosen.watchers)
    print_conditions()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evolve.db"
        print(f"filled with {chosen.steps:,} steps in {grow(path, chosen.steps):.0f} s")
        judge_all(path)
        if chosen.minutes:
            for line in memory(path, chosen.minutes, chosen.rate):
                print(line, flush=True)
            return
        with Store.open(path) as store, served(path) as (url, _):
            run = store.runs()[0].id
            store.claim(run)
            store.heartbeat(run, 0.1)
            for line in rates(store, run, url, chosen.watchers):
                print(line, flush=True)
            store.heartbeat(run, 0.1)
            watcher = Watcher(url)
            watcher.start()
            watcher.is_ready.wait(60)
            found = sorted(latency_ms(store, run, watcher))
            print(
                f"until a page has it {statistics.median(found):.0f} ms (at most {found[-1]:.0f})"
            )
            if BROWSER is not None:
                for line in browsed(store, run, url, chosen.events):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
