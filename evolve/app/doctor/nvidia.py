"""NVIDIA GPUs in words: devices, errors, and remedies.

All functions read the plain data of `evolve.worker.base.host_facts`.
"""

from collections.abc import Iterator, Mapping, Sequence

from evolve.app.doctor.shared import Facts, c_compiler, no_usable_gpu, why_no_torch
from evolve.app.finding import MISSING, NOTE, OK, Finding
from evolve.core.devices import CUDA, UNTESTED
from evolve.languages.registry import timed_on
from evolve.worker.base.host_facts import is_metax, major

NO_DRIVER = (
    "there is no NVIDIA driver here; install it, or give the container the GPU (--gpus all), or "
    "use device=cpu"
)
BUSY_PERCENT = 10
BUSY_MIB = 2048  # more than a desktop or an idle context holds

WITHOUT = {
    "nvcc": "CUDA C++ candidates cannot be built, Triton's can; install the CUDA toolkit of "
    "torch's CUDA, or set CUDA_HOME",
    "ncu": "feedback has no hardware counters; install Nsight Compute if you want them",
    "compute-sanitizer": "nothing is looked over by it; it comes with the CUDA toolkit",
}


def why_no_gpu(facts: Facts) -> str:
    """Why torch can use no GPU, and the remedy, in a sentence; empty if it can use one."""
    torch, driver = facts["torch"], facts["driver"]
    if is_metax(torch["version"]):
        built = f"this torch ({torch['version']}) is built for MetaX"
        return f"{built}, whose GPUs are not judged; use device=cpu"
    if torch["gpus"] and not torch["hip"]:
        return ""
    if why := why_no_torch(torch):
        return why
    if torch["hip"]:
        built = f"this torch ({torch['version']}) is built for AMD"
        return f"{built}; take device=hip, which is {UNTESTED}"
    if not _has_driver(facts):
        return NO_DRIVER
    if not torch["cuda"]:
        return (
            f"this torch ({torch['version']}) is built without CUDA; install a CUDA build of it, "
            "or name another interpreter, device.python=PATH"
        )
    if facts["visible"] in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES='{facts['visible']}' hides every GPU; unset it"
    if major(driver["cuda"]) < major(torch["cuda"]):
        return (
            f"the driver{_of(driver['gpus'])} serves CUDA {driver['cuda'] or 'nothing'}, and this "
            f"torch ({torch['version']}) needs {torch['cuda']}; update the driver, or install a "
            "torch for an older CUDA"
        )
    return no_usable_gpu(torch, "nvidia-smi")


def why_not_these(facts: Facts, ids: Sequence[int]) -> str:
    """Which of the numbers name no GPU; empty if all do."""
    known = [gpu["index"] for gpu in facts["torch"]["gpus"]]
    unknown = [str(number) for number in ids if number not in known]
    if not unknown:
        return ""
    names = ", ".join(f"{gpu['index']} ({gpu['name']})" for gpu in facts["torch"]["gpus"])
    return f"device.ids={list(ids)}: there is no GPU {', '.join(unknown)}; torch sees {names}"


def findings(facts: Facts, *, wanted: bool) -> Iterator[Finding]:
    """The GPUs and their requirements.

    Args:
        facts: the findings of the worker's interpreter.
        wanted: whether a search is to run on one, so that its lack is no side note.
    """
    lacking = MISSING if wanted else NOTE
    why = why_no_gpu(facts)
    if why:
        yield Finding(lacking, "gpu", why)
    if not _has_driver(facts):
        return
    for gpu in facts["torch"]["gpus"]:
        yield from _gpu(gpu, facts)
    slices = facts["driver"]["slices"]
    if slices or any(gpu["mig"] == "Enabled" for gpu in facts["driver"]["gpus"]):
        yield Finding(
            NOTE,
            "MIG",
            f"on, with {', '.join(slices) or 'no slice'}: a slice is a device of its own kind, and "
            "its neighbours disturb what is timed; for a whole GPU: nvidia-smi -mig 0",
        )
    yield from _versions(facts, lacking)


def _gpu(gpu: Facts, facts: Facts) -> Iterator[Finding]:
    name = f"gpu {gpu['index']}"
    memory = f"{gpu['memory_mib'] / 1024:.0f} GiB"
    yield Finding(OK, name, f"{gpu['name']}, capability {gpu['capability']}, {memory}")
    built_for = facts["torch"]["architectures"]
    generation = str(major(gpu["capability"]))
    if built_for and not any(_major_of(name) == generation for name in built_for):
        yield Finding(
            MISSING,
            name,
            f"this torch has no kernels for capability {gpu['capability']}, but for "
            f"{', '.join(built_for)}; install a torch that has",
        )
    told = [row for row in facts["driver"]["gpus"] if row["uuid"] == f"GPU-{gpu['uuid']}"]
    used, busy = ((_number(told[0][key]) for key in ("used_mib", "busy_percent")) if told
                  else (0, 0))  # fmt: skip
    if used > BUSY_MIB or busy > BUSY_PERCENT:
        yield Finding(
            NOTE,
            name,
            f"in use by others: {used / 1024:.0f} GiB held, {busy} % busy. What is timed meanwhile "
            "is void and repeated; wait, or take another, device.ids=[N]",
        )


def _versions(facts: Facts, lacking: str) -> Iterator[Finding]:
    """Driver, CUDA, compilers and tools."""
    torch, driver, tools = facts["torch"], facts["driver"], facts["tools"]
    yield Finding(
        OK if driver["cuda"] else lacking,
        "driver",
        f"{driver['gpus'][0]['driver'] if driver['gpus'] else 'version unknown'}, up to CUDA "
        f"{driver['cuda'] or 'unknown'}; torch {torch['version']} has CUDA "
        f"{torch['cuda'] or 'none'}",
    )
    yield c_compiler(tools, lacking)
    for tool, consequence in WITHOUT.items():
        found = tools[tool]
        yield Finding(OK if found else NOTE, tool, found or f"not found: {consequence}")
    usual = timed_on(CUDA)[0].name
    for name, why in facts["languages"].items():
        state = lacking if name == usual else NOTE
        yield Finding(state if why else OK, name, why or "programs in it can be built")
    nvcc = tools["nvcc"].rpartition(", ")[2]
    if tools["nvcc"] and torch["cuda"] and major(nvcc) != major(torch["cuda"]):
        yield Finding(
            NOTE,
            "nvcc",
            f"{nvcc} beside torch's CUDA {torch['cuda']}: CUDA C++ that uses torch's headers does "
            f"not build; install toolkit {major(torch['cuda'])}",
        )


def _has_driver(facts: Facts) -> bool:
    return bool(facts["driver"]["gpus"] or facts["driver"]["cuda"])


def _of(gpus: Sequence[Mapping[str, str]]) -> str:
    return f" {gpus[0]['driver']}" if gpus else ""


def _major_of(architecture: str) -> str:
    """`9` of `sm_90`, `12` of `sm_120a`."""
    digits = "".join(c for c in architecture.rpartition("_")[2] if c.isdigit())
    return digits[:-1]


def _number(text: str) -> int:
    """The whole number that a text is; 0 if the driver does not tell (`[N/A]`)."""
    return int(text) if text.strip().isdigit() else 0
