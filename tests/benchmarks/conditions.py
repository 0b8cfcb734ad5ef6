"""What every benchmark prints about the machine, and the memory that its process took."""

import os
import platform
import sqlite3
from pathlib import Path


def print_conditions() -> None:
    """One line: cores, load before the run, versions."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{os.cpu_count()} cores, load {load}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}"
    )


def memory_mb() -> float:
    """The most memory that this program ever had resident (`ru_maxrss` counts the parent's too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / 1024
