"""`evolve ui`: the page's answers, by HTTP.

1. Nothing but the page's own files is given without the token.
2. Steps come page by page; a change reaches every watcher, and needs the token.
3. What cannot be is said in one line.
4. A transcript comes in bounded parts; verdicts in it are the run's, not the agent's words.
5. A run has the same fields in the list, on its page and in news of it, its verified speedup too.
"""

import json
import re
import socket
import sqlite3
import threading
from pathlib import Path

import httpx
import pytest

from evolve.report.text import TIMES
from evolve.serve import live
from evolve.store import Store
from evolve.store.database.user import current_user
from tests.report.filling import Filling
from tests.serve.ui.episodes import KNOWN, LONG, RUN, UNKNOWN
from tests.serve.ui.serving import HOSTILE, TOKEN, add_step, serving, start

PAGE = Path(live.__file__).parent / "page"


def test_only_the_files_of_the_page_are_given_without_the_token(url: str) -> None:
    page = httpx.get(url).text
    assert '<main id="main"' in page
    assert httpx.get(f"{url}page/live.js").status_code == 200
    for path in (
        "runs",
        "run?name=done",
        "steps?name=done",
        "step?name=done&sequence=0",
        "events",
        "transcript.txt?name=x&sequence=0",
    ):
        assert httpx.get(f"{url}api/{path}").status_code == 401
        wrong = {"Authorization": "Bearer another-token-0123"}
        assert httpx.get(f"{url}api/{path}", headers=wrong).status_code == 401


def test_the_page_names_no_other_address(url: str) -> None:
    """Relative addresses alone go through a forwarded port."""
    page = httpx.get(url).text
    files = re.findall(r'(?:src|href)="([^"#:]+)"', page)
    for text in [page, *(httpx.get(url + file).text for file in files)]:
        assert not re.search(r'https?://(?!www\.w3\.org)|["\'(]/\w', text)


def test_what_a_file_of_the_page_exports_another_uses() -> None:
    """A name for one file alone is not exported: its second user would write it again."""
    files = {path.name: path.read_text() for path in PAGE.glob("*.js")}
    unused = []
    for name, text in files.items():
        declared = re.findall(r"^export (?:async )?(?:const|class|function) (\w+)", text, re.M)
        listed = re.findall(r"^export \{ (.*) \};", text, re.M)
        rest = "".join(other for file, other in files.items() if file != name)
        for each in (*declared, *", ".join(listed).split(", ")):
            if each and not re.search(rf"\b{each}\b", rest):
                unused.append(f"{name}: {each}")
    assert unused == []


def test_steps_come_in_order_after_a_number(ask: httpx.Client) -> None:
    everything = ask.get("api/steps", params={"name": "done"}).json()
    assert [step["n"] for step in everything] == list(range(41))
    rest = ask.get("api/steps", params={"name": "done", "after": 37}).json()
    assert rest == everything[38:]


def test_what_is_not_there_is_said(ask: httpx.Client) -> None:
    missing = ask.get("api/step", params={"name": "done", "sequence": 4000})
    assert missing.status_code == 404
    assert "it has 0 to 40" in missing.json()["detail"]
    assert ask.get("api/run", params={"name": "no"}).status_code == 404
    assert ask.get("api/steps", params={"name": "done", "after": "x"}).status_code == 422


def test_verdicts_of_programs_in_a_transcript_are_those_of_the_run(ask: httpx.Client) -> None:
    (asked,) = ask.get("api/step", params={"name": RUN, "sequence": 1}).json()["rounds"]
    assert (asked["transcript"]["title"], asked["tokens"], asked["usd"]) == (
        "Transcript of the agent", 1050, 0.25)  # fmt: skip
    found = ask.get("api/transcript", params={"name": RUN, "sequence": 1}).json()
    said, known, unknown = found["turns"]
    assert (found["total"], said["kind"]) == (3, "text")
    assert (known["tool"], known["program"], known["text"]) == ("submit", KNOWN, "note: idea 0")
    speedup = {"speedup": f"2.01{TIMES}", "span": "1.97 to 2.05"}
    assert known["tried"] == {"sequence": 2, "status": "correct", **speedup}
    assert (unknown["program"], unknown["tried"]) == (UNKNOWN, None)


