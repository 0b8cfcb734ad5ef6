"""The kernels of one call on a GPU, their origin, and their shares of the time.

The profile is taken in the candidate's process, so it is evidence and no proof by itself: it gives
labels, facts for feedback, and `coverage`. Whose a kernel is, is decided by the files of the
candidate's build, which the judge reads: the names in Triton's cache and beside what NVRTC has
compiled, and the symbols in shared libraries (a kernel's mangled name is there as text, for the
CUDA runtime to register it).
"""

import json
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch.autograd.profiler import profile

from evolve.core.evaluation import Label
from evolve.worker.base.feedback import KernelFacts, plain
from evolve.worker.build.amd_stats import amd_figures, amd_operands
from evolve.worker.build.elf import imported_symbols
from evolve.worker.build.kernel_stats import instruction_shares, stack_bytes
from evolve.worker.runner.launches import noted

MAX_KERNELS = 16
_MAX_NAME = 200
_ALIKE = 1.25  # launches of one kernel whose times are within this factor have the same role
_MAIN_WORK = 0.5  # share of the time
_NAMED_IN_LABEL = 3
_MAX_FILES = 512
_MAX_FILE = 64 << 20

_VENDOR = re.compile(
    r"cublas|cudnn|cutlass|cutensor|cusparse|nvjet|xmma|magma|winograd|implicit_convolve|fmha"
    r"|flash_fwd|splitKreduce|gemv|(?:ampere|volta|turing|hopper|maxwell|sm\d+)_\w*(?:gemm|conv)",
    re.I,
)
_OF_TORCH = re.compile(r"\bat(?:_cuda_detail)?::")
_MOVES = re.compile(r"copy|fill|cat|arange|memset|memcpy", re.I)  # by names of torch's kernels
_LAUNCH_BOUND_US = 10.0  # below this, torch's time is launches, whatever its share
# Of BLAS by its Fortran and C names, of vendors' own, and functions that find such ones by name.
_OF_LIBRARY = re.compile(
    r"[sdcz](?:gemm|gemv|ger|symm|syrk|trsm|trmm|dot|axpy)\w{0,2}_?"
    r"|(?:cblas|LAPACKE|mkl|MKL|dnnl|openblas|vml|cublas|cublasLt|cudnn|cusparse|cutensor)_?\w+"
    r"|_ZN4dnnl\w+|_ZN2at6native\w+"
)
_FINDERS = frozenset(
    ("dlopen", "dlsym", "dlvsym", "dl_iterate_phdr", "dladdr", "dladdr1", "dlinfo", "_r_debug")
)
_OF_NAME = (("fp8", r"e4m3|e5m2|fp8"), ("tf32", r"tf32|s1688gemm"), ("bf16", r"bf16"),
            ("fp16", r"fp16|hgemm|hmma|_f16"))  # fmt: skip
