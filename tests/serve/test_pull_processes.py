"""`evolve run` and `evolve work` as processes that are killed, and a network that is cut.

Invariants:
- kill -9 of a search or a worker, and a cut network, lose no stored row;
- no evaluation that a worker has finished is repeated, unless the worker itself was killed;
- a search goes on by itself as soon as a worker is there;
- the token is in no file, line or command line but its own file;
- what cannot be is said in a line, with the remedy, and status 2.
"""

import asyncio
import contextlib
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evolve.cli.main import main
from tests.forked import Forked, start
from tests.serve.pulling import TOKEN, free_port, judged, start_work, token_file

KILLS = 30
DATABASE = Path("runs/evolve.db")


class Proxy:
    """A network between workers and search that can be cut."""

    def __init__(self, port: int, behind: int) -> None:
        self.port = port
        self._behind = behind
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["Proxy"]:
        async with await asyncio.start_server(self._join, "127.0.0.1", self.port):
            yield self
            self.cut()

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        self._open -= {writer, back}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


class Lab:
    """A search and two workers, in processes, with a network between them."""

    def __init__(self, folder: Path, evaluations: int, lease: str) -> None:
        self.folder = folder
        self.behind, self.front = free_port(), free_port()
        self.workers: list[Forked | None] = [None, None]
        self.search = start(
            "evolve",
            *("run", "task=rmsnorm", "task_config.size=tiny", "device=cpu", "search=quick"),
            *("cluster=pull", f"cluster.listen=127.0.0.1:{self.behind}", f"cluster.lease={lease}"),
            *(f"cluster.token_file={token_file(folder)}", "name=run", "baseline=eager"),
            *(f"termination.evaluations={evaluations}", "termination.wall_time=10m"),
            cwd=folder,
        )

    def start_worker(self, number: int) -> None:
        there = self.folder / f"host{number}"
        there.mkdir(exist_ok=True)
        self.workers[number] = start_work(there, self.front, latency_s=0.2)

    def kill_worker(self, number: int) -> None:
        worker = self.workers[number]
        assert worker is not None
        worker.kill()
        worker.wait(10)

    def kill_search(self) -> None:
        self.search.kill()
        self.search.wait(10)

    def resume(self) -> None:
        self.search = start("evolve", "resume", "run", cwd=self.folder)

    def end(self) -> None:
        for process in (self.search, *self.workers):
            if process is not None:
                process.kill()
                process.wait(10)

    @property
    def judged(self) -> Counter[str]:
        """How often the judges have answered each question."""
        return Counter(
            marker for number in range(2) for marker in judged(self.folder / f"host{number}")
        )

    @property
    def stored(self) -> set[int]:
        """Ids of the stored evaluations."""
        path = self.folder / DATABASE
        if not path.exists():
            return set()
        with contextlib.closing(sqlite3.connect(path)) as database:
            try:
                return {row for (row,) in database.execute("SELECT id FROM evaluation")}
            except sqlite3.OperationalError:  # the table is not there yet
                return set()


@contextlib.asynccontextmanager
async def lab(
    folder: Path, evaluations: int, lease: str = "3s"
) -> AsyncIterator[tuple[Lab, Proxy]]:
    there = Lab(folder, evaluations, lease)
    try:
        async with Proxy(there.front, there.behind).serving() as proxy:
            yield there, proxy
    finally:
        there.end()


