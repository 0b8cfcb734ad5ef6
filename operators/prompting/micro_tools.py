"""Small tools that read a verdict and say what follows from it, picked by what limits the program.

KernelPro (arXiv 2606.26453) classifies a program by the roofline first, and then runs each tool
that has to do with that limit, and no other; a tool detects, explains and recommends in words,
because raw counters alone made its model worse than none. The order is that of its table of hit
rates: what led to a gain most often comes first. Thresholds are ours, as are the tools for CPUs and
the one for traffic of the program's own. Its tool for stalls needs counters that the judge has only
at a verification: it speaks where they are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evolve.core.evaluation import Evaluation
from operators.knowledge import PRODUCTS, Bottleneck, Diagnosis
from operators.prompting.ceiling import WELL_USED, traffic_share

_LOW_OCCUPANCY = 0.4
_MANY_REGISTERS = 128  # a thread: two blocks of 256 threads on a multiprocessor of 65536
_MUCH_SHARED = 96 << 10  # bytes of a block: two on a multiprocessor of 228 KB
_MANY_LAUNCHES = 4
_FEW_LANES = 28  # of 32
_LANES = re.compile(r"\b(\d+) of 32 lanes active")
_PEAK = re.compile(r"\bmemory (\d+) % of its peak")
_KERNEL = re.compile(r"^kernel '[^\n]*", re.MULTILINE)
_TIMES = re.compile(r" in (\d+) launches\b")


@dataclass(frozen=True, slots=True)
class Reading:
    """What tools may read: descriptors, the judge's words, and the kind of operation."""

    facts: Mapping[str, float | str]
    feedback: str
    counters: str
    traffic: float | None
    category: str

    def number(self, name: str) -> float | None:
        value = self.facts.get(name)
        return value if isinstance(value, float) else None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: the limits that it has to do with, and what it says, if anything."""

    limits: frozenset[str]
    say: Callable[[Reading], str | None]


def findings(evaluation: Evaluation | None, diagnosis: Diagnosis) -> list[str]:
    """What the tools find that go with the diagnosed limit, or all of them where none is known."""
    if evaluation is None:
        return []
    said = [label.evidence for label in evaluation.labels if label.name == "counters"]
    reading = Reading(
        facts=evaluation.descriptors,
        feedback=evaluation.feedback,
        counters="\n".join(said),
        traffic=traffic_share(evaluation),
        category=diagnosis.category,
    )
    return [text for tool in routed(diagnosis.bottleneck) if (text := tool.say(reading))]


def routed(bottleneck: str) -> Sequence[Tool]:
    """The tools for a limit, in the order of their use."""
    return [tool for tool in TOOLS if not bottleneck or bottleneck in tool.limits]


def _spills(reading: Reading) -> str | None:
    spilled = reading.number("spill_bytes")
    if not spilled:
        return None
    return (
        f"Registers spill: {spilled:.0f} bytes of a thread go to memory and back. Keep fewer "
        "values alive at a time: a smaller block, more warps for it, or accumulators that are "
        "finished one after the other."
    )


def _occupancy(reading: Reading) -> str | None:
    occupancy = reading.number("occupancy")
    if occupancy is None or occupancy >= _LOW_OCCUPANCY:
        return None
    registers, shared = reading.number("registers") or 0, reading.number("shared_bytes") or 0
    causes = [
        *([f"{registers:.0f} registers a thread"] if registers >= _MANY_REGISTERS else []),
        *([f"{shared:.0f} bytes of shared memory a block"] if shared >= _MUCH_SHARED else []),
    ]
    why = f", by {' and '.join(causes)}" if causes else ", by few or small blocks"
    return (
        f"Occupancy is {occupancy:.0%}{why}. Where loads are waited for, more warps hide that: "
        "smaller tiles, fewer stages, or a grid with more programs."
    )


def _lanes(reading: Reading) -> str | None:
    found = [int(lanes) for lanes in _LANES.findall(reading.counters)]
    if not found or min(found) >= _FEW_LANES:
        return None
    return (
        f"Only {min(found)} of 32 lanes of a warp are active: its threads go different ways, or "
        "blocks are larger than what they work on. Make block sizes divide the dimension, and "
        "masks uniform for a warp."
    )


def _tiling(reading: Reading) -> str | None:
    product = reading.category in PRODUCTS and reading.facts.get("tensor_cores", "no") == "no"
    if not product or reading.number("shared_bytes") != 0:
        return None
    return (
        "Operands that are used again are read from memory each time: no shared memory is used. "
        "Load a tile once for all that need it."
    )


def _launches(reading: Reading) -> str | None:
    lines = _KERNEL.findall(reading.feedback)
    count = sum(int(found[1]) if (found := _TIMES.search(line)) else 1 for line in lines)
    if count < _MANY_LAUNCHES:
        return None
    return (
        f"A call makes {count} launches, which cost some microseconds each beside the work. Join "
        "those that hand tensors to one another, the shortest first."
    )


def _tensor_cores(reading: Reading) -> str | None:
    known = "tensor_cores" in reading.facts
    if not known or reading.facts["tensor_cores"] != "no" or reading.category not in PRODUCTS:
        return None
    return (
        "Products run without tensor cores. Where the error allows it, operands cut in parts "
        "(`bf16x3`, `tf32x3`) are several times as fast as float32 units."
    )


def _own_traffic(reading: Reading) -> str | None:
    if reading.traffic is None or reading.traffic < WELL_USED:
        return None
    return (
        f"What its launches are given runs at {reading.traffic:.0%} of the memory rate: the "
        "kernels are as fast as their traffic allows. Only less traffic helps: join kernels, keep "
        "intermediates in registers, or make them narrower."
    )


def _coalescing(reading: Reading) -> str | None:
    peaks = [int(share) / 100 for share in _PEAK.findall(reading.counters)]
    if peaks and reading.traffic is not None and max(peaks) > 2 * reading.traffic:
        return (
            f"Memory is at {max(peaks):.0%} of its peak for operands that account for "
            f"{reading.traffic:.0%}: bytes are read again, or fetched and not used. Make "
            "neighbouring threads read neighbouring addresses, and order programs so that the "
            "cache serves what several read."
        )
    return None


def _vectors(reading: Reading) -> str | None:
    if reading.facts.get("memory_access") != "scalar":
        return None
    return (
        "Memory is read one element at a time. Read several contiguous ones in one access, of 16 "
        "bytes where alignment allows it."
    )


def _threads(reading: Reading) -> str | None:
    if reading.facts.get("parallelism") not in ("serial", "simd"):
        return None
    if reading.facts.get("language") != "cpp":
        return None
    return "One thread does all the work: share the outermost loop out between the cores."


_ALL = frozenset(limit.value for limit in Bottleneck)
_MEMORY, _COMPUTE = Bottleneck.MEMORY.value, Bottleneck.COMPUTE.value
_LATENCY, _PARALLELISM = Bottleneck.LATENCY.value, Bottleneck.PARALLELISM.value
_LAUNCHING = Bottleneck.LAUNCH.value

TOOLS = (
    Tool(frozenset((_MEMORY, _COMPUTE, _LATENCY)), _spills),
    Tool(frozenset((_MEMORY, _LATENCY, _PARALLELISM)), _occupancy),
    Tool(frozenset((_COMPUTE, _LATENCY)), _lanes),
    Tool(frozenset((_MEMORY, _COMPUTE)), _tiling),
    Tool(frozenset((_LAUNCHING, _LATENCY)), _launches),
    Tool(frozenset((_COMPUTE,)), _tensor_cores),
    Tool(frozenset((_MEMORY,)), _own_traffic),
    Tool(frozenset((_MEMORY,)), _coalescing),
    Tool(frozenset((_MEMORY,)), _vectors),
    Tool(_ALL - {_LAUNCHING}, _threads),
)
"""In the paper's order of hit rates: spills 18 %, occupancy 13, stalls 11, tiling 9, launches 9,
tensor cores 8, coalescing 6, vectors 4. By the paper coalescing has nothing to do with compute, and
tensor cores nothing with memory; which limits the others go with is ours.
"""
