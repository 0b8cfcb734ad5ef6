"""`evolve doctor --report`: what somebody with a device sends.

Invariants:
- it passes if the device is whole, honest programs are correct and cheats are caught, and else not;
- a device that is not there is a message with the remedy, exit status 2;
- it has no path below the home folder and no host's name;
- it is Markdown only: with --json it is refused.
"""

import platform
from pathlib import Path
from types import SimpleNamespace

import pytest

from evolve.app.doctor.report import has_passed, known_programs, report
from evolve.app.finding import MISSING, OK, Finding
from evolve.core.devices import CPU, CUDA, HIP
from evolve.core.evaluation import Status
from evolve.languages.registry import detect_language

FACTS = {"device": {"device": "AMD Instinct MI300X", "hip": "7.1"}, "versions": {"torch": "2.11"}}


def verdicts(**changed: Status):
    """Verdicts as they have to be on every program for AMD's GPUs, but for some."""
    return [
        (
            one,
            SimpleNamespace(
                status=changed.get(one.name.split()[-1], one.statuses[0]),
                custom=one.is_custom, ratios={}, feedback="a line\nand | another",
            ),
        )
        for one in known_programs(HIP)
    ]  # fmt: skip


def test_programs_of_known_outcome_are_honest_and_not():
    by_kind = {kind: [*known_programs(kind)] for kind in (CPU, CUDA, HIP)}
    assert len(by_kind[CPU]) == 3
    assert len(by_kind[CUDA]) == len(by_kind[HIP]) == 5
    for found in by_kind.values():
        assert {one.statuses == (Status.CORRECT,) for one in found} == {True, False}
    written = {one.name: detect_language(one.source).name for one in by_kind[HIP]}
    assert written["in Triton"] == "triton"


def test_a_report_passes_if_every_verdict_is_as_it_has_to_be():
    whole = [Finding(OK, "gpu 0", "AMD Instinct MI300X")]
    assert has_passed(whole, verdicts())
    text = report(HIP, whole, FACTS, verdicts())
    assert text.startswith("# Report on device=hip: passed\n")
    assert "| hip | 7.1 |" in text
    assert "a line and / another" in text


@pytest.mark.parametrize(
    ("findings", "found"),
    [
        ([Finding(MISSING, "gpu", "none")], verdicts()),
        ([], []),
        ([], verdicts(Triton=Status.WRONG_VALUE)),
        ([], verdicts(done=Status.CORRECT)),
        ([], verdicts(input=Status.CORRECT)),
        ([], verdicts(done=Status.INFRA)),
        ([], verdicts(done=Status.COMPILE_ERROR)),
        ([], verdicts(done=Status.OOM)),
    ],
    ids=["no GPU", "no verdict", "an honest one is refused", "a late one is paid",
         "a write is not seen", "the judge fails",
         "a late one is not built", "a late one lacks memory"],
)  # fmt: skip
def test_else_it_does_not(findings, found):
    assert not has_passed(findings, found)
    assert report(HIP, findings, {}, found).startswith("# Report on device=hip: FAILED\n")


def test_a_report_names_neither_the_home_nor_the_host(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "vm")
    said = [Finding(OK, "nvcc", f"{Path.home()}/bin/nvcc on vm"), Finding(OK, "tvm_ffi", "0.1")]
    text = report(HIP, said, {}, [])
    assert str(Path.home()) not in text
    assert "~/bin/nvcc on HOST" in text
    assert "tvm_ffi" in text


def test_a_home_that_is_the_root_leaves_paths_as_they_are(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    text = report(HIP, [Finding(OK, "nvcc", "/usr/bin/nvcc, 1/2")], {}, [])
    assert "/usr/bin/nvcc, 1/2" in text


def test_a_report_for_machines_is_refused(evolve):
    ended = evolve("doctor", "--report", "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert "--report with --json" in line


@pytest.mark.slow
def test_without_the_device_it_is_a_line_with_the_remedy(evolve):
    ended = evolve("doctor", "--device", "hip", "--report")
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("evolve: device=hip: this torch (")
    assert "Install a ROCm build of torch" in line


@pytest.mark.slow
def test_the_cpu_passes(evolve):
    ended = evolve("doctor", "--device", "cpu", "--report")
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.startswith("# Report on device=cpu: passed\n")
