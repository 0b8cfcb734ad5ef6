"""The scripts of these tests, and `evolve tasks capture` run on one."""

import contextlib
import io
from pathlib import Path

from evolve.cli.main import main

SCRIPTS = Path(__file__).parent / "scripts"


def capture(folder: Path, *words: str) -> str:
    """The output of `evolve tasks capture`, with tasks in `folder`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["tasks", "capture", "--out", str(folder), *words]) == 0
    return printed.getvalue()
