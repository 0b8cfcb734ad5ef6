"""Errors in a candidate's process, for the judge's feedback."""

import traceback
from collections.abc import Iterator

import torch

from evolve.languages.builds import BuildError
from evolve.worker.ipc import messages
from evolve.worker.ipc.messages import ErrorKind
from evolve.worker.runner.outputs import OutputError
from evolve.worker.runner.weights import ContractError

_MAX_REASONS = 8
_ILLEGAL = ("illegal memory access", "misaligned address", "global/shared address space")


def kind_of(error: BaseException) -> ErrorKind:
    """The kind of failure that an exception is."""
    if isinstance(error, ContractError):
        return ErrorKind.INTERFACE
    if isinstance(error, OutputError):
        return ErrorKind.TREE
    if isinstance(error, SyntaxError | BuildError):
        return ErrorKind.COMPILE
    text = str(error)
    if any(words in text for words in _ILLEGAL):
        return ErrorKind.ILLEGAL_ACCESS
    if "device-side assert triggered" in text:
        return ErrorKind.ASSERT
    if any(map(_is_shortage, _reasons(error))):
        return ErrorKind.OOM
    return ErrorKind.OOM if "can't allocate memory" in text else ErrorKind.EXCEPTION


def _is_shortage(error: BaseException) -> bool:
    """The driver's own says no more than that."""
    is_one = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return is_one or messages.DRIVERS_SHORTAGE in str(error)


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes; PyTorch's compiler keeps those in an attribute of its own."""
    for _ in range(_MAX_REASONS):  # they may go round
        if error is None:
            return
        yield error
        inner = getattr(error, "inner_exception", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__


def explain(error: BaseException, filename: str) -> str:
    """Its message, with the last lines of `filename` that led to it."""
    if isinstance(error, ContractError | OutputError | BuildError):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(filename)]
    where = "".join(f"line {f.lineno} in {f.name}: {f.line}\n" for f in frames[-3:])
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}: {(error.text or '').rstrip()}\n"
    said = f"{where}{type(error).__name__}: {error}"
    shortage = next(filter(_is_shortage, _reasons(error)), error)
    return said if shortage is error else f"{said} ({type(shortage).__name__}: {shortage})"
