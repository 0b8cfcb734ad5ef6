"""The text of a candidate before it is executed, and compile errors in terms of it."""

import ast

from evolve.core.evaluation import Status
from evolve.core.program import without_model
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
        ast.parse(source, "candidate.py")
    except SyntaxError as error:
        where = f"line {error.lineno}: {(error.text or '').strip()}"
        said = f"{where}\n{type(error).__name__}: {error}"
        raise CandidateFault(Status.COMPILE_ERROR, said) from error
    except (ValueError, RecursionError, MemoryError):
        pass
    raise CandidateFault(Status.INVALID_INTERFACE, f"the source {missing}")


def explain(fault: CandidateFault, source: str) -> str:
    """The fault's own words; a compiler's cut down to its first error and the source around it."""
    if fault.status is Status.COMPILE_ERROR:
        return compile_error(fault.feedback, source)
    return fault.feedback
