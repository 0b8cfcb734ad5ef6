"""Candidates in files, with what each must get written at its top.

The first docstring of a file says what it does and then, one to a line: `task`, `fidelity` (`check`
where nothing is to be timed), `verdict` (what it may get, see `ACCEPTED`), `device` where it needs
one, and `hole` where the judge is known to be fooled: such a test must fail until it is mended.

The cheats are real: some overwrite every file that they can reach. They run in a worker's sandbox
and nowhere else; to import or `exec` one costs an installation of Python.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evolve.core.evaluation import Status
from evolve.languages.registry import detect_language

HERE = Path(__file__).parent
HONEST_SCORE = "honest"  # correct, and no faster than an honest kernel
NOT_CUSTOM = "not_custom"  # correct, but a class of its own that never wins
ACCEPTED = (*(status.value for status in Status if status is not Status.INFRA),
            HONEST_SCORE, NOT_CUSTOM)  # fmt: skip
_FIELD = re.compile(r"^(task|fidelity|verdict|device|hole): (.+(?:\n    .+)*)", re.M)
_ROWS = re.compile(r"^Rows? ([\d, ]+):")


@dataclass(frozen=True)
class Entry:
    """One candidate of a corpus. `rows` are those of the catalogue that it executes."""

    name: str
    source: str
    rows: tuple[int, ...]
    task: str
    fidelity: str
    verdicts: tuple[str, ...]
    device: str
    hole: str

    @property
    def alone(self) -> bool:
        """Whether it is a load on the machine, so that nothing else should be judged meanwhile."""
        return 62 in self.rows


def entry(path: Path) -> Entry:
    """Read a candidate and the head of its file."""
    source = path.read_text()
    text = ast.get_docstring(ast.parse(source)) or ""
    fields = {name: " ".join(value.split()) for name, value in _FIELD.findall(text)}
    rows = _ROWS.search(text)
    return Entry(
        name=path.stem,
        source=source,
        rows=tuple(int(number) for number in rows[1].split(",")) if rows else (),
        task=fields["task"],
        fidelity=fields.get("fidelity", "check"),
        verdicts=tuple(fields.get("verdict", "correct").split()),
        device=fields.get("device", "cpu"),
        hole=fields.get("hole", ""),
    )


def corpus(folder: str) -> list[Entry]:
    """All candidates of a folder, in order of their names."""
    return [entry(path) for path in sorted((HERE / folder).glob("*.py"))]


def marked(entries: Iterable[Entry], timed: int, checked: int | None = None) -> list[Any]:
    """Test parameters: marked `gpu` or `quiet` where that is needed; known holes have to fail.

    `make test` takes `timed` of those that are timed or a load, and `checked` of the others; None
    takes all of these.
    """
    return [
        pytest.param(entry, id=entry.name, marks=_marks(entry, timed, checked)) for entry in entries
    ]


def _marks(entry: Entry, timed: int, checked: int | None) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.gpu, pytest.mark.timeout(300)] if entry.device == "cuda" else []
    if missing := detect_language(entry.source).missing_package(entry.source):
        marks.append(pytest.mark.skip(reason=missing))
    if entry.alone or entry.fidelity != "check":
        marks.append(pytest.mark.quiet)
        if entry.device == "cpu":
            marks.append(pytest.mark.sample(timed))
    elif checked is not None and entry.device == "cpu":
        marks.append(pytest.mark.sample(checked))
    if entry.hole:  # what hangs on a time may go either way on a busy machine
        marks.append(pytest.mark.xfail(strict=entry.fidelity == "check", reason=entry.hole))
    return marks
