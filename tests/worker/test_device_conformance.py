"""Every kind of device passes `evolve.testing.devices`, and each that is untested says so.

The one of AMD is opened in `test_device_hip`, over a driver that is played.
"""

from pathlib import Path

import pytest

from evolve.app.doctor.amd import findings
from evolve.app.finding import MISSING
from evolve.core.devices import CPU, CUDA, HIP, device_kinds
from evolve.testing.devices import DeviceConformance

ROOT = Path(__file__).parents[2]


class TestCpu(DeviceConformance):
    kind = CPU


class TestCuda(DeviceConformance):
    kind = CUDA


class TestHip(DeviceConformance):
    kind = HIP


def test_every_kind_has_its_conformance_test():
    tested = {each.kind for each in DeviceConformance.__subclasses__()}
    assert {*device_kinds().values()} <= tested


@pytest.mark.parametrize("name", [kind.name for kind in device_kinds().values()])
def test_a_kind_that_is_untested_says_so_in_its_option(name):
    text = (ROOT / "conf" / "device" / f"{name}.yaml").read_text().lower()
    assert ("untested on hardware" in text) is device_kinds()[name].is_untested


SEEN = {
    "index": 0, "name": "AMD Instinct MI300X", "uuid": "1", "capability": "9.4",
    "architecture": "gfx942", "memory_mib": 192 << 10,
}  # fmt: skip
HOST = {
    "torch": {"version": "2.11.0+rocm7.1", "cuda": "", "hip": "7.1", "problem": "", "gpus": [SEEN]},
    "tools": {"c compiler": "/usr/bin/cc", "hipcc": "/opt/rocm/bin/hipcc, 7.1"},
    "languages": {},
}
TORCH = HOST["torch"]


@pytest.mark.parametrize(
    ("changes", "lacking", "named"),
    [
        ({}, set(), "AMD Instinct MI300X, gfx942, 192 GiB"),
        ({"torch": TORCH | {"gpus": [SEEN | {"architecture": "gfx90a"}]}}, set(), "gfx942, gfx950"),
        ({"torch": TORCH | {"gpus": []}}, {"gpu"}, "rocminfo"),
        ({"torch": TORCH | {"hip": "", "cuda": "13.0"}}, {"gpu"}, "use device=cuda"),
        ({"torch": TORCH | {"hip": ""}}, {"gpu"}, "use device=cpu"),
        ({"tools": {"c compiler": "", "hipcc": ""}}, {"c compiler"}, "ROCM_HOME"),
    ],
    ids=["all there", "another architecture", "no GPU", "a torch for CUDA", "a torch for the CPU",
         "no compilers"],
)  # fmt: skip
def test_the_doctor_says_that_it_is_untested_and_what_lacks(changes, lacking, named):
    found = [*findings(HOST | changes)]
    assert "untested on hardware" in found[0].detail
    assert "evolve doctor --device hip --report" in found[0].detail
    assert {each.what for each in found if each.state == MISSING} == lacking
    assert any(named in each.detail for each in found)
    assert not any("\n" in each.detail for each in found)
