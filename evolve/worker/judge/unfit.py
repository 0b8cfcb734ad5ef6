"""Programs whose language the device or this installation does not run."""

from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.languages.base import Language
from evolve.languages.registry import refusal
from evolve.worker.devices.base import Device


def unfit(language: Language, source: str, device: Device) -> str:
    """Why a program can be neither built nor run here, whatever its kernels do; empty if it can."""
    try:
        return (
            refusal(language, device.kind)
            or language.missing(source)
            or language.unfit_gpu(source, device.capability)
        )
    except FAILURES_OF_A_FUNCTION as error:  # a language of any package reads any text
        return f"whether a {language.title} program runs here cannot be told: {error!r:.200}"
