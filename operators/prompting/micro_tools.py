"""Small profiling tools: each turns facts of a verdict into a finding and a remedy, in words.

KernelPro (arXiv 2606.26453) classifies a program by the roofline and runs only the tools for that
limit. They report words, because raw counters made its model worse than no counters. The order is
that of its hit rates: the tools that led to a gain most often come first. This project chose the
thresholds, and added the tools for CPUs and for the program's own memory traffic. Tools that need
hardware counters report only after a verification, which alone takes them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evolve.core.evaluation import Evaluation
from evolve.languages.cpp import CPP
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
class VerdictFacts:
    """What tools read: descriptors, feedback, counters, memory traffic, kind of operation."""

    descriptors: Mapping[str, float | str]
    feedback: str
    counters: str
    traffic: float | None
    category: str

    def number(self, name: str) -> float | None:
        value = self.descriptors.get(name)
        return value if isinstance(value, float) else None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: the limits that it is for, and its report, None for no finding."""

    limits: frozenset[str]
    report: Callable[[VerdictFacts], str | None]


def findings(evaluation: Evaluation | None, diagnosis: Diagnosis) -> list[str]:
    """The findings of the tools for the diagnosed limit; of all tools if the limit is unknown."""
    if evaluation is None:
        return []
    said = [label.evidence for label in evaluation.labels if label.name == "counters"]
    facts = VerdictFacts(
        descriptors=evaluation.descriptors,
        feedback=evaluation.feedback,
        counters="\n".join(said),
        traffic=traffic_share(evaluation),
        category=diagnosis.category,
    )
    limit = diagnosis.bottleneck
    tools = [tool for tool in TOOLS if not limit or limit in tool.limits]
    return [text for tool in tools if (text := tool.report(facts))]


def _spills(facts: VerdictFacts) -> str | None:
    spilled = facts.number("spill_bytes")
    if not spilled:
        return None
    return (
        f"Registers spill: {spilled:.0f} bytes of a thread go to memory and back. Keep fewer "
        "values alive at a time: a smaller block, more warps for it, or accumulators that are "
        "finished one after the other."
    )


def _occupancy(facts: VerdictFacts) -> str | None:
    occupancy = facts.number("occupancy")
    if occupancy is None or occupancy >= _LOW_OCCUPANCY:
        return None
    registers, shared = facts.number("registers") or 0, facts.number("shared_bytes") or 0
    causes = [
        *([f"{registers:.0f} registers a thread"] if registers >= _MANY_REGISTERS else []),
        *([f"{shared:.0f} bytes of shared memory a block"] if shared >= _MUCH_SHARED else []),
    ]
    why = f", by {' and '.join(causes)}" if causes else ", by few or small blocks"
    return (
        f"Occupancy is {occupancy:.0%}{why}. Where loads are waited for, more warps hide that: "
        "smaller tiles, fewer stages, or a grid with more programs."
    )


def _lanes(facts: VerdictFacts) -> str | None:
    found = [int(lanes) for lanes in _LANES.findall(facts.counters)]
    if not found or min(found) >= _FEW_LANES:
        return None
    return (
        f"Only {min(found)} of 32 lanes of a warp are active: its threads go different ways, or "
        "blocks are larger than what they work on. Make block sizes divide the dimension, and "
        "masks uniform for a warp."
    )


def _tiling(facts: VerdictFacts) -> str | None:
    product = facts.category in PRODUCTS and facts.descriptors.get("tensor_cores", "no") == "no"
    if not product or facts.number("shared_bytes") != 0:
        return None
    return (
        "Operands that are used again are read from memory each time: no shared memory is used. "
        "Load a tile once for all that need it."
    )


def _launches(facts: VerdictFacts) -> str | None:
    lines = _KERNEL.findall(facts.feedback)
    count = sum(int(found[1]) if (found := _TIMES.search(line)) else 1 for line in lines)
    if count < _MANY_LAUNCHES:
        return None
    return (
        f"A call makes {count} launches, which cost some microseconds each beside the work. Join "
        "those that hand tensors to one another, the shortest first."
    )


def _tensor_cores(facts: VerdictFacts) -> str | None:
    known = "tensor_cores" in facts.descriptors
    if not known or facts.descriptors["tensor_cores"] != "no" or facts.category not in PRODUCTS:
        return None
    return (
        "Products run without tensor cores. Where the error allows it, operands cut in parts "
        "(`bf16x3`, `tf32x3`) are several times as fast as float32 units."
    )


def _own_traffic(facts: VerdictFacts) -> str | None:
    if facts.traffic is None or facts.traffic < WELL_USED:
        return None
    return (
        f"What its launches are given runs at {facts.traffic:.0%} of the memory rate: the "
        "kernels are as fast as their traffic allows. Only less traffic helps: join kernels, keep "
        "intermediates in registers, or make them narrower."
    )


def _coalescing(facts: VerdictFacts) -> str | None:
    peaks = [int(share) / 100 for share in _PEAK.findall(facts.counters)]
    if peaks and facts.traffic is not None and max(peaks) > 2 * facts.traffic:
        return (
            f"Memory is at {max(peaks):.0%} of its peak for operands that account for "
            f"{facts.traffic:.0%}: bytes are read again, or fetched and not used. Make "
            "neighbouring threads read neighbouring addresses, and order programs so that the "
            "cache serves what several read."
        )
    return None


def _vectors(facts: VerdictFacts) -> str | None:
    if facts.descriptors.get("memory_access") != "scalar":
        return None
    return (
        "Memory is read one element at a time. Read several contiguous ones in one access, of 16 "
        "bytes where alignment allows it."
    )


def _threads(facts: VerdictFacts) -> str | None:
    if facts.descriptors.get("parallelism") not in ("serial", "simd"):
        return None
    if facts.descriptors.get("language") != CPP.name:
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
tensor cores 8, coalescing 6, vectors 4. In the paper coalescing is not a tool for compute, and
tensor cores are none for memory; this project chose the limits of the others.
"""
