"""Random kills of a search, its workers, their hosts and its database, and what they cost.

    python -m tests.benchmarks.bench_kills --kills 100 --seed 39 --minutes 15
    python -m tests.benchmarks.bench_kills --kills 30 --pairs 1

One search (`cluster=pull`, a scripted model behind HTTP, PostgreSQL) with two workers over stub
judges. Each round kills one of them with SIGKILL, starts it again, and waits until the search has
stored a verdict more; after a kill of the search an answer of the model too. A share `--pairs` of
the rounds kills two at once, and starts them again in any order, up to three seconds apart. A
search that was killed with its database, and finds no server then, ends and says so; it is started
once more, as by a supervisor, and counted. After each round no row that was ever seen in the
database may be missing, and at the end:

- no evaluation that was stored is judged again;
- no call is sent twice: the server got at most one request for each stored call, each answer is
  stored once at most, and no text has two answers;
- the counters of the run are those of its rows.

The order of kills follows from the seed: `--first N` goes on with the N-th, on a new search. The
exit status is 1 if anything was lost, repeated or paid twice.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import psycopg

from evolve.core.evaluation import Fidelity
from evolve.core.lineage import Step
from evolve.core.model import CallStatus
from evolve.core.source.tunables import render
from evolve.store import Store
from evolve.testing.model_server import ModelServer, Request
from evolve.testing.synthetic import SEED_SOURCE
from tests.benchmarks.conditions import print_conditions
from tests.forked import Forked, preload, start
from tests.serve.pulling import free_port, judged, start_work, token_file
from tests.store.servers import Server, running_server
from tests.worker.serving import alive, family_of

KINDS = ("search", "worker", "host", "database")
ON_HOSTS = ("worker", "host")
NO_SERVER = "no connection to the server"
PATIENCE_S = 120.0
WORKERS = 2
LATENCY_S = 0.2  # of a judge
ANSWER_S = 0.3
_QUERIES = {
    "tickets": "SELECT sequence, operator FROM ticket",
    "evaluations": (
        "SELECT t.sequence, e.status, e.fidelity FROM evaluation e JOIN ticket t ON t.id = e.ticket"
    ),
    "offers": ("SELECT t.sequence, o.status FROM archive_offer o JOIN ticket t ON t.id = o.ticket"),
    "replies": (
        "SELECT c.id, c.status, c.tokens, c.usd, c.reply FROM call c WHERE c.status <> 'pending'"
    ),
    "texts": "SELECT encode(sha256, 'hex') FROM blob",
}
"""Rows by keys that stay the same when a transaction is repeated."""

Rows = dict[str, set[tuple]]


class Lab:
    """A search, its workers and its database, in processes."""

    def __init__(self, folder: Path, server: Server, model: ModelServer) -> None:
        self.folder = folder
        self.server = server
        self.url = server.new_database()
        self.port = free_port()
        self.killed = Counter[str]()
        self.printed: list[str] = []
        self._asked: dict[int, str] = {}  # by sequence number; "" without an evaluation
        self.hosts = [folder / f"host{number}" for number in range(WORKERS)]
        self.workers: list[Forked] = []
        self._server_family: set[int] = set()
        self._may_find_none = False
        self.revived = 0
        for host in self.hosts:
            host.mkdir()
            self.workers.append(self._work(host))
        self._store = ("store=postgresql", f'store.url="{self.url}"')
        self.search = self._evolve(
            *("run", "task=rmsnorm", "task_config.size=tiny", "device=cpu", "search=quick"),
            *("name=run", "baseline=eager", "operators=llm", "llm.model=openai/scripted"),
            *(f"llm.api_base={model.api_base}", "llm.slots=3"),
            *("llm.price.prompt=1", "llm.price.completion=2"),
            *("cluster=pull", f"cluster.listen=127.0.0.1:{self.port}", "cluster.lease=10s"),
            f"cluster.token_file={token_file(folder)}",
            *("termination.wall_time=2h", "termination.evaluations=1000000"),
            *("termination.stagnation=null", "termination.usd=1000000"),
        )

    def _evolve(self, *words: str) -> Forked:
        env = {**os.environ, "OPENAI_API_KEY": "none"}
        return start("evolve", *words, *self._store, cwd=self.folder, env=env)

    def _work(self, host: Path) -> Forked:
        return start_work(host, self.port, latency_s=LATENCY_S)

    def kill(self, kinds: Sequence[str], chance: random.Random) -> None:
        """Kill them at once, and start them again one after the other."""
        self.killed["+".join(sorted(kinds))] += 1
        self._may_find_none = {"search", "database"} <= set(kinds)
        numbers = chance.sample(range(WORKERS), WORKERS)
        victims = [(kind, numbers.pop() if kind in ON_HOSTS else 0) for kind in kinds]
        families = [self._family(*victim) for victim in victims]
        self._server_family = family_of(self.server.pid)
        for pid in set().union(*families):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        chance.shuffle(victims)
        for position, (kind, number) in enumerate(victims):
            time.sleep(chance.uniform(0.0, 3.0 if position else 1.0))
            self._start_again(kind, number)

    def _family(self, kind: str, number: int) -> set[int]:
        """The processes that a kill ends directly."""
        if kind == "search":
            return {self.search.pid}
        if kind == "database":
            return {self.server.pid}
        worker = self.workers[number].pid
        return family_of(worker) if kind == "host" else {worker}

    def _start_again(self, kind: str, number: int) -> None:
        if kind == "search":
            self._end(self.search)
            self.search = self._evolve("resume", "run")
        elif kind == "database":
            self.server.kill()  # which waits for its first process
            wait(lambda: not alive(self._server_family), "the server's processes end")
            self.server.start(durable=True)
        else:
            self._end(self.workers[number])
            self.workers[number] = self._work(self.hosts[number])

    def _end(self, process: Forked) -> None:
        process.kill()
        process.wait(30)
        self.printed += process.printed()

    def stored(self) -> Rows:
        """All rows at this moment, by keys of their own; none before the tables are there."""
        try:
            with closing(psycopg.connect(self.url)) as connection:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return {
                    name: set(connection.execute(query).fetchall())
                    for name, query in _QUERIES.items()
                }
        except psycopg.errors.UndefinedTable:
            return {name: set() for name in _QUERIES}

    def has_more(self, before: Rows, names: Iterable[str]) -> bool:
        """Whether the database has more rows of all these kinds than before."""
        self._revive()
        now = self.stored()
        return all(sum(map(known, now[name])) > sum(map(known, before[name])) for name in names)

    def _revive(self) -> None:
        """Start a search once more that was sooner than the server it was killed with."""
        if self._may_find_none and self.search.poll() == 2:
            self._may_find_none = False
            if NO_SERVER in self.search.printed()[1]:
                self.revived += 1
                self._start_again("search", 0)

    def questions(self) -> Counter[str]:
        """How many stored evaluations there are to each question, as judges list it."""
        with Store.open(self.url, read_only=True) as store:
            run = store.run().id
            after = max(self._asked, default=-1)
            waiting = [sequence for sequence, asked in self._asked.items() if not asked]
            steps = [store.step(run, sequence) for sequence in waiting]
            for step in (*steps, *store.steps(run, after=after)):
                self._asked[step.sequence] = (
                    "" if step.status is None else question(store, run, step)
                )
        return Counter(filter(None, self._asked.values()))

    @property
    def judged(self) -> Counter[str]:
        """How often judges have answered each question."""
        return Counter(each for host in self.hosts for each in judged(host))

    def end(self) -> None:
        for process in (self.search, *self.workers):
            self._end(process)


def question(store: Store, run: int, step: Step) -> str:
    """As `tests.serve.stub_worker` names it."""
    proposal = store.ticket(run, step.sequence).proposal
    assert proposal is not None
    source = render(proposal.program.source, proposal.assignment)
    repeat = store.repeat(run, step.sequence) if proposal.is_reevaluation else 0
    asked = json.dumps([source, proposal.fidelity, repeat])
    return hashlib.sha256(asked.encode()).hexdigest()[:12]


def reply(request: Request) -> str:
    """A program that no other request gets."""
    number = request.number
    time.sleep(ANSWER_S)
    notes = f"# speedup {1 + number % 97 / 100:.2f}\nNUMBER = {number}"
    return f"```python\n{SEED_SOURCE}\n\n{notes}\n```"


def together(kind: str, pairs: float, chance: random.Random) -> tuple[str, ...]:
    """A kill of this kind, in a share of the rounds with another one at once."""
    if chance.random() >= pairs:
        return (kind,)
    return (kind, chance.choice([other for other in KINDS if other != kind or kind in ON_HOSTS]))


def campaign(lab: Lab, options: argparse.Namespace, deadline: float) -> list[str]:
    """Kill until the number or the time is reached; returns the faults."""
    seed, first = options.seed, options.first
    order = random.Random(seed)
    rounds = [(order.choice(KINDS), order.random()) for _ in range(options.kills)]
    seen: Rows = {name: set() for name in _QUERIES}
    judged_first: Counter[str] = Counter()  # when the verdict was first seen in the database
    faults: list[str] = []
    try:
        wait(lambda: len(lab.stored()["evaluations"]) >= 3, "the search begins")
    except TimeoutError as error:
        return [f"{error}; {lab.search.printed()}"]
    for number, (kind, delay) in enumerate(rounds[first:], start=first):
        if time.monotonic() > deadline:
            break
        before = lab.stored()
        began = time.monotonic()
        chance = random.Random(f"{seed} {number}")
        kinds = together(kind, options.pairs, chance)
        name = "+".join(kinds)
        lab.kill(kinds, chance)
        awaited = ("evaluations", "replies") if "search" in kinds else ("evaluations",)
        try:
            wait(partial(lab.has_more, before, awaited), f"kill of {name}")
        except TimeoutError as error:
            faults.append(f"kill {number}: {error}; {lab.search.printed()[1][-600:]!r}")
            break
        after = lab.stored()
        for table, rows in before.items():
            seen[table] |= rows
            if lost := seen[table] - after[table]:
                faults.append(f"kill {number} of {name}: {table} lost: {sorted(lost, key=str)[:3]}")
        asked = lab.questions()  # first: a judge lists an answer before it is stored
        now = lab.judged
        for each in asked.keys() - judged_first.keys():
            judged_first[each] = now[each] - asked[each]
        print(
            f"{number:>3} {name:<17} {time.monotonic() - began:5.1f} s until a verdict more, "
            f"{len(after['evaluations'])} stored",
            flush=True,
        )
        time.sleep(delay)
    asked = lab.questions()
    now = lab.judged
    more = {each: now[each] - asked[each] - count for each, count in judged_first.items()}
    if again := {each: count for each, count in more.items() if count > 0}:
        faults.append(f"judged again after the verdict was stored: {again}")
    if unlisted := asked.keys() - now.keys():
        faults.append(f"no judge has listed {sorted(unlisted)[:5]}: the questions are others")
    return faults


def known(row: tuple) -> bool:
    """Whether it is more than a call without an answer."""
    return "unknown" not in row


def settled(lab: Lab, model: ModelServer) -> list[str]:
    """What the database and the model's server say at the end."""
    faults = []
    calls = lab.server.execute(
        "SELECT c.status, c.reply, c.request FROM call c ORDER BY c.id", lab.url
    )
    sent, delivered = len(model.log.requests), model.deliveries
    answered = [row for row in calls if row[0] == CallStatus.COMPLETED]
    unknown = sum(row[0] in (CallStatus.UNKNOWN, CallStatus.PENDING) for row in calls)
    if not answered:
        faults.append("no answer was stored: this tested nothing of the model")
    if sent > len(calls):
        faults.append(f"{sent} requests were sent for {len(calls)} stored calls")
    twice = [n for n, count in Counter(row[2] for row in answered).items() if count > 1]
    twice += [n for n, count in Counter(row[1] for row in answered).items() if count > 1]
    if twice:
        faults.append(f"paid twice: {twice[:5]}")
    if delivered - len(answered) > unknown:
        faults.append(
            f"{delivered} answers, {len(answered)} stored, {unknown} calls open or unknown"
        )
    with Store.open(lab.url, read_only=True) as store:
        run = store.run().id
        steps = list(store.steps(run))
        progress = store.progress(run)
    whole = sum(
        step.status not in (None, "infra") and step.fidelity is Fidelity.SEARCH for step in steps
    )
    if [step.sequence for step in steps] != list(range(len(steps))):
        faults.append("sequence numbers are missing")
    if progress.evaluations != whole:
        faults.append(f"{progress.evaluations} evaluations counted, {whole} stored")
    repeated = lab.judged.total() - lab.questions().total()
    print(
        f"{sum(lab.killed.values())} kills {dict(lab.killed)}: {len(steps)} steps, {whole} full "
        f"evaluations; {lab.revived} searches started again that were sooner than their "
        f"database; {repeated} judged in vain, their judge or search killed before the verdict "
        f"was stored, or under way; {sent} requests to the model, {len(calls)} calls stored, "
        f"{len(answered)} answers, {unknown} open or unknown"
    )
    if said := [text for text in lab.printed if "Traceback" in text]:
        faults.append(f"{len(said)} tracebacks: {said[0][-1500:]}")
    return faults


def wait(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Raise TimeoutError if the condition does not come true."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="go on with this one")
    parser.add_argument("--seed", type=int, default=39)
    parser.add_argument("--pairs", type=float, default=0.0, help="share of kills of two at once")
    parser.add_argument("--minutes", type=float, default=15.0, help="end after the kill under way")
    options = parser.parse_args()
    print_conditions()
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it fetches one when it is imported
    preload("litellm")
    began = time.monotonic()
    deadline = began + 60 * options.minutes
    with (
        running_server(durable=True) as server,
        ModelServer(reply) as model,
        tempfile.TemporaryDirectory() as folder,
    ):
        lab = Lab(Path(folder), server, model)
        try:
            faults = campaign(lab, options, deadline)
        finally:
            lab.end()
        if lab.killed:
            faults += settled(lab, model)
    print(f"{time.monotonic() - began:.0f} s; {len(faults)} faults")
    print("\n".join(faults))
    print_conditions()
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
