"""A kind of device that another package brings is judged on, and told apart in runs.

Invariants:
- `--device NAME` judges on it, and verdicts are of its device class;
- runs take their sizes, languages and descriptors from it;
- a kind that does not exist is one message with the choices;
- a kind whose class lacks a member of the protocol is refused in one line, and its conformance
  tests fail instead of being skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.tasks.shipped import library_folder
from tests.worker.serving import ROOT

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


INCOMPLETE = "    other_nodes = property()  # as if `CpuDevice` had none\n"
CONFORMANCE = """
from abacus import KIND
from evolve.testing.devices import DeviceConformance


class TestAbacus(DeviceConformance):
    kind = KIND
"""


@pytest.mark.slow  # a worker starts; the next test opens such a device
def test_a_device_without_a_member_of_the_protocol_is_one_line_with_a_remedy(evolve, abacus):
    (abacus / "abacus.py").write_text(PACKAGE + INCOMPLETE)
    words = ["eval", str(SEED), "--task", "softmax", "--device", "abacus", "--fidelity", "check"]
    ended = evolve(*words, packages=(abacus,))
    assert ended.returncode == 2
    assert "device=abacus: abacus.Abacus lacks other_nodes. Update its package" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "lacks",
    [
        pytest.param(False, marks=pytest.mark.slow),  # worker/test_device_conformance has others
        True,
    ],
)
def test_the_conformance_tests_of_such_a_device_fail(abacus, lacks):
    (abacus / "abacus.py").write_text(PACKAGE + INCOMPLETE * lacks)
    (abacus / "test_abacus.py").write_text(CONFORMANCE)
    words = ["-q", "-p", "no:cacheprovider", "-k", "other_devices or judge_reads"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(abacus / "test_abacus.py")],
        env={**os.environ, "PYTHONPATH": f"{abacus}{os.pathsep}{ROOT}"},
        cwd=abacus, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == int(lacks), ended.stdout + ended.stderr
    assert ("lacks other_nodes" in ended.stdout) is lacks
    assert ("2 passed" in ended.stdout) is not lacks
