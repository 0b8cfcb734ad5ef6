"""Files of tasks and programs, read as text."""

from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.core.task import Case
from evolve.tasks.beside import files_beside
from evolve.tasks.cases import parse_cases


def read_task(path: Path, whole: bool = False) -> TaskText:
    """A task file, with the cases and seeds that lie beside it, and the files that it uses.

    With `whole` these are all files of its folder.

    Raises:
        UsageError: a file cannot be read or is empty, or bad cases.
    """
    seeds = sorted((path.parent / "seeds").glob("*.py"))
    return TaskText(
        read_text(path),
        cases=_read_cases(path),
        seeds=tuple(map(read_text, seeds)),
        files=files_beside(path, whole),
    )


def _read_cases(path: Path) -> tuple[Case, ...]:
    for cases in (path.with_suffix(".cases.yaml"), path.parent / "cases.yaml"):
        if cases.is_file():
            return parse_cases(read_text(cases), cases)
    return ()


def read_text(path: Path, what: str = "") -> str:
    """The text of a file that is not empty; `what` it is, for messages.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or is empty.
    """
    named = f"{what} {path}".strip()
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except OSError as error:
        raise UsageError(f"{named} cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{named} is not UTF-8 text. Save it as UTF-8.") from error
    if not text.strip():
        raise UsageError(f"{named} is empty. Write its content, or remove it.")
    return text
