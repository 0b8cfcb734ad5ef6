"""Model calls under faults and kill -9, the latter also over real HTTP (promise 1):

1. Stored replies are what the server delivered in full, no more and no less.
2. The ledger is the server's count, and what the calls listed as unknown have reserved.
3. No stored reply is requested again, whatever happens, and nothing that was sent is sent again.
"""

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.testing.model_replies import usage
from evolve.testing.model_server import Answer, Broken, Hang, ModelServer, Refusal, Request
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests import forked
from tests.search.conftest import make_search
from tests.search.model_run import over_http
from tests.search.models import PAID, WORST, writer

FAULTS = (
    Refusal(429, retry_after=0.05),
    Refusal(500),
    Refusal(503),
    Broken.MALFORMED,
    Broken.TRUNCATED,
    Broken.NO_CHOICES,
    Broken.WRONG_TYPE,
    Hang(60.0),
)


def rounds(store: Store, run: int) -> list[dict]:
    """Every request of a run as the dump has it."""
    lines = map(json.loads, store.dump(run))
    return [each for line in lines for each in line.get("rounds", ())]


def replies(store: Store, run: int) -> list[dict]:
    return [each["reply"] for each in rounds(store, run) if "reply" in each]


def reserved(store: Store, run: int) -> int:
    """Tokens of calls that are charged as reserved: their outcome or their count is unknown."""
    return single(
        store,
        "SELECT coalesce(sum(tokens_reserved), 0) FROM call "
        "WHERE usage IS NULL AND status NOT IN ('failed', 'unavailable')",
    )


def single(store: Store, query: str) -> int:
    return store._database.read(lambda connection: connection.exec_driver_sql(query).scalar_one())


def faulty(share: float):
    """Every answer another program; a share of the requests gets one of the faults instead."""

    def script(request: Request):
        draw = random.Random(request.number)
        if draw.random() < share:
            return draw.choice(FAULTS)
        if draw.random() < 0.02:
            return Answer("x" * 2_000_000)
        return Answer(f"{SEED_SOURCE}\n\nNUMBER = {request.number}\n", delay_s=0.02)

    return script


def search_under_faults(store: Store, run, server: ModelServer, proposals: int) -> None:
    async def body() -> None:
        model = over_http(server.api_base)
        search = make_search(store, run, operators=writer(), model=model)
        limits = from_config({"proposals": proposals, "wall_time": 500})
        await Pipeline(search, SyntheticEvaluator(slots=2), limits, verify=False).run()
        await model.close()

    asyncio.run(body())


def check_against(server: ModelServer, store: Store, run: int) -> None:
    """The invariants at the top of this file."""
    stored = replies(store, run)
    completed = Counter(reply["text"] for reply in stored if reply["status"] == "completed")
    delivered = server.log.delivered
    assert completed == Counter(answer.text for answer in delivered.values())
    counted = sum(
        usage(server.log.requests[number], answer)["total_tokens"]
        for number, answer in delivered.items()
    )
    progress = store.progress(run)
    assert progress.tokens_reserved == 0
    assert progress.tokens == counted + reserved(store, run)
    assert progress.tokens >= counted
    assert {reply["status"] for reply in stored} <= {"completed", "unknown", "empty", "failed"}


@pytest.mark.slow
def test_stored_replies_and_charges_are_what_the_server_delivered(store, run):
    with ModelServer(faulty(0.3)) as server:
        search_under_faults(store, run, server, 24)
        check_against(server, store, run.id)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thirty_per_cent_faults_over_two_hundred_proposals(store, run):
    with ModelServer(faulty(0.3)) as server:
        search_under_faults(store, run, server, 200)
        check_against(server, store, run.id)
        statuses = Counter(reply["status"] for reply in replies(store, run.id))
        print(dict(statuses), dict(server.log.replies), store.progress(run.id))
    assert len(rounds(store, run.id)) >= 200


def start(folder: Path, proposals: int, *words: str) -> forked.Forked:
    places = (str(folder / "evolve.db"), str(folder / "journal"), str(proposals))
    return forked.start("tests.search.model_run", *places, *words)


def stored(folder: Path) -> set[str]:
    """Requests whose reply is stored, by key and sample."""
    if not (folder / "evolve.db").exists():
        return set()
    with Store.open(folder / "evolve.db", read_only=True) as store:
        if not store.runs():
            return set()
        found = rounds(store, store.run("crash").id)
        return {f"{each['key']}-{each['sample']}" for each in found if "reply" in each}


def journal(folder: Path, word: str) -> list[str]:
    path = folder / "journal"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.rpartition(" ")[2] for line in lines if line.startswith(word)]


