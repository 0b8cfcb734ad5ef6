"""Programs that the interpreter of their language does not run, where there is no GPU."""

from evolve.core.evaluation import Status
from evolve.languages.base import Language
from evolve.worker.base.faults import CandidateFault

NOT_INTERPRETED = "not_interpreted"
_SUSPECTS = (Status.RUNTIME_EXCEPTION, Status.COMPILE_ERROR, Status.ASSERT)


def beyond_interpreter(fault: CandidateFault, source: str, language: Language) -> str:
    """Why an interpreted program cannot be judged without a GPU; empty if the fault is its own.

    It is guessed from the text of the error, which the program has made: all that it can gain by
    that is to have no verdict.
    """
    if fault.status not in _SUSPECTS:
        return ""
    return language.beyond_interpreter(fault.feedback, source)
