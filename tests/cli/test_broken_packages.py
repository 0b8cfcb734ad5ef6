"""A package that registers what cannot be loaded is named with the remedy, in one message.

Invariants, for the entry points of every group:
- what fails to import, is absent, or is of another kind ends the command with exit status 2;
- the message names the package, its entry point and the error, and says what to do.
"""

import sys
from pathlib import Path

import pytest

from evolve.core.devices import device_kinds
from evolve.languages.registry import detect_language, languages
from evolve.tasks.shipped import library_folder

SEED = str(library_folder() / "softmax" / "seeds" / "online.py")
JUDGED = ("eval", SEED, "--task", "softmax", "--device", "cpu", "--fidelity", "check")
BENCHED = ("bench", "suite=odd", "search=seeds", "device=cpu")
FAULTS = {
    "its own import fails": ("odd:THING", "import nothing_of_this_name", "ModuleNotFoundError"),
    "it is absent": ("odd:THING", "", "AttributeError"),
    "it fails": ("odd:THING", "raise ValueError('of its own')", "of its own"),
    "it is of another kind": ("odd:THING", "THING = 3", "TypeError"),
}


@pytest.fixture
def forgetful():
    """What has been loaded before does not know the package, nor what comes after."""

    def forget() -> None:
        device_kinds.cache_clear()
        languages.cache_clear()
        detect_language.cache_clear()
        sys.modules.pop("odd", None)

    forget()
    yield
    forget()


def installed(site: Path, group: str, point: str, text: str) -> None:
    about = site / "oddity-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "odd.py").write_text(text + "\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: oddity\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\nodd = {point}\n")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("group", "words"),
    [("evolve.devices", JUDGED), ("evolve.languages", JUDGED), ("evolve.suites", BENCHED)],
)
@pytest.mark.usefixtures("forgetful")
def test_the_package_is_named_with_the_remedy(
    evolve_here, tmp_path: Path, monkeypatch, group, words, fault
):
    point, text, why = FAULTS[fault]
    installed(tmp_path / "site", group, point, text)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    ended = evolve_here(*words)
    said = ended.stderr
    assert ended.returncode == 2, said
    assert f"{group}: odd ({point} of oddity) cannot be loaded" in said
    assert why in said
    assert "Mend or uninstall that package" in said
    assert "Traceback" not in said