def test_a_transcript_of_ten_megabytes_comes_in_parts_and_as_a_whole(ask: httpx.Client) -> None:
    about = {"name": RUN, "sequence": 3}
    step = ask.get("api/step", params=about)
    chars = step.json()["rounds"][0]["transcript"]["chars"]
    assert chars > 10_000_000
    assert len(step.content) < 10_000
    first = ask.get("api/transcript", params=about)
    assert len(first.json()["turns"]) < 100
    assert len(first.content) < 500_000
    last = ask.get("api/transcript", params=about | {"after": LONG}).json()
    assert (last["total"], [turn["text"] for turn in last["turns"]]) == (
        LONG + 1, [f"note: idea {LONG - 1}"])  # fmt: skip
    whole = ask.get("api/transcript.txt", params=about)
    assert (len(whole.text), whole.headers["content-type"]) == (chars, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["api/transcript", "api/transcript.txt"])
@pytest.mark.parametrize(
    ("sequence", "reply", "status", "said"),
    [(1, 1, 404, "step 1 of by agent has no reply 1"), (9, 0, 404, "0 to 3"), (1, -1, 422, "")],
)
def test_a_transcript_that_is_not_there_is_said(
    ask: httpx.Client, path: str, sequence: int, reply: int, status: int, said: str
) -> None:
    found = ask.get(path, params={"name": RUN, "sequence": sequence, "reply": reply})
    assert found.status_code == status
    assert said in str(found.json()["detail"])


def test_all_watchers_hear_of_a_new_step(filled: Filling, ask: httpx.Client) -> None:
    heard: list[list[dict]] = [[] for _ in range(3)]
    ready = [threading.Event() for _ in heard]

    def listen(place: int) -> None:
        with ask.stream("GET", "api/events") as stream:
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event.get("hello"):
                    ready[place].set()
                heard[place] += event.get("steps", {}).get("under way", [])
                if heard[place]:
                    return

    threads = [threading.Thread(target=listen, args=(place,), daemon=True) for place in range(3)]
    for thread in threads:
        thread.start()
    assert all(each.wait(20) for each in ready)
    number = add_step(filled, 500, 0.3)
    for thread in threads:
        thread.join(20)
    assert [[step["n"] for step in steps] for steps in heard] == [[number]] * 3
    assert heard[0][0]["status"] == "correct"


def test_a_change_is_an_event_of_the_run_and_needs_the_token(
    url: str, ask: httpx.Client, filled: Filling
) -> None:
    filled.store.heartbeat(filled.run.id, 0.1)
    note = {"name": "under way", "kind": "note", "value": f"wider {HOSTILE}"}
    assert httpx.post(f"{url}api/steer", json=note).status_code == 401
    assert ask.get("api/run", params={"name": "under way"}).json()["steering"]["events"] == []
    assert ask.post("api/steer", json=note).status_code == 200
    pin = ask.post("api/steer", json={"name": "under way", "kind": "pin", "value": "0"})
    assert pin.json()["stored"].startswith("pin program")
    steering = ask.get("api/run", params={"name": "under way"}).json()["steering"]
    assert [event["text"] for event in steering["events"]] == [f"note wider {HOSTILE}", "pin"]
    assert [event["program_of"] for event in steering["events"]] == [None, 0]
    assert [event["from"] for event in steering["events"]] == [None, None]
    assert {event["user"] for event in steering["events"]} == {f"{current_user()} via ui"}
    noted, pinned = filled.store.audit_log(2, "under way")
    assert (noted.action, noted.detail) == ("steered", f"note wider {HOSTILE} via ui")
    assert pinned.detail == f"{pin.json()['stored']} via ui"
    assert pinned.user == current_user()


