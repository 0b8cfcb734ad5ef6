"""AMD GPUs in words: what `evolve doctor --device hip` says before the worker is asked.

All functions read the plain data of `evolve.worker.base.host_facts`.
"""

from collections.abc import Iterator

from evolve.app.doctor.shared import Facts, c_compiler, no_usable_gpu, why_no_torch
from evolve.app.finding import MISSING, NOTE, OK, Finding
from evolve.core.devices import HIP, UNTESTED
from evolve.languages.registry import timed_on

KNOWN = ("gfx942", "gfx950")
_NO_HIPCC = "not found: HIP C++ candidates cannot be built; install ROCm's hipcc, or set ROCM_HOME"


def why_no_amd_gpu(facts: Facts) -> str:
    """Why torch can use no AMD GPU, and the remedy, in a sentence; empty if it can use one."""
    torch = facts["torch"]
    if why := why_no_torch(torch):
        return why
    if not torch["hip"]:
        built = f"for CUDA {torch['cuda']}" if torch["cuda"] else "without ROCm"
        instead = "device=cuda" if torch["cuda"] else "device=cpu"
        return (
            f"this torch ({torch['version']}) is built {built}; install a ROCm build of it, name "
            f"another interpreter, device.python=PATH, or use {instead}"
        )
    return "" if torch["gpus"] else no_usable_gpu(torch, "rocminfo")


def findings(facts: Facts) -> Iterator[Finding]:
    """The support, the GPUs and the requirements of kernels.

    A missing part is `MISSING`, because `hip` was named.

    Args:
        facts: the findings of the worker's interpreter.
    """
    yield Finding(NOTE, "support", f"device={HIP.name} is {UNTESTED}; to tell us whether it works: "
                  f"evolve doctor --device {HIP.name} --report")  # fmt: skip
    if why := why_no_amd_gpu(facts):
        yield Finding(MISSING, "gpu", why)
        return
    for gpu in facts["torch"]["gpus"]:
        yield _gpu(gpu)
    torch, tools = facts["torch"], facts["tools"]
    yield Finding(OK, "rocm", f"torch {torch['version']} has ROCm {torch['hip']}")
    yield c_compiler(tools)
    yield Finding(OK if tools["hipcc"] else NOTE, "hipcc", tools["hipcc"] or _NO_HIPCC)
    usual = timed_on(HIP)[0].name
    for one in timed_on(HIP):
        if why := facts["languages"].get(one.name, ""):
            yield Finding(MISSING if one.name == usual else NOTE, one.name, why)


def _gpu(gpu: Facts) -> Finding:
    known, architecture = ", ".join(KNOWN), gpu["architecture"]
    text = f"{gpu['name']}, {architecture}, {gpu['memory_mib'] / 1024:.0f} GiB"
    if architecture in KNOWN:
        return Finding(OK, f"gpu {gpu['index']}", text)
    return Finding(NOTE, f"gpu {gpu['index']}", f"{text}; written with {known} in mind")
