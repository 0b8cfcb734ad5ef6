"""Running the tests of an exported operator, in a process of their own and with a deadline."""

import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from evolve.core.errors import UsageError
from evolve.worker.base.scratch import ScratchFolder

DEADLINE_S = 900.0
_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Checked:
    """One test: `outcome` is `passed`, `failed` or `skipped`; `reason` why it is not `passed`."""

    name: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Checks:
    """The output of the exported tests; `fault` if they did not come to an end, else empty."""

    tests: tuple[Checked, ...]
    fault: str = ""

    @property
    def failed(self) -> list[Checked]:
        return [test for test in self.tests if test.outcome == "failed"]

    @property
    def skipped(self) -> list[Checked]:
        return [test for test in self.tests if test.outcome == "skipped"]

    @property
    def passed(self) -> bool:
        """Whether the tests came to an end and none of them failed."""
        return not self.fault and not self.failed and bool(self.tests)


def require_pytest() -> None:
    """Raises UsageError if the checks could not be run."""
    if importlib.util.find_spec("pytest") is None:
        raise UsageError(
            "--as torch-op runs the tests that it writes, and pytest is not installed here; "
            "pip install pytest"
        )


def run_tests(folder: Path, deadline_s: float = DEADLINE_S) -> Checks:
    """Run `test_op.py` of a folder with this interpreter. It runs the kernel, unconfined."""
    with ScratchFolder("check") as scratch:
        report = scratch / "report.xml"
        fault = _run(folder.resolve(), report, deadline_s)
        tests = _read(report) if report.exists() else ()
    return Checks(tests, fault)


def _run(folder: Path, report: Path, deadline_s: float) -> str:
    command = [
        *(sys.executable, "-m", "pytest", str(folder / "test_op.py"), "-q", "--tb=short"),
        *("-c", os.devnull, "--rootdir", str(folder), "--confcutdir", str(folder)),
        *("-p", "no:cacheprovider", f"--junitxml={report}"),
    ]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    alone = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",  # the checked file is the written one
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=plain | alone,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # compilers that it started, too
        process.communicate()
        return f"the tests had not ended after {deadline_s:.0f} s"
    if process.returncode in (0, 1) and report.exists():
        return ""
    return f"the tests ended with status {process.returncode}:\n{said[-_TAIL:].strip()}"


def _read(report: Path) -> tuple[Checked, ...]:
    return tuple(_checked(case) for case in ElementTree.parse(report).iter("testcase"))


def _checked(case: ElementTree.Element) -> Checked:
    name = case.get("name", "")
    for child in case:
        if child.tag in ("failure", "error"):
            return Checked(name, "failed", (child.text or child.get("message") or "").strip())
        if child.tag == "skipped":
            return Checked(name, "skipped", child.get("message") or "")
    return Checked(name, "passed", "")
