"""A judge without a device for jobs, which keeps a list of its verdicts."""

import shlex
import sys
from pathlib import Path

from tests.serve.pulling import WORKER


def stub(folder: Path, latency_s: float) -> str:
    """The setting for a judge that keeps a list of its verdicts in the folder `judge`."""
    (folder / "judge").mkdir()
    judge = shlex.join([sys.executable, "-SE", str(WORKER), "1", str(latency_s)])
    python = folder / "stub-python"
    python.write_text(f"#!/bin/sh\ncd {folder}/judge && CUDA_STUB_CLASS=cpu-stub exec {judge}\n")
    python.chmod(0o700)
    return f"device.python={python}"


def judged(folder: Path) -> list[str]:
    path = folder / "judge" / "judged"
    return path.read_text().split() if path.exists() else []
