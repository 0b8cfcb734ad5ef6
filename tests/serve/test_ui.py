"""`evolve ui`: the page and its answers, by HTTP and in a real browser.

1. Nothing but the page's own files is given without the token.
2. Steps come page by page; what is stored while a page is open reaches it by itself.
3. A link to a step stays valid; nothing that a candidate wrote is read as markup.
4. What cannot be is said in one line.
"""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.report.text import TIMES
from evolve.store import Store
from evolve.store.database.user import current_user
from tests.report.filling import TASK, Filling, evaluation, source
from tests.serve.browsing import BROWSER, Tab, browsing
from tests.serve.serving import ROOT

TOKEN = "0123456789abcdef-ui"
HOSTILE = "<img src=x onerror=document.title='taken'>"


def start(*words: str, token: str = TOKEN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "evolve", "ui", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EVOLVE_UI_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(*words: str) -> Iterator[str]:
    server = start(*words, "--port", "0")
    assert server.stdout is not None
    line = server.stdout.readline()
    try:
        yield line.removeprefix("open ").strip()
    finally:
        server.terminate()
        assert server.wait(20) == 0


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    path = tmp_path_factory.mktemp("ui") / "evolve.db"
    with Store.open(path, create=True) as store:
        done = Filling(store=store, name="done").search(40)
        done.verify()
        done.finish()
        under_way = Filling(store=store, name="under way").search(5)
        root = next(iter(under_way.slots.values())).program
        hostile = Program(f"# {HOSTILE}\n{source(999, 2)}")
        proposal = Proposal(program=hostile, parents=(root,), note=HOSTILE)
        under_way.step("improve", proposal, evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, 0.1))
        yield under_way


@pytest.fixture(scope="module")
def url(filled: Filling) -> Iterator[str]:
    with serving(filled.store.location, "--steer") as address:
        yield address


@pytest.fixture(scope="module")
def read_only_url(filled: Filling) -> Iterator[str]:
    with serving(filled.store.location) as address:
        yield address


@pytest.fixture
def ask(url: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        yield client


def add_step(filled: Filling, number: int, value: float) -> int:
    root = next(iter(filled.slots.values())).program
    proposal = Proposal(program=Program(source(number, 4)), parents=(root,))
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, value)
    filled.store.heartbeat(filled.run.id, 0.1)
    return filled.step("improve", proposal, verdict).sequence


def test_only_the_files_of_the_page_are_given_without_the_token(url: str) -> None:
    page = httpx.get(url).text
    assert '<main id="main"' in page
    assert httpx.get(f"{url}page/live.js").status_code == 200
    for path in ("runs", "run?name=done", "steps?name=done", "step?name=done&sequence=0", "events"):
        assert httpx.get(f"{url}api/{path}").status_code == 401
        wrong = {"Authorization": "Bearer another-token-0123"}
        assert httpx.get(f"{url}api/{path}", headers=wrong).status_code == 401


def test_the_page_names_no_other_address(url: str) -> None:
    """Relative addresses alone go through a forwarded port."""
    page = httpx.get(url).text
    files = re.findall(r'(?:src|href)="([^"#:]+)"', page)
    for text in [page, *(httpx.get(url + file).text for file in files)]:
        assert not re.search(r'https?://(?!www\.w3\.org)|["\'(]/\w', text)


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


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.browser
def test_a_run_is_followed_and_replayed_in_a_browser(tab: Tab, url: str, filled: Filling) -> None:
    tab.size(1280, 900)
    tab.open(f"{url}#token={TOKEN}/run/under%20way")
    tab.wait_for_text("best speedup over eager")
    tab.wait_for_text("live")
    before = filled.store.next_sequence(filled.run.id)
    tab.wait_for_text(f"{before} of {before} steps")
    began = time.monotonic()
    add_step(filled, 501, 1.0)
    tab.wait_for_text(f"{before + 1} of {before + 1} steps")
    assert time.monotonic() - began < 5
    tab.wait_for_text(f"2.72{TIMES}")
    tab.ask("r = document.querySelector('input[type=range]'); r.value = 2;"
            "r.dispatchEvent(new Event('input')); 0")  # fmt: skip
    tab.wait_for_text(f"2 of {before + 1} steps")
    assert "token" not in tab.ask("location.href")
    assert tab.complaints == []


@pytest.mark.browser
def test_parts_off_the_screen_follow_too(tab: Tab, url: str, filled: Filling) -> None:
    tab.size(1280, 300)
    tab.open(f"{url}#token={TOKEN}/run/under%20way")
    before = filled.store.next_sequence(filled.run.id)
    tab.wait_for_text(f"{before} of {before} steps")
    proposals = "document.querySelector('.share').closest('tr').children[1].textContent"
    sequence = add_step(filled, 502, 0.2)
    newest = f'.scroll a[href$="/step/{sequence}"]'
    tab.wait(f"document.querySelector('{newest}')")
    top = tab.ask(f"document.querySelector('{newest}').getBoundingClientRect().top")
    assert top > 1000, "the table lay on the screen"
    tab.wait(f"Number({proposals}) === {sequence + 1}")
    assert tab.complaints == []


