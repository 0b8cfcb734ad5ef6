"""The report in a real browser.

1. Nothing is refused or wrong: the console stays silent, our script runs, no other does.
2. A phone need not scroll sideways; a picture comes out in light and dark.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from evolve.report.run.html import write_report
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
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="report.html" style="width:{width}px;height:900px;border:0"></iframe>'
        '<script>const f = document.querySelector("iframe"); f.onload = () => {'
        "const page = f.contentDocument;"
        'const loose = [...page.querySelectorAll(".scroll .hidden")].filter('
        "each => each.offsetParent === page.body).length;"
        "document.title = `width ${page.documentElement.scrollWidth}, ${loose} loose` };</script>",
        encoding="utf-8",
    )
    shown = browse(tmp_path, frame, "--dump-dom", "--allow-file-access-from-files")
    assert f"<title>width {width}, 0 loose</title>" in shown.stdout


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
