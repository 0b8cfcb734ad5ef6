"""Every kind of device passes `evolve.testing.devices`, and each that is untested says so.

The one of AMD is opened in `test_device_hip`, over a simulated driver.
"""

from pathlib import Path

import pytest

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
