"""Programs whose language the device, its interpreter or this installation does not run."""

from evolve.core.evaluation import Status
from evolve.languages.base import Language
from evolve.languages.registry import refusal
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.base import Device

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


def unfit(language: Language, source: str, device: Device) -> str:
    """Why a program can be neither built nor run here, whatever its kernels do; empty if it can."""
    try:
        return (
            refusal(language, device.kind)
            or language.missing(source)
            or language.unfit_gpu(source, device.capability)
        )
    except Exception as error:  # noqa: BLE001 - a language of any package reads any text
        return f"whether a {language.title} program runs here cannot be told: {error!r:.200}"
