"""A kind of device that another package brings is judged on, and told apart in runs.

Invariants:
- `--device NAME` judges on it, and verdicts are of its device class;
- runs take their sizes, languages and descriptors from it;
- a kind that does not exist is one message with the choices.
"""

import json
from pathlib import Path

import pytest

from evolve.tasks.shipped import library_folder

SEED = library_folder() / "softmax" / "seeds" / "online.py"
PACKAGE = """
from evolve.core.devices import DeviceKind
from evolve.worker.devices.cpu.device import CpuDevice

KIND = DeviceKind(
    name="abacus", title="abacus", factory="abacus:Abacus", is_gpu=False, size="tiny",
    languages=("cpp",), baselines=("compile",), descriptors=frozenset({"beads"}),
)

class Abacus(CpuDevice):
    device_class = "abacus: ten wires"
"""


@pytest.fixture
def abacus(tmp_path: Path) -> Path:
    """A folder in which that package is installed."""
    site = tmp_path / "site"
    about = site / "abacus-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "abacus.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[evolve.devices]\nabacus = abacus:KIND\n")
    return site


@pytest.mark.slow
def test_a_program_is_judged_on_it(evolve, abacus):
    words = ["eval", str(SEED), "--task", "softmax", "--device", "abacus", "--fidelity", "check"]
    ended = evolve(*words, "--json", packages=(abacus,))
    assert ended.returncode == 0, ended.stderr
    verdict = json.loads(ended.stdout)
    assert verdict["device_class"] == "abacus: ten wires"


@pytest.mark.slow
def test_a_run_takes_its_settings_from_it(evolve, abacus):
    kind = ("device=cpu", "device.kind=abacus")
    ended = evolve("run", "task=softmax", "search=seeds", *kind, "--create", packages=(abacus,))
    assert ended.returncode == 0, ended.stderr
    archive = ("archive=map_elites", "+archive.axes.memory_bytes=[1,2]")
    ended = evolve("run", "task=softmax", "name=b", *archive, *kind, "--create", packages=(abacus,))
    assert ended.returncode == 2
    assert "device=abacus delivers no such descriptor" in ended.stderr
    assert "beads" in ended.stderr


def test_an_unknown_kind_is_one_message_with_the_choices(evolve):
    ended = evolve("run", "task=softmax", "device=cpu", "device.kind=abacus", "--create")
    assert ended.returncode == 2
    assert "device=abacus: choose one of auto, cpu, cuda" in ended.stderr