async def wait_for(condition, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it took too long"
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_kills_of_the_search_and_short_cuts_repeat_nothing_and_lose_nothing(tmp_path):
    async def test():
        chance = random.Random(7)
        async with lab(tmp_path, evaluations=8, lease="1m") as (there, proxy):
            there.start_worker(0)
            there.start_worker(1)
            for step in (4, 8, 12):
                await wait_for(lambda step=step: len(there.stored) >= step)
                await asyncio.sleep(chance.uniform(0, 0.3))
                before = there.stored
                if step != 8:
                    there.kill_search()
                    there.resume()
                else:
                    proxy.cut()
                    await asyncio.sleep(chance.uniform(0.2, 1.0))
                    proxy.mend()
                assert there.stored >= before
            await wait_for(lambda: there.search.poll() is not None)
            assert there.search.poll() == 0, there.search.printed()
            assert len(there.stored) == there.judged.total()
            assert set(there.judged.values()) == {1}

    asyncio.run(test())


# The same for one event at a time, with workers by hand: tests/serve/test_pull.py.
@pytest.mark.slow
def test_kills_of_workers_and_long_cuts_lose_nothing_and_repeat_what_was_under_way_only(tmp_path):
    async def test():
        async with lab(tmp_path, evaluations=8) as (there, proxy):
            there.start_worker(0)
            await wait_for(lambda: len(there.stored) >= 2)
            there.start_worker(1)
            there.kill_worker(0)  # its lease has to end
            await wait_for(lambda: len(there.stored) >= 5)
            there.kill_worker(1)
            there.start_worker(1)  # frees its lease at once
            await wait_for(lambda: len(there.stored) >= 8)
            before = there.stored
            proxy.cut()
            await asyncio.sleep(4.0)
            proxy.mend()
            await wait_for(lambda: there.search.poll() is not None)
            assert there.search.poll() == 0, there.search.printed()
            assert there.stored > before
            assert there.judged.total() - len(there.judged) <= 2
            assert len(there.stored) == len(there.judged)

    asyncio.run(test())


# The same for a few events in order is above.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_random_kills_and_cuts_lose_nothing(tmp_path):
    async def test():
        chance, killed_workers = random.Random(39), 0
        async with lab(tmp_path, evaluations=10_000, lease="20s") as (there, proxy):
            there.start_worker(0)
            there.start_worker(1)
            await wait_for(lambda: len(there.stored) >= 2)
            for _ in range(KILLS):
                before = there.stored
                event = chance.choice(("search", "worker", "network"))
                if event == "search":
                    there.kill_search()
                    there.resume()
                elif event == "worker":
                    killed_workers += 1
                    number = chance.randrange(2)
                    there.kill_worker(number)
                    there.start_worker(number)
                else:
                    proxy.cut()
                    await asyncio.sleep(chance.uniform(0.1, 1.0))
                    proxy.mend()
                assert there.stored >= before
                await wait_for(lambda before=before: len(there.stored) > len(before))
                await asyncio.sleep(chance.uniform(0, 1.0))
            there.search.send_signal(signal.SIGTERM)
            await wait_for(lambda: there.search.poll() is not None)
            assert there.judged.total() - len(there.judged) <= killed_workers
            assert len(there.judged) - len(there.stored) <= killed_workers + 2

    asyncio.run(test())


@pytest.mark.slow
def test_a_worker_leaves_at_once_on_a_signal_and_its_work_is_done_by_another(tmp_path):
    async def test():
        async with lab(tmp_path, evaluations=4) as (there, _):
            there.start_worker(0)
            await wait_for(lambda: len(there.stored) >= 2)
            there.start_worker(1)
            leaving = there.workers[0]
            leaving.send_signal(signal.SIGTERM)
            assert leaving.wait(10) == 0
            assert "stopped" in leaving.printed()[1]
            await wait_for(lambda: there.search.poll() is not None)
            assert there.search.poll() == 0, there.search.printed()
            said = "".join(there.search.printed() + there.workers[1].printed())
            assert "Traceback" not in said
            files = [
                path for path in tmp_path.rglob("*") if path.is_file() and path.name != "token"
            ]
            assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
            assert TOKEN not in said
            await wait_for(lambda: "has ended" in there.workers[1].printed()[1])

    asyncio.run(test())


def holds(path: Path, text: str) -> bool:
    return path.is_file() and text.encode() in path.read_bytes()


WORK = ("work", "device=cpu", "--token-file", "token")
RUN = ("run", "task=rmsnorm", "device=cpu", "cluster=pull", "cluster.token_file=token")


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*WORK, "--server", "node7:8700"), "it begins with http:// or https://"),
        ((*WORK, "--server", "ftp://node7"), "it begins with http:// or https://"),
        ((*WORK, "--server", "http://any:secret@node7"), "a token belongs into --token-file"),
        ((*WORK, "--server", "http://127.0.0.1:9", "--idle", "1s"), "no search at http://127."),
        ((*WORK, "--server", "http://127.0.0.1:9", "--idle", "soon"), "--idle soon"),
        ((*WORK, "--server", "http://127.0.0.1:9", "word"), "'word' is not key=value"),
        ((*WORK, "--server", "http://127.0.0.1:9", "device=replay"), "judges nothing new"),
        (("work", "--server", "http://127.0.0.1:9"), "--token-file is not set"),
        (("work", "--server", "http://127.0.0.1:9", "--token-file", "open"), "chmod 600 open"),
        (RUN[:-1], "cluster.token_file is not set"),
        ((*RUN, "cluster.listen=8700"), "cluster.listen=8700: it is HOST:PORT"),
        ((*RUN, "cluster.listen=192.0.2.7:8700"), "cluster.listen=192.0.2.7:8700"),
        ((*RUN, "cluster.lease=0.1s"), "cluster.lease=0.1s: it must be at least 1s"),
        ((*RUN, "device.ids=[0,1]"), "device.ids=[0, 1]"),
        ((*RUN, "sandbox.require=uid"), "give it to `evolve work`"),
        ((*RUN[:3], "cluster.lease=20s"), "has no effect without cluster=pull"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    token_file(tmp_path)
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    assert main(words) == 2
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if "trying again" not in line]
    assert len(lines) == 1, said
    assert message in lines[0]
    assert "secret" not in said


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token": "another-token-of-some-length"}, "refuses the token of --token-file"),
        ({"device_class": "cuda-stub"}, "this search is for device=cpu"),
    ],
)
def test_a_worker_that_does_not_fit_ends_with_status_2(tmp_path, settings, message):
    async def test():
        async with lab(tmp_path, evaluations=4) as (there, _):
            (tmp_path / "odd").mkdir()
            worker = start_work(tmp_path / "odd", there.front, **settings)
            await wait_for(lambda: worker.poll() is not None)
            assert worker.poll() == 2
            assert message in worker.printed()[1]
            assert "Traceback" not in worker.printed()[1]

    asyncio.run(test())
