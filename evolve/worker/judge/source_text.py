"""The text of a candidate before it is executed, and compile errors in terms of it."""

import re
from collections.abc import Collection
from pathlib import PurePath

from evolve.core.evaluation import Status
from evolve.core.program import without_model
from evolve.core.source.parsing import parse
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.feedback import compile_error


def require_text(source: str) -> None:
    """Raise CandidateFault for a text that is not UTF-8."""
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise CandidateFault(
            Status.INVALID_INTERFACE, f"the source is no text in UTF-8: {error}"
        ) from error


def require_model(source: str) -> None:
    """Raise CandidateFault for a text without ModelNew; if it is no Python at all, for that.

    A text with the name is parsed by its compiler.
    """
    if not (missing := without_model(source)):
        return
    try:
        parse(source, "candidate.py")
    except SyntaxError as error:
        where = f"line {error.lineno}: {(error.text or '').strip()}"
        said = f"{where}\n{type(error).__name__}: {error}"
        raise CandidateFault(Status.COMPILE_ERROR, said) from error
    except (ValueError, RecursionError, MemoryError):
        pass
    raise CandidateFault(Status.INVALID_INTERFACE, f"the source {missing}")


def explain(fault: CandidateFault, source: str, files: Collection[str]) -> str:
    """The fault's own words; a compiler's cut down to its first error and the source around it.

    `files` are names of the task's files beside its module, which a program does not have.
    """
    if fault.status is Status.COMPILE_ERROR:
        return compile_error(fault.feedback, source)
    missed = [name for name in files if _is_missed(name, fault.feedback)]
    if not missed:
        return fault.feedback
    return (
        f"{fault.feedback}\n{missed[0]} lies beside the task, and a program is one file: it has to "
        "contain what it needs of that file."
    )


def _is_missed(name: str, said: str) -> bool:
    """Whether an error says that a file is not there, or a module."""
    module = re.escape(PurePath(name).with_suffix("").as_posix().split("/")[0])
    file = re.escape(PurePath(name).name)
    return bool(re.search(rf"No module named '{module}[.']|No such file .*\b{file}'", said))
