"""Whether there should be a GPU, told without importing torch.

A driver is simulated by a library of its name, a torch by a package whose version file is as
torch's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.serving import ROOT

DRIVER = """
int cuInit(unsigned flags) { return FAILS; }
int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
"""
TORCH = "from typing import Optional\n__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n{rest}"


def seen_at_once(folder: Path, torch: str | None, **driver: int) -> bool:
    """What an interpreter says that has this torch (the text of its version file) and driver."""
    if torch is not None:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
        (folder / "torch" / "version.py").write_text(torch)
    if driver:
        defined = [f"-D{name.upper()}={value}" for name, value in driver.items()]
        (folder / "driver.c").write_text(DRIVER)
        target = folder / "libcuda.so.1"
        command = ["cc", "-shared", "-fPIC", *defined, folder / "driver.c", "-o", target]
        subprocess.run(command, check=True)
    paths = {"PYTHONPATH": f"{folder}:{ROOT}", "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-S", "-m", "evolve.worker", "host", "--quick"],
        env=os.environ | paths, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)["gpu"]


GOOD = {"fails": 0, "count": 1, "version": 13000}
CUDA = TORCH.format(cuda="'13.0'", rest="hip: Optional[str] = None")


def test_a_gpu_is_promised_by_torchs_version_file_and_the_driver(tmp_path):
    assert seen_at_once(tmp_path, CUDA, **GOOD)


@pytest.mark.parametrize(
    ("torch", "driver"),
    [
        (None, GOOD),
        (TORCH.format(cuda="None", rest=""), GOOD),
        (TORCH.format(cuda="None", rest="hip = '6.4'"), GOOD),
        (TORCH.format(cuda="'13.0'", rest="hip = '6.4'"), GOOD),
        (CUDA.replace("2.13.0", "2.8.0+metax3.5.3.9"), GOOD),
        ("__version__ = '2.13.0'\n", GOOD),
        (CUDA, {}),
        (CUDA, GOOD | {"count": 0}),
        (CUDA, GOOD | {"fails": 100}),
        (CUDA, GOOD | {"version": 12080}),
    ],
    ids=["no torch", "for CPUs", "for AMD", "for both", "for MetaX", "another file", "no driver",
         "no GPU", "a driver that fails", "a driver that is too old"],
)  # fmt: skip
def test_where_anything_speaks_against_it_none_is_promised(tmp_path, torch, driver):
    assert not seen_at_once(tmp_path, torch, **driver)
