"""The findings of `evolve doctor --device hip`.

Invariants:
- it says that the device is untested, and how to report on it;
- each missing part is named in a line, with the remedy.
"""

import pytest

from evolve.app.doctor.amd import findings
from evolve.app.finding import MISSING

GPU = {
    "index": 0, "name": "AMD Instinct MI300X", "uuid": "1", "capability": "9.4",
    "architecture": "gfx942", "memory_mib": 192 << 10,
}  # fmt: skip
HOST = {
    "torch": {
        "version": "2.11.0+rocm7.1",
        "cuda": "",
        "hip": "7.1",
        "problem": "",
        "gpus": [GPU],
    },
    "tools": {"c compiler": "/usr/bin/cc", "hipcc": "/opt/rocm/bin/hipcc, 7.1"},
    "languages": {},
}
TORCH = HOST["torch"]


@pytest.mark.parametrize(
    ("changes", "lacking", "named"),
    [
        ({}, set(), "AMD Instinct MI300X, gfx942, 192 GiB"),
        ({"torch": TORCH | {"gpus": [GPU | {"architecture": "gfx90a"}]}}, set(), "gfx942, gfx950"),
        ({"torch": TORCH | {"gpus": []}}, {"gpu"}, "rocminfo"),
        ({"torch": TORCH | {"hip": "", "cuda": "13.0"}}, {"gpu"}, "use device=cuda"),
        ({"torch": TORCH | {"hip": ""}}, {"gpu"}, "use device=cpu"),
        ({"tools": {"c compiler": "", "hipcc": ""}}, {"c compiler"}, "ROCM_HOME"),
    ],
    ids=["all there", "another architecture", "no GPU", "a torch for CUDA", "a torch for the CPU",
         "no compilers"],
)  # fmt: skip
def test_doctor_says_that_amd_is_untested_and_names_what_lacks(changes, lacking, named):
    found = [*findings(HOST | changes)]
    assert "untested on hardware" in found[0].detail
    assert "evolve doctor --device hip --report" in found[0].detail
    assert {each.what for each in found if each.state == MISSING} == lacking
    assert any(named in each.detail for each in found)
    assert not any("\n" in each.detail for each in found)
