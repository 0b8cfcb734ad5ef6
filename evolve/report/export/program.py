"""Loading a program that the user has chosen, in this process."""

import importlib.util
import sys
from functools import cache
from typing import Any

from evolve.core.digest import framed_digest
from evolve.report.text import write_text
from evolve.worker.base.scratch import ScratchFolder


@cache
def _folder() -> ScratchFolder:
    """Where modules lie until the process ends: Triton and tracebacks read their text."""
    return ScratchFolder("modules")


@cache
def load(source: str) -> type[Any]:
    """Execute a program in this process and return its `ModelNew`; once for each text."""
    name = f"evolve_winner_{framed_digest(source)[:12]}"
    path = write_text(_folder().path / f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found: type[Any] = module.ModelNew
    return found
