"""Facts that every evaluation is stored with."""

import functools

from evolve.core.digest import framed_digest
from evolve.worker.base.versions import versions
from evolve.worker.devices.base import Device
from evolve.worker.session.rules import rules_digest

JUDGE_VERSION = "2.10"
"""The judge's version for people. Counts changes of its code that change verdicts or times
(families, stages, the clock, descriptors); each has a row in `examples/guides/judge_versions.md`.
Changes of its numbers count by themselves, by `rules_digest`."""


def evaluator_version(device: Device) -> str:
    """The judge's version, digests of its rules and of the compilers, and the requested width.

    A verdict is answered from the store under an equal version only.
    """
    is_usual = device.half_width == type(device).half_width
    return _version() if is_usual else f"{_version()}-w{device.half_width:g}"


@functools.lru_cache
def _version() -> str:
    found = versions()
    libraries = [found[name] for name in ("python", "torch", "triton", "tvm_ffi", "compiler")]
    libraries += filter(None, [found["nvcc_flags"], found["languages"]])
    return f"{JUDGE_VERSION}-{framed_digest(rules_digest(), *libraries)[:8]}"


def environment(
    device: Device, tier: str, precision: str, accumulation: str, timing: str
) -> dict[str, str]:
    """All that a number depends on besides the task and the program."""
    return {
        "evaluator_version": evaluator_version(device),
        "rules": rules_digest()[:8],
        **versions(),
        **device.describe(),
        "sandbox": tier,
        "precision": precision,
        "accumulation": accumulation,
        "timing": timing,
        "half_width": f"{device.half_width:g}",
    }
