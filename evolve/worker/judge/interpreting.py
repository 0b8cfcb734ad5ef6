"""Programs that need a GPU while Triton's interpreter stands in for one: no fault of theirs."""

import re

from evolve.core.evaluation import Status
from evolve.core.program import Language
from evolve.worker.base.faults import CandidateFault

NOT_INTERPRETED = "not_interpreted"
_SUSPECTS = (Status.RUNTIME_EXCEPTION, Status.COMPILE_ERROR, Status.ASSERT)
_REASONS = {
    "it asks Triton for a GPU": r"active drivers|triton\.runtime\.driver",
    "it asks for a tensor on a GPU": r"\bis_cuda\b|CUDA tensor|cuda tensor|on (the )?(cuda|GPU)\b",
    "it asks torch for a GPU": r"not compiled with CUDA|No CUDA GPUs|NVIDIA driver|torch\.cuda\.",
    "it uses a feature that the interpreter has not": r"NotImplementedError|'InterpreterBuilder'"
    r" object has no attribute|in interpreter mode|inline_asm|extern_elementwise",
}  # fmt: skip
_NO_LIBRARY = "it calls libdevice, which the interpreter has not"


def beyond_interpreter(fault: CandidateFault, source: str, language: Language) -> str:
    """Why an interpreted program cannot be judged without a GPU; empty if the fault is its own.

    It is guessed from the text of the error, which the program has made: all that it can gain by
    that is to have no verdict.
    """
    if language is not Language.TRITON or fault.status not in _SUSPECTS:
        return ""
    said = fault.feedback
    if "libdevice" in source and "NoneType" in said:
        return _NO_LIBRARY
    return next((why for why, words in _REASONS.items() if re.search(words, said)), "")