def check_kills(folder: Path, kills: int, proposals: int) -> None:
    rng = random.Random(kills)
    history: list[tuple[set[str], int]] = []  # replies stored at a kill, and calls sent by then
    for _ in range(kills):
        process, begun = start(folder, proposals), len(journal(folder, "sent"))
        while process.poll() is None and len(journal(folder, "sent")) == begun:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        process.wait()
        history.append((stored(folder), len(journal(folder, "sent"))))
    process = start(folder, proposals)
    assert process.wait(timeout=120) == 0, process.printed()[1][-2000:]
    with Store.open(folder / "evolve.db") as store:
        run = store.run("crash").id
        sent, answered = journal(folder, "sent"), journal(folder, "answered")
        assert len(sent) == len(set(sent)), "something was sent twice"
        for before, count in history:
            assert not before & set(sent[count:])
            assert before <= stored(folder)
        assert set(sent) <= stored(folder)  # a kill may come between commit and sending
        statuses = Counter(reply["status"] for reply in replies(store, run))
        assert set(statuses) <= {"completed", "unknown"}
        assert statuses["completed"] <= len(answered)
        progress = store.progress(run)
        assert progress.calls == len(stored(folder))
        unknown = statuses["unknown"]
        assert progress.tokens == statuses["completed"] * PAID.total + unknown * WORST.tokens
        assert (progress.tokens_reserved, store.pending_calls(run)) == (0, [])
        print(f"{kills} kills: {dict(statuses)}")


def test_five_kills_lose_no_reply_and_repeat_no_call(tmp_path):
    check_kills(tmp_path, 5, 60)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_kills_lose_no_reply_and_repeat_no_call(tmp_path):
    check_kills(tmp_path, 20, 300)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_over_real_http(tmp_path):
    """LiteLLM takes seconds to import, so that each life is short in calls."""
    script = faulty(0.1)
    with ModelServer(script) as server:
        rng = random.Random(5)
        for _ in range(20):
            process, before = start(tmp_path, 400, server.api_base), server.deliveries
            while process.poll() is None and server.deliveries == before:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.3))
            process.kill()
            process.wait()
        process = start(tmp_path, 400, server.api_base)
        assert process.wait(timeout=300) == 0, process.printed()[1][-2000:]
        with Store.open(tmp_path / "evolve.db") as store:
            run = store.run("crash").id
            kept = [reply for reply in replies(store, run) if reply["status"] == "completed"]
            unknown = [reply for reply in replies(store, run) if reply["status"] == "unknown"]
            delivered = Counter(answer.text for answer in server.log.delivered.values())
            assert not Counter(reply["text"] for reply in kept) - delivered
            lost = sum(delivered.values()) - len(kept)
            assert lost <= len(unknown)  # delivered to a process that died before it could store
            assert store.progress(run).tokens == reserved(store, run) + sum(
                reply["usage"]["prompt"] + reply["usage"]["completion"]
                for reply in replies(store, run)
                if reply["usage"]
            )
            print(f"{len(kept)} replies kept, {lost} lost, {len(unknown)} unknown")


def wait_until(process: forked.Forked, holds) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def charged(folder: Path) -> int:
    """Calls that count as paid for, those of unknown outcome among them."""
    with Store.open(folder / "evolve.db") as store:
        return single(
            store, "SELECT count(*) FROM call WHERE status NOT IN ('failed', 'unavailable')"
        )


def check_early_kills(folder: Path, kills: int) -> None:
    """Half of them at any time of the first three seconds, half while calls begin to be sent."""

    def script(request: Request) -> Answer:
        return Answer(f"{SEED_SOURCE}\n\nNUMBER = {request.number}\n", delay_s=0.5)

    rng = random.Random(kills)
    with ModelServer(script) as server:
        seen = server.log.requests
        for kill in range(kills):
            begun, before = len(journal(folder, "began")), len(seen)
            process = start(folder, 10_000, server.api_base)
            wait_until(process, lambda begun=begun: len(journal(folder, "began")) > begun)
            if kill % 2:
                wait_until(process, lambda before=before: len(seen) > before)
                time.sleep(rng.uniform(0.0, 0.3))
            else:
                time.sleep(rng.uniform(0.0, 3.0))
            process.kill()
            process.wait()
        time.sleep(0.5)  # the last requests may still be on their way to the log
        print(f"{kills} kills: {len(seen)} calls seen, {charged(folder)} charged")
        assert len(seen) == charged(folder)
        assert len(seen) >= kills / 2


@pytest.mark.slow
def test_calls_are_charged_that_were_sent_whenever_a_search_is_killed(tmp_path):
    check_early_kills(tmp_path, 4)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_hundred_early_kills_charge_no_call_that_was_not_sent(tmp_path):
    check_early_kills(tmp_path, 100)
