"""The process in which a user's script runs, and its findings."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.llm.secrets import is_secret_variable
from evolve.worker.base.scratch import ScratchFolder

RunScript: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Runs the script for a job, and gives the findings; raises UsageError if the script fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A program as the user would start it by `python NAME WORDS`, or `python -m NAME WORDS`."""

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

    @property
    def command(self) -> str:
        """The command without its arguments."""
        return f"python -m {self.name}" if self.is_module else f"python {self.name}"

    def __str__(self) -> str:
        return f"module {self.name}" if self.is_module else self.name


@contextmanager
def started(script: Script, *, secrets: bool = True) -> Iterator[RunScript]:
    """Within this block the script can be run, each time in a fresh process.

    Its output goes to standard error for a job with `shows`, and else to a log.

    Args:
        script: to run.
        secrets: whether it gets the environment variables that are called as those that hold some.
    """
    environment = {
        name: value for name, value in os.environ.items() if secrets or not is_secret_variable(name)
    }
    with (
        ScratchFolder("capture") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "evolve.capture.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
    ):
        yield lambda job: _answer(process, script, job, folder)


def _answer(
    process: "subprocess.Popen[str]", script: Script, job: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    result, log = folder / "result.json", folder / "log"
    result.unlink(missing_ok=True)
    whole = {
        "script": script.name,
        "words": script.words,
        "is_module": script.is_module,
        "result": str(result),
        "log": "" if job.get("shows") else str(log),
        **job,
    }
    try:
        process.stdin.write(f"{json.dumps(whole)}\n")
        process.stdin.flush()
        status = process.stdout.readline().strip()
    except BrokenPipeError:
        status = ""
    if not status:
        raise EvaluatorUnavailable(
            f"the process for script {script} ended (exit status {process.wait()})"
        )
    found: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    if said := found.get("observer_fault"):
        raise EvaluatorUnavailable(
            f"script {script} could not be observed: {said}. This is a fault of evolve, not of the "
            "script: please report it with the traceback."
        )
    fault = "" if found else f"ended its process by itself (exit status {status})"
    if fault := found.get("fault") or fault:
        raise UsageError(
            f"script {script} {fault}. {_last_line(log)}"
            f"Fix the script: `{script.command}` must exit with status 0."
        )
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.is_file() else []
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"It printed last: {last.strip()} " if last else ""