@pytest.mark.browser
def test_bars_of_a_long_run_without_a_gap_that_shows_are_one(tab: Tab, url: str) -> None:
    tab.open(f"{url}#token={TOKEN}/run/done")
    tab.wait_for_text("41 of 41 steps")
    tab.ask("""import("./page/parts.js").then(parts => {
        const status = n => n % 7 ? "correct" : "slow", pause = n => n < 25000 ? 0 : 10000;
        const step = n => ({ n, s: 0.9, t: n + 1 + pause(n), status: status(n),
            judge: `gpu ${n % 2}` });
        window.lanes = parts.lanes(Array.from({ length: 50000 }, (_, n) => step(n)))[0]; }); 0""")
    tab.wait("window.lanes")
    cells = "[...lanes.querySelectorAll('td:nth-child(3)')].map(cell => cell.textContent)"
    assert tab.ask(cells) == ["25,000", "25,000"]
    paths = "[...lanes.querySelectorAll('path')].map(path => path.getAttribute('d'))"
    bars = [path.count("M") for path in tab.ask(paths)]
    assert bars == [2, 2, 2, 2], "before and after the pause, by judge and verdict"


@pytest.mark.browser
def test_a_link_to_a_step_shows_its_change_as_text(tab: Tab, url: str) -> None:
    tab.open(f"{url}#token={TOKEN}/run/under%20way/step/5")
    tab.wait_for_text("Step 5 of under way")
    tab.wait_for_text(HOSTILE)
    assert tab.ask("document.querySelectorAll('.sides .add').length") >= 1
    assert tab.ask("document.title") == "evolve"
    assert tab.ask("document.images.length") == 0
    tab.press("k")
    tab.wait_for_text("Step 4 of under way")
    assert tab.ask("location.hash") == "#/run/under%20way/step/4"
    assert tab.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("run/under%20way/step/9999", "has no step 9999"),
        ("run/under%20way/step/99999999999999999999999", "is no number"),
        ("run/under%20way/step/x", "Step 'x' is no number"),
        ("run/no", "no run 'no'"),
        ("run/%E0%A4%A", "no run '%E0%A4%A'"),
        ("compare/done/no", "no such run"),
    ],
)
def test_a_link_to_what_is_not_there_says_so(tab: Tab, url: str, route: str, said: str) -> None:
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/{route}")
    tab.wait_for_text(said)
    assert tab.ask("document.querySelectorAll('main h1').length") == 1
    assert [each for each in tab.complaints if "404" not in each] == []
    tab.complaints.clear()


@pytest.mark.browser
def test_the_keys_stop_at_the_last_step(tab: Tab, url: str, filled: Filling) -> None:
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/run/done/step/39")
    tab.wait_for_text("Step 39 of done")
    for _ in range(3):
        tab.press("j")
        tab.wait_for_text("Step 40 of done")
    tab.press("k")
    tab.wait_for_text("Step 39 of done")


@pytest.mark.browser
def test_an_answer_that_comes_late_does_not_replace_a_newer_view(tab: Tab, url: str) -> None:
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/")
    tab.wait_for_text("Compare")
    tab.ask("""window.answered = 0; const real = fetch; window.fetch = async (...words) => {
        const answer = await real(...words);
        if (String(words[0]).startsWith("api/run?")) {
            await new Promise(done => setTimeout(done, 500));
            setTimeout(() => { answered += 1; }, 100);
        }
        return answer; }; location.hash = "#/run/done"; 0""")
    tab.ask("location.hash = '#/'")
    tab.wait("answered === 1")
    assert tab.ask("document.querySelector('h1').textContent") == "Runs"


@pytest.mark.browser
@pytest.mark.parametrize(
    ("route", "held"), [("", "main a"), ("run/under%20way", ".controls button[aria-pressed]")]
)
def test_the_keyboard_keeps_its_place_while_steps_come_in(
    tab: Tab, url: str, filled: Filling, route: str, held: str
) -> None:
    tab.size(1280, 900)
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/{route}")
    tab.wait(f"document.querySelector('{held}')")
    tab.ask(f"window.before = document.querySelector('{held}'); before.focus(); 0")
    add_step(filled, 600 + len(route), 0.1)
    tab.wait("!before.isConnected")
    assert tab.ask("document.activeElement.textContent === before.textContent")


