"""The few exceptions that this project raises on purpose, and the exit statuses of its command.

A kernel's fault is never one of them: it is an `Evaluation` with a status. Exceptions are for
errors that a person has to correct (`UsageError`), and for our own machinery
(`EvaluatorUnavailable`, `ModelUnavailable`, `StoreError`).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

# Exit statuses of the `evolve` command.
OK = 0
FAILED = 1  # our side: device, worker
USAGE = 2  # for the user to correct: the words, the database's place, the disk
RESUMABLE = 75  # EX_TEMPFAIL: schedulers take it as "run me again"
INTERRUPTED = 130


class EvolveError(Exception):
    """Base of every exception raised on purpose."""


class UsageError(EvolveError, ValueError):
    """An invalid request of the user; the message names field, value and remedy.

    The command line prints the message without a traceback and exits with status 2.
    """


class EvaluatorUnavailable(EvolveError, RuntimeError):
    """The evaluation service itself (worker, device, replay record) cannot answer."""


class ModelUnavailable(EvolveError, RuntimeError):
    """A model's endpoint does not accept calls: down, overloaded, or over its rate limit.

    Surely not billed. `retry_after_s` is when the endpoint wants to be asked again, if it said so.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreError(EvolveError, RuntimeError):
    """The database cannot be read or written (disk full, read-only, corrupted)."""


@contextmanager
def needing(what: str, extra: str, packages: Collection[str]) -> Iterator[None]:
    """Within this block packages are imported that an extra of this project brings.

    Args:
        what: the command or setting that needs them.
        extra: its name.
        packages: the modules at the top of what it brings.

    Raises:
        UsageError: one of them is not installed. Any other missing module is raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise UsageError(
            f"{what} needs {missing}, which is not installed here; "
            f"`pip install 'evolve-kernels[{extra}]'` brings it"
        ) from error


# How a function of the user's fails on the data that it is given: errors that operations on
# numbers, records and tensors raise, and assertions. Anything else is a fault of its surroundings.
FAILURES_OF_A_FUNCTION = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
