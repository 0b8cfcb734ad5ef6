"""`evolve ui` in a real browser.

1. What is stored while a page is open reaches it by itself, and leaves the keyboard's place.
2. A link to a step stays valid, and one to what is not there says so.
3. Nothing that a candidate or an agent wrote is read as markup.
4. A long transcript is loaded once it is opened, in parts, and does not hold up the page.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from evolve.report.text import TIMES, duration_text
from evolve.store import Store
from tests.report.filling import Filling
from tests.serve.browsing import BROWSER, Tab, browsing
from tests.serve.ui.episodes import LONG, RUN
from tests.serve.ui.serving import HOSTILE, TOKEN, add_step, serving


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
def test_a_speedup_that_is_verified_while_a_page_is_open_is_shown_so(
    tab: Tab, tmp_path: Path
) -> None:
    with (
        Store.open(tmp_path / "evolve.db", create=True) as store,
        serving(store.location) as url,
    ):
        searched = Filling(store=store, name="x").search(5)
        tab.open(f"{url}#token={TOKEN}/run/x")
        tab.wait_for_text("not verified: the search's own measurement")
        searched.verify()
        tab.wait_for_text("verified: measured again in fresh processes")
        tab.open("about:blank")  # before its server ends


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
def test_a_duration_has_one_form_on_the_page_and_in_a_report(tab: Tab, url: str) -> None:
    tab.open(f"{url}#token={TOKEN}/run/done")
    tab.wait_for_text("41 of 41 steps")
    seconds = [0.4, 59.4, 59.97, 60, 80, 95, 3599.7, 3600, 7380, 90000]
    tab.ask(f"""import("./page/dom.js").then(dom => {{
        window.spans = {seconds}.map(dom.duration); }}); 0""")
    tab.wait("window.spans")
    shown = [span.replace("\N{NO-BREAK SPACE}", " ") for span in tab.ask("spans")]
    assert shown == [duration_text(each) for each in seconds]


@pytest.mark.slow  # 30,000 bars; they need no server
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
def test_a_transcript_is_loaded_in_parts_once_it_is_opened(tab: Tab, url: str) -> None:
    turns = "document.querySelectorAll('.turns > li').length"
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/run/{quote(RUN)}/step/3")
    tab.wait_for_text("Transcript of the agent (1")
    assert tab.ask(turns) == 0
    began = time.monotonic()
    tab.ask("document.querySelector('.turns').closest('details').open = true; 0")
    tab.wait_for_text(f"40 of {LONG + 1:,} turns")
    buttons = "[...document.querySelectorAll('button')]"
    tab.ask(f"{buttons}.find(each => each.textContent === 'Show more').click()")
    tab.wait_for_text(f"80 of {LONG + 1:,} turns")
    assert time.monotonic() - began < 5
    assert tab.ask(turns) == 80
    assert tab.complaints == []


@pytest.mark.browser
def test_a_transcript_shows_calls_programs_and_the_verdicts_of_the_run(tab: Tab, url: str) -> None:
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/run/{quote(RUN)}/step/1")
    tab.wait_for_text("Transcript of the agent")
    tab.ask("document.querySelector('.turns').closest('details').open = true; 0")
    tab.wait_for_text("3 of 3 turns")
    tab.wait_for_text(f"I begin. {HOSTILE}")
    tab.wait_for_text(f"Program submitted #2 correct 2.01{TIMES}")
    assert tab.ask("document.title") == "evolve"
    assert tab.ask("document.querySelectorAll('summary :is(a, button)').length") == 0  # by keys too
    tab.ask("document.querySelector('.turns a').click()")
    tab.wait_for_text("Step 2 of by agent")
    assert tab.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize(("width", "sides"), [(1280, 2), (390, 1)])
def test_a_change_has_two_columns_and_on_a_phone_one(
    tab: Tab, url: str, width: int, sides: int
) -> None:
    tab.size(width, 900)
    tab.open("about:blank")
    tab.open(f"{url}#token={TOKEN}/run/under%20way/step/5")
    tab.wait("document.querySelector('.sides .add')")
    shown = "].filter(each => each.offsetWidth)"
    cells = f"[...document.querySelectorAll('.sides td > div'){shown}"
    assert len({*tab.ask(f"{cells}.map(each => each.getBoundingClientRect().x)")}) == sides
    same = f"[...document.querySelectorAll('.sides .same div'){shown}.length"
    rows = tab.ask("document.querySelectorAll('.sides .same').length")
    assert rows > 0
    assert tab.ask(same) == sides * rows


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


@pytest.mark.slow  # delays an answer; views are opened in the tests above
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


@pytest.mark.slow  # waits for steps; a run is followed in the first test
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


@pytest.mark.slow  # report/test_browser has it for reports
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