@pytest.mark.browser
def test_a_change_of_another_person_shows_on_an_open_page(
    tab: Tab, url: str, filled: Filling, ask: httpx.Client
) -> None:
    filled.store.heartbeat(filled.run.id, 0.1)
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/run/under%20way")
    tab.wait_for_text("Note in every prompt")
    note = {"name": "under way", "kind": "note", "value": "of another browser"}
    assert ask.post("api/steer", json=note).status_code == 200
    tab.wait_for_text("note of another browser")


@pytest.mark.browser
def test_a_page_shows_judges_cases_lineage_and_the_whole_change(tab: Tab, url: str) -> None:
    tab.open(f"{url}#token={TOKEN}/run/done")
    tab.wait_for_text("41 of 41 steps")
    assert tab.ask("document.querySelectorAll('.lane path').length") >= 2
    assert tab.ask("document.querySelectorAll('.heat thead th').length") >= 4
    tab.ask("[...document.querySelectorAll('summary')]"
            ".find(each => each.textContent.includes('lineage')).click()")  # fmt: skip
    tab.wait("document.querySelector('.lineage a.winner')")
    assert tab.ask("document.querySelectorAll('.sides .add').length") >= 1
    click = "new MouseEvent('click', { bubbles: true, cancelable: true })"
    tab.ask(f"document.querySelector('.lineage a.winner').dispatchEvent({click})")
    tab.wait("location.hash.startsWith('#/run/done/step/')")
    assert tab.complaints == []


@pytest.mark.browser
def test_a_person_at_the_page_steers_a_run(tab: Tab, url: str, filled: Filling) -> None:
    def press(label: str) -> None:
        filled.store.heartbeat(filled.run.id, 0.1)
        buttons = "[...document.querySelectorAll('.steer button')]"
        tab.ask(f"{buttons}.find(each => each.textContent === '{label}').click()")

    tab.open(f"{url}#token={TOKEN}/run/under%20way")
    tab.wait_for_text("Note in every prompt")
    tab.ask("document.getElementById('steer-step').value = '1'")
    press("Ban")
    tab.wait_for_text("Stored: ban program")
    tab.wait_for_text("not taken yet")
    event = filled.store.steering(filled.run.id)[-1]
    filled.store.take_steering(filled.run.id, event, 7)
    tab.wait_for_text("from step 7")
    tab.ask("document.getElementById('steer-amount').value = '-5'")
    press("Add")
    tab.wait_for_text("above zero")
    assert filled.store.steering(filled.run.id)[-1].kind == "ban"
    assert [each for each in tab.complaints if "400" not in each] == []
    tab.complaints.clear()


@pytest.mark.browser
def test_a_run_that_ends_while_it_is_watched_offers_no_more_changes(
    tab: Tab, tmp_path: Path
) -> None:
    path = tmp_path / "evolve.db"
    with Store.open(path, create=True) as store, serving(str(path), "--steer") as url:
        run = Filling(store=store, name="short").search(3)
        store.heartbeat(run.run.id, 0.1)
        tab.open(f"{url}#token={TOKEN}/run/short")
        tab.wait_for_text("Note in every prompt")
        run.finish()
        tab.wait_for_text("finished")
        tab.wait("!document.querySelector('.steer').checkVisibility()")
        tab.open("about:blank")
    assert tab.complaints == []


@pytest.mark.browser
def test_a_page_that_may_change_nothing_offers_no_change(tab: Tab, read_only_url: str) -> None:
    for route, text in (("", "best speedup over eager"), ("/step/1", "Step 1 of under way")):
        tab.open("about:blank")
        tab.open(f"{read_only_url}#token={TOKEN}/run/under%20way{route}")
        tab.wait_for_text(text)
        buttons = "[...document.querySelectorAll('button')].map(each => each.textContent)"
        assert not re.search("Pin|Ban|Pause|End|Note", str(tab.ask(buttons)))
    assert tab.complaints == []


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_need_not_scroll_sideways(tab: Tab, url: str, scheme: str) -> None:
    tab.size(390, 800, scheme)
    for route, text in (
        ("/", "Compare"),
        ("/run/done", "41 of 41 steps"),
        ("/run/done/step/30", "Step 30"),
        ("/compare/done/under%20way", "side by side"),
    ):
        tab.open("about:blank")
        tab.open(f"{url}#token={TOKEN}{route}")
        tab.wait_for_text(text)
        assert tab.ask("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
def test_a_wrong_token_is_asked_for_again(tab: Tab, url: str) -> None:
    tab.open("about:blank")
    tab.open(f"{url}#token=this-is-another-token")
    tab.wait_for_text("enter its token")
    tab.ask(f"document.getElementById('token').value = {TOKEN!r};"
            "document.querySelector('form button').click()")  # fmt: skip
    tab.wait_for_text("under way")
