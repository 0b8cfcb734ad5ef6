"""Starting the process in which a user's script runs, and reading what it leaves."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the user would start by `python NAME WORDS`, or `python -m NAME WORDS`."""

    name: str
    words: tuple[str, ...] = ()
    is_module: bool = False

    def __post_init__(self) -> None:
        path = Path(self.name)
        if self.is_module:
            return
        if path.is_dir():
            raise UsageError(f"script {self.name} is a folder; name a file, or -m MODULE")
        if not path.is_file():
            raise UsageError(f"script {self.name}: there is no such file. Check the path.")

    def __str__(self) -> str:
        return f"module {self.name}" if self.is_module else self.name


def run_jobs(
    script: Script, jobs: Sequence[Mapping[str, Any]], *, shows_output: bool
) -> Iterator[dict[str, Any]]:
    """The findings of each job; what the script prints goes to standard error, or is kept.

    Raises:
        UsageError: the script fails; the last lines of kept output are printed before.
    """
    with tempfile.TemporaryDirectory(prefix="evolve-capture-") as folder:
        place = Path(folder)
        own = {"script": script.name, "words": script.words, "is_module": script.is_module}
        results = [place / f"{number}.json" for number in range(len(jobs))]
        whole = [
            {**job, **own, "result": str(path)} for job, path in zip(jobs, results, strict=True)
        ]
        (place / "jobs.json").write_text(json.dumps(whole))
        log = place / "output"
        with log.open("wb") as output:
            status = subprocess.run(
                [sys.executable, "-m", "evolve.capture.child", str(place / "jobs.json")],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if shows_output else output,
                stderr=sys.stderr.fileno() if shows_output else output,
                check=False,
            ).returncode
        for path in results:
            found = json.loads(path.read_text()) if path.is_file() else {}
            fault = found.get("fault") or (
                "" if found else f"ended its process by itself (exit status {status})"
            )
            if fault:
                raise UsageError(
                    f"script {script} {fault}. {_last_line(log)}Mend it until plain Python runs it."
                )
            yield found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"It printed last: {last.strip()} " if last else ""
