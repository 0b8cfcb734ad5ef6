"""GPUs and tools of this machine as an interpreter finds them, in a process of its own."""

import json
import subprocess
import sys
from typing import Any

from evolve.core.errors import EvaluatorUnavailable
from evolve.evaluation.local import package_path_for, worker_environment

PATIENCE_S = 120.0


def examine_host(python: str | None = None) -> dict[str, Any]:
    """The facts of `evolve.worker.base.host_facts`, as `python` (None: this one) finds them.

    Raises:
        EvaluatorUnavailable: it does not answer.
    """
    return _ask(python)


def promises_gpu(python: str | None = None) -> bool:
    """Whether that interpreter's torch should see a GPU: much sooner told than all the facts.

    Raises:
        EvaluatorUnavailable: it does not answer.
    """
    return _ask(python, "--quick").get("gpu") is True


def _ask(python: str | None, *words: str) -> dict[str, Any]:
    interpreter = python or sys.executable
    package_path, scratch = package_path_for(python)
    try:
        done = subprocess.run(
            [interpreter, "-m", "evolve.worker", "host", *words],
            env=worker_environment(package_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        facts: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().rpartition("\n")[2]
        raise EvaluatorUnavailable(f"{interpreter} cannot run the worker: {last}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EvaluatorUnavailable(f"{interpreter} does not answer: {error}") from error
    finally:
        if scratch is not None:
            scratch.close()
    return facts