_MULTIPLY = re.compile(
    r"(?:wgmma\.mma_async|mma)\.sync\.aligned\.m\w+(?:\.row\.col)?\.\w+\.(\w+)\."
    r"|tcgen05\.mma\S*kind::(\w+)"
)
_OF_PTX = {"f16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "f8f6f4": "fp8"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, copy or fill as the profiler saw it, launches that are alike together.

    `us` and `operand_bytes` are of all of them. None is unknown.
    """

    name: str
    us: float
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    grid: str = ""
    launches: int = 1
    operand_bytes: float | None = None
    warps: int | None = None
    stages: int | None = None
    spilled_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """The result of a profile.

    `coverage` is the share of device time in the candidate's own kernels, `vendor` that in kernels
    of vendors' libraries, `torch` that in torch's own that compute, if those take longer than
    launches; the rest are copies, or of unknown origin. `compiled` describes the own kernel that
    took longest.
    """

    facts: tuple[KernelFacts, ...]
    coverage: float
    vendor: float
    torch: float
    labels: tuple[Label, ...]
    compiled: Mapping[str, float | str]

    @property
    def library_made(self) -> bool:
        """Whether a vendor's library or torch did the main work."""
        return self.vendor + self.torch >= _MAIN_WORK


# --- the runner's side --------------------------------------------------------------------------


def open_profiler(finish: Callable[[], None]) -> None:
    """A first session on nothing of interest: it takes longer than others and can lose events."""
    with _session():
        finish()


def observe(call: Callable[[], object], finish: Callable[[], None]) -> str:
    """Profile one call; JSON of its kernels, those that took longest first.

    Not the first session of its process (`open_profiler`).
    """
    call()  # triggers lazy loading
    finish()
    with _session() as seen, noted() as launched:
        call()
        finish()
    path = Path.cwd() / "profile.json"
    seen.export_chrome_trace(str(path))
    names = {event.name for event in seen.function_events or ()}
    return json.dumps(summarise(json.loads(path.read_text()), names, launched))


def _session() -> profile:
    """The inner profiler of `torch.profiler.profile`.

    That one imports the compiler, of which it asks nothing here: 1.4 s of a core, and 4.4 s if no
    bytecode is kept (torch 2.13 and 2.11).
    """
    return profile(use_cpu=False, use_device="cuda", use_kineto=True)


def summarise(
    trace: dict[str, Any], names: Collection[str], launched: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Kernels, copies and fills of a trace in Chrome's format, as the profiler of torch writes it.

    Times are in microseconds. Launches of a kernel with different roles are kept separate: other
    grids, operands or resources, or another time. The rest is counted in a last entry.

    Args:
        trace: the file's content.
        names: of the profiler's own events: in the trace a kernel called `kernel` is `Kernel`.
        launched: recorded launches (`evolve.worker.runner.launches`), in order.
    """
    noted_of: dict[str, deque[Mapping[str, Any]]] = {}
    for each in launched:
        noted_of.setdefault(each["name"], deque()).append(each)
    found: list[dict[str, Any]] = []
    for event in sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0)):
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        row = _launch(event, names, noted_of)
        for other in found:
            if _are_alike(row, other):
                other["us"] += row["us"]
                other["launches"] += 1
                break
        else:
            found.append(row)
    ranked = sorted(found, key=lambda kernel: -kernel["us"])
    rest = sum(kernel["us"] for kernel in ranked[MAX_KERNELS:])
    return ranked[:MAX_KERNELS] + ([{"name": "(others)", "us": rest}] if rest else [])


def _launch(
    event: dict[str, Any], names: Collection[str], noted_of: Mapping[str, deque[Mapping[str, Any]]]
) -> dict[str, Any]:
    facts = event.get("args", {})
    name = event["name"][:_MAX_NAME]
    if name not in names and name.lower() in names:
        name = name.lower()
    copied = facts.get("bytes")  # of copies, which read them too
    twice = 2 if event["cat"] == "gpu_memcpy" else 1
    launch = noted_of[name].popleft() if noted_of.get(name) else {}
    return {
        "name": name,
        "us": event["dur"],
        "launches": 1,
        "registers": facts.get("registers per thread"),
        "shared": facts.get("shared memory"),
        "occupancy": facts.get("est. achieved occupancy %"),
        "grid": facts.get("grid"),
        "operand_bytes": twice * copied if copied else launch.get("operand_bytes"),
        **{fact: launch.get(fact) for fact in ("warps", "stages", "spills")},
    }


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same = ("name", "grid", "registers", "shared", "operand_bytes", "warps", "stages")
    if any(one[fact] != other[fact] for fact in same):
        return False
    mean = other["us"] / other["launches"]
    return bool(mean <= _ALIKE * one["us"] and one["us"] <= _ALIKE * mean)


# --- the judge's side -------------------------------------------------------------------------


def read_kernels(text: str) -> tuple[Kernel, ...]:
    """A runner's profile; anything malformed is ignored."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    return tuple(filter(None, map(_kernel, entries[: MAX_KERNELS + 1])))


def _kernel(entry: Any) -> Kernel | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    us = _number(entry.get("us"))
    if not us:
        return None
    percent = _number(entry.get("occupancy"))
    launches = _whole(entry.get("launches")) or 1
    operands = _number(entry.get("operand_bytes"))
    return Kernel(
        name=entry["name"][:_MAX_NAME],
        us=us,
        registers=_whole(entry.get("registers")),
        shared_bytes=_whole(entry.get("shared")),
        occupancy=percent / 100 if percent else None,  # 0 means unknown
        grid=_grid(entry.get("grid")),
        launches=launches,
        operand_bytes=operands * launches if operands else None,
        warps=_whole(entry.get("warps")),
        stages=_whole(entry.get("stages")),
        spilled_bytes=_whole(entry.get("spills")),
    )


def _grid(value: Any) -> str:
    """Programs by dimension, those of one program left out: `4096 x 8`."""
    if not isinstance(value, list) or len(value) != 3 or None in map(_whole, value):
        return ""
    sizes = [int(size) for size in value]
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " x ".join(map(str, sizes))


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e12 else None


class OwnCode:
    """Facts of the kernels in the folder of a candidate's build.

    Args:
        folder: of a finished build, None if there is none.
    """

    def __init__(self, folder: str | None) -> None:
        self._triton: dict[str, str] = {}  # PTX by kernel
        self._amd: dict[str, str] = {}  # assembly for AMD's GPUs by kernel
        self._stack: dict[str, int] = {}  # bytes by kernel
        self._libraries: list[bytes] = []
        for path in _files(folder):
            if path.suffix == ".so":
                self._libraries.append(path.read_bytes())
            elif path.suffix == ".json":
                self._add_triton(path)

    def _add_triton(self, path: Path) -> None:
        try:
            name = json.loads(path.read_bytes()).get("name")
        except (ValueError, RecursionError, AttributeError):
            return
        if isinstance(name, str):
            name = name[:_MAX_NAME]  # as in a profile
            text = _read(path.with_suffix(".ptx")).decode(errors="replace")
            assembly = _read(path.with_suffix(".amdgcn")).decode(errors="replace")
            self._amd[name] = self._amd.get(name, "") + assembly
            self._triton[name] = self._triton.get(name, "") + text
            self._libraries.append(name.encode())  # mangled, if it is of C++
            stack = stack_bytes(_read(path.with_suffix(".cubin")))
            if stack is not None:
                self._stack[name] = max(stack, self._stack.get(name, 0))

    def holds(self, name: str) -> bool:
        """Whether the candidate's build has a kernel of this name (as profilers demangle it)."""
        if name in self._triton:
            return True
        base = _base(name)
        if not base:
            return False
        mangled, plain_c = f"{len(base)}{base}".encode(), b"\0" + base.encode() + b"\0"
        return any(mangled in library or plain_c in library for library in self._libraries)

    def multiplies_in(self, name: str) -> list[str]:
        """Operand types of the matrix instructions of a Triton kernel."""
        found = _MULTIPLY.findall(self._triton.get(name, ""))
        types = {first or second for first, second in found}
        of_ptx = {_OF_PTX.get(kind, kind) for kind in types}
        return sorted({*of_ptx, *amd_operands(self._amd.get(name, ""))})

    def compiled(self, name: str) -> dict[str, float | str]:
        """Descriptors of a Triton kernel, all its variants together; empty for others.

        `tensor_cores` has the types that it multiplies in, `spill_bytes` the most of a variant.
        """
        found: dict[str, float | str] = {**instruction_shares(self._triton.get(name, ""))}
        if found:
            found["tensor_cores"] = "+".join(self.multiplies_in(name)) or "no"
        if name in self._stack:
            found["spill_bytes"] = float(self._stack[name])
        return found or amd_figures(self._amd.get(name, ""))


def library_labels(folder: str | None, is_profiled: bool) -> tuple[Label, ...]:
    """Functions of vendors' libraries that the libraries of a build import.

    Looking functions up by name counts as well if no profile would show the kernels. Otherwise it
    would only accuse honest candidates: the CUDA runtime and Triton's launchers do so.
    """
    found = {}
    for path in _files(folder):
        if path.suffix == ".so":
            names = _of_libraries(path.read_bytes(), is_profiled)
            if names:
                found[plain(path.name, 60)] = plain(", ".join(names[:_NAMED_IN_LABEL]), 100)
    return tuple(Label("library_call", f"{name} imports {what}") for name, what in found.items())


def _of_libraries(library: bytes, is_profiled: bool) -> list[str]:
    imported = imported_symbols(library)
    finders = set() if is_profiled else imported & _FINDERS
    return sorted({*filter(_OF_LIBRARY.fullmatch, imported), *finders})


def _files(folder: str | None) -> Iterator[Path]:
    """Regular files of a build, a number of them at most; a candidate may have left anything."""
    if folder is None:
        return
    for _, path in zip(range(_MAX_FILES), Path(folder).rglob("*"), strict=False):
        if _is_fit(path):
            yield path


def _is_fit(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size < _MAX_FILE


def _read(path: Path) -> bytes:
    return path.read_bytes() if _is_fit(path) else b""


def _base(name: str) -> str:
    """`scale` of `void ns::scale<float>(float*, int)`."""
    head = re.split(r"[<(]", name.replace("(anonymous namespace)", ""), maxsplit=1)[0]
    return head.split()[-1].rpartition("::")[2] if head.split() else ""


def profile_of(kernels: Sequence[Kernel], own: OwnCode) -> KernelProfile | None:
    """The findings of a profile; None if it shows nothing, which proves nothing."""
    total = sum(kernel.us for kernel in kernels)
    if not total:
        return None
    launches, kernels = kernels, _by_name(kernels)
    mine = [kernel for kernel in kernels if own.holds(kernel.name)]
    vendors = [k for k in kernels if k not in mine and _VENDOR.search(k.name)]
    torchs = [k for k in kernels if k not in (*mine, *vendors) and _computes(k)]
    if sum(kernel.us for kernel in torchs) < _LAUNCH_BOUND_US:
        torchs = []
    return KernelProfile(
        facts=tuple(
            KernelFacts(**asdict(each), share=each.us / total, is_own=own.holds(each.name))
            for each in launches
        ),
        coverage=sum(kernel.us for kernel in mine) / total,
        vendor=sum(kernel.us for kernel in vendors) / total,
        torch=sum(kernel.us for kernel in torchs) / total,
        labels=tuple(_labels(kernels, total, mine, vendors, torchs, own)),
        compiled=_compiled(max(mine, key=lambda kernel: kernel.us), own) if mine else {},
    )


def _by_name(launches: Sequence[Kernel]) -> list[Kernel]:
    """Each kernel with the time of all its launches, as its longest one is otherwise."""
    found: dict[str, Kernel] = {}
    for each in sorted(launches, key=lambda launch: -launch.us):
        known = found.get(each.name)
        found[each.name] = replace(known, us=known.us + each.us) if known else each
    return list(found.values())


def _computes(kernel: Kernel) -> bool:
    """Whether it is a kernel of torch that does more than to make or move data."""
    return bool(_OF_TORCH.search(kernel.name)) and not _MOVES.search(kernel.name)


def _compiled(kernel: Kernel, own: OwnCode) -> dict[str, float | str]:
    used = {
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes,
        "occupancy": kernel.occupancy,
    }
    known = {name: float(value) for name, value in used.items() if value is not None}
    return known | own.compiled(kernel.name)


def _labels(
    kernels: Sequence[Kernel],
    total: float,
    mine: Sequence[Kernel],
    vendors: Sequence[Kernel],
    torchs: Sequence[Kernel],
    own: OwnCode,
) -> Iterator[Label]:
    ranked = sorted(kernels, key=lambda kernel: -kernel.us)[:_NAMED_IN_LABEL]
    said = [
        f"{plain(k.name, 60)} {k.us / total:.0%}{' (own)' if k in mine else ''}" for k in ranked
    ]
    yield Label("kernels", "; ".join(said))
    if vendors:
        first = max(vendors, key=lambda kernel: kernel.us)
        share = sum(kernel.us for kernel in vendors) / total
        yield Label("library_call", f"{plain(first.name, 60)}: {share:.0%} of the device time")
    if (share := sum(kernel.us for kernel in torchs) / total) >= _MAIN_WORK:
        first = max(torchs, key=lambda kernel: kernel.us)
        yield Label("aten_compute", f"{plain(first.name, 60)}: {share:.0%} of the device time")
    for kernel in ranked:
        types = own.multiplies_in(kernel.name) if kernel in mine else _types_in(kernel)
        if types:
            what = f"{plain(kernel.name, 60)} multiplies matrices in {', '.join(types)}"
            yield Label("effective_precision", what)


def _types_in(kernel: Kernel) -> list[str]:
    """The operand type that a library's kernel has in its name."""
    if not _VENDOR.search(kernel.name):
        return []
    return [kind for kind, mark in _OF_NAME if re.search(mark, kernel.name, re.I)][:1]