def test_a_page_changes_nothing_unless_it_was_started_to(
    read_only_url: str, filled: Filling
) -> None:
    filled.store.heartbeat(filled.run.id, 0.1)
    before = filled.store.steering(filled.run.id)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=read_only_url, headers=headers, timeout=30) as ask:
        answer = ask.post("api/steer", json={"name": "under way", "kind": "pause"})
        assert answer.status_code == 403
        assert "`evolve ui --steer`" in answer.json()["detail"]
        assert not ask.get("api/run", params={"name": "under way"}).json()["steers"]
        step = ask.get("api/step", params={"name": "under way", "sequence": 0})
        assert not step.json()["steers"]
    assert filled.store.steering(filled.run.id) == before


@pytest.mark.parametrize(
    ("name", "kind", "value", "said"),
    [
        ("done", "pause", "", "is finished"),
        ("under way", "pin", "4000", "it has 0 to"),
        ("under way", "budget", "evaluations=1e9", "at most 100 times"),
        ("under way", "faster", "", "is unknown"),
        ("no", "end", "", "no run 'no'"),
    ],
)
def test_a_change_that_cannot_be_meant_is_said(
    ask: httpx.Client, filled: Filling, name: str, kind: str, value: str, said: str
) -> None:
    filled.store.heartbeat(filled.run.id, 0.1)
    answer = ask.post("api/steer", json={"name": name, "kind": kind, "value": value})
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


@pytest.mark.slow
def test_a_taken_port_is_said(filled: Filling) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(filled.store.location, "--port", str(port))
        _, said = server.communicate(timeout=60)
    assert server.returncode == 2
    assert f"--port {port}" in said
    assert "name another port" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "99999"], "99999 is no port; name one from 1 to 65535"),
        (["--host", "no-such.invalid"], "name an address of this machine"),
        (["--host", "192.0.2.1"], "name an address of this machine"),
    ],
)
def test_an_address_that_cannot_be_is_said(filled: Filling, words: list[str], said: str) -> None:
    server = start(filled.store.location, *words)
    _, told = server.communicate(timeout=60)
    assert server.returncode == 2
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_verified_speedup_is_the_same_in_the_list_on_the_page_and_in_news(tmp_path: Path) -> None:
    path = tmp_path / "evolve.db"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        Store.open(path, create=True) as store,
        serving(str(path)) as url,
        httpx.Client(base_url=url, headers=headers, timeout=20) as ask,
    ):
        searched = Filling(store=store, name="x").search(5)
        (line,) = ask.get("api/runs").json()
        assert line["claimed"] is None
        with ask.stream("GET", "api/events") as stream:
            lines = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
            events = map(json.loads, lines)
            assert "hello" in next(events)
            searched.verify()
            news = (run for event in events for run in event.get("runs", []))
            told = next(run for run in news if run["claimed"])
        (line,) = ask.get("api/runs").json()
        page = ask.get("api/run", params={"name": "x"}).json()
    assert told == line
    assert {name: page[name] for name in line} == line


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_that_is_taken_away_while_a_page_is_open_is_said(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "evolve.db"
    with Store.open(path, create=True) as store:
        Filling(store=store, name="x").search(2)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        serving(str(path)) as url,
        httpx.stream("GET", f"{url}api/events", headers=headers, timeout=20) as stream,
    ):
        lines = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
        events = map(json.loads, lines)
        assert "hello" in next(events)
        for each in tmp_path.glob("evolve.db*"):
            each.rename(tmp_path / f"old-{each.name}")
        if replaced:
            Store.open(path, create=True).close()
        event = next(found for found in events if "trouble" in found)
    assert "was deleted, moved or replaced; end `evolve ui`" in event["trouble"]


def test_a_store_of_another_version_is_said(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    Store.open(path, create=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    server = start(str(path), "--port", "0")
    _, said = server.communicate(timeout=60)
    assert server.returncode == 2
    assert "schema 999" in said
    assert len(said.splitlines()) == 1
