"""The report in a real browser.

1. Nothing is refused or wrong: the console stays silent, our script runs, no other does.
2. A phone need not scroll sideways, and shows bars at their length.
3. A picture comes out in light and dark.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from evolve.report.run.html import write_report
from evolve.store import Store
from tests.report.filling import Filling

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed"),
]


def browse(folder: Path, page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page headless and let it come to rest."""
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
        f"--user-data-dir={folder / 'profile'}",
        *flags,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture
def page(searched: Filling, tmp_path: Path) -> Path:
    return write_report(searched.store, searched.name, tmp_path / "report.html")


@pytest.mark.slow
def test_the_console_is_silent_and_our_script_runs(page: Path, tmp_path: Path) -> None:
    shown = browse(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in shown.stderr
    buttons = re.findall(r"<button[^>]*>", shown.stdout)
    assert buttons
    assert not [button for button in buttons if "hidden" in button]


@pytest.mark.slow  # pages are opened in the tests beside it
@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [360, 390, 400, 640])
def test_a_phone_need_not_scroll_sideways(page: Path, tmp_path: Path, width: int) -> None:
    """Nor for what is placed out of sight in a table that is wider than the screen."""
    loose = (
        "[...page.querySelectorAll('.scroll .hidden')].filter(e => e.offsetParent === page.body)"
    )
    found = measured(tmp_path, page, width, f"page.documentElement.scrollWidth, {loose}.length")
    assert found == f"{width},0"


@pytest.mark.slow  # the same path
def test_on_a_phone_bars_show_their_shares(store: Store, tmp_path: Path) -> None:
    """None is cut off: neither of the archive's ranked places, nor of proposals."""
    filled = Filling(store=store, axes=False).search(40)
    page = write_report(store, filled.name, tmp_path / "report.html")
    bars = "[...page.querySelectorAll('.ranked td.bar, .funnel td.bar')]"
    inside = f"{bars}.filter(e => e.offsetWidth > 150 && e.getBoundingClientRect().right <= 390)"
    total, shown = measured(tmp_path, page, 390, f"{bars}.length, {inside}.length").split(",")
    assert int(shown) == int(total) > 5


def measured(folder: Path, page: Path, width: int, values: str) -> str:
    """The values of JavaScript's expressions about a `page` in a frame of a width in pixels."""
    frame = folder / "frame.html"
    frame.write_text(
        f'<iframe src="{page.name}" style="width:{width}px;height:900px;border:0"></iframe>'
        '<script>const f = document.querySelector("iframe"); f.onload = () => {'
        f"const page = f.contentDocument; document.title = [{values}].join() }};</script>",
        encoding="utf-8",
    )
    shown = browse(folder, frame, "--dump-dom", "--allow-file-access-from-files").stdout
    (title,) = re.findall("<title>(.*)</title>", shown)
    return str(title)


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_a_picture_comes_out(page: Path, tmp_path: Path, scheme: int) -> None:
    picture = tmp_path / "report.png"
    browse(
        tmp_path,
        page,
        f"--screenshot={picture}",
        "--window-size=1280,4000",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 50_000
