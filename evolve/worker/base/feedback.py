"""The judge's findings on a candidate, as text for people and models.

A few hundred tokens at most: whole profiler dumps are known to make models worse. Text that the
candidate influences (its source, its compiler's words, names of its kernels) is quoted: no control
characters, every line behind a mark, lengths capped, so that it cannot pass for the judge's. Seeds
and expected values never come here. Unknown numbers are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evolve.worker.base.compiler_log import CANDIDATE, Complaint, first_complaint, line_in_candidate
from evolve.worker.ipc.messages import sanitise

MAX_CHARS = 2400
"""Of composed feedback: about 600 tokens."""

MAX_WHAT = 300  # characters of a compiler's sentence
MAX_LINE = 120  # of a quoted line
AROUND = 3  # lines of the source before and after the one in question
WELL_USED = 0.6  # of a ceiling: below it for both, neither memory nor arithmetic is the limit
AT_CEILING = 0.95
MOSTLY = 0.9  # of the time: launches whose operands are known, for a sum over all of them

_CUT = "\n(cut here)"
_FENCE = re.compile(r"`{3,}|~{3,}")


def plain(text: str, limit: int = MAX_WHAT) -> str:
    """Foreign text on one line: printable, without fences, at most `limit` characters."""
    text = " ".join(_FENCE.sub("'''", sanitise(text)).split())
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def quote(text: str, lines: int = 12) -> str:
    """Foreign text on lines of its own, each behind a mark; at most `lines` of them."""
    given = sanitise(text).strip("\n").split("\n")
    kept = [f"| {_clipped(line)}" for line in given[:lines]]
    if len(given) > lines:
        kept.append(f"| ({len(given) - lines} more lines)")
    return "\n".join(kept)


def _clipped(line: str) -> str:
    line = _FENCE.sub("'''", line.expandtabs(4)).rstrip()
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 4] + " ..."


def compile_error(log: str, source: str) -> str:
    """The first error of a compiler's log with the lines of the candidate around it.

    Args:
        log: g++, clang, nvcc, ptxas, linker or Triton, or the runner's report of a Python error.
        source: the candidate's module.
    """
    complaint, more = first_complaint(log)
    if complaint is None:
        return quote(log)
    line = line_in_candidate(complaint, source)
    head = f"{_place(complaint, line)}{plain(complaint.what)}"
    if line:
        window = quote(_window(source, line), 2 * AROUND + 1)
    else:
        window = quote("\n".join(complaint.excerpt[-AROUND:])) if complaint.excerpt else ""
    rest = f"({more} more errors after this one)" if more > 0 else ""
    return "\n".join(part for part in (head, window, rest) if part)


def _place(complaint: Complaint, line: int) -> str:
    own = f"{plain(complaint.file, 40)} line {complaint.line}" if complaint.line else ""
    if not line:
        return f"{own}: " if own else ""
    of_build = f" ({own})" if own and complaint.file != CANDIDATE else ""
    return f"{CANDIDATE} line {line}{of_build}: "


def _window(source: str, line: int) -> str:
    """The line, marked, with its neighbours and their numbers."""
    lines = source.splitlines()
    first = max(1, line - AROUND)
    return "\n".join(
        f"{'>' if number == line else ' '}{number:5} {text}"
        for number, text in enumerate(lines[first - 1 : line + AROUND], first)
    )


def bound(
    *,
    time_s: float,
    moved_bytes: float | None,
    flops: float | None,
    bytes_per_s: float | None,
    flops_per_s: float | None,
) -> str:
    """Whether memory or arithmetic holds a kernel up, and by how much; empty if unknown.

    Args:
        time_s: of one call.
        moved_bytes: bytes that the reference has to read and write.
        flops: operations that the reference has to compute.
        bytes_per_s: the measured rate of a copy on this device.
        flops_per_s: the measured rate of a matrix product in the dtype in question.
    """
    memory = _share(moved_bytes, bytes_per_s, time_s)
    arithmetic = _share(flops, flops_per_s, time_s)
    known = [share for share in (memory, arithmetic) if share is not None]
    if not known or time_s <= 0:
        return ""
    shares = []
    if memory is not None and moved_bytes:
        rate = moved_bytes / time_s / 1e9
        shares.append(f"{memory:.0%} of this device's memory rate ({rate:.3g} GB/s)")
    if arithmetic is not None and flops:
        shares.append(f"{arithmetic:.0%} of its arithmetic ({flops / time_s / 1e12:.3g} TFLOP/s)")
    best = max(known)
    ideal = f"at that ceiling a call would take {_time(time_s * best)} instead of {_time(time_s)}"
    if best > 1:
        ideal = "less than the reference's own bytes and operations would take"
    elif best >= AT_CEILING:
        ideal = "there is next to nothing left to gain"
    kind = "memory-bound" if memory == best else "compute-bound"
    if best < WELL_USED:
        kind = "neither memory- nor compute-bound (latency, launches, or too little parallel work)"
    return f"{kind}: {' and '.join(shares)}; {ideal}"


def _share(amount: float | None, rate: float | None, time_s: float) -> float | None:
    return amount / rate / time_s if amount and rate and time_s > 0 else None


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """Facts of one kernel's similar launches by compiler and profiler; None is unknown.

    `share` is of the call's device time, `us` that time itself, `occupancy` of the warps that a
    multiprocessor can hold. `operand_bytes` counts the tensors of a launch, each once. `limited_by`
    names what keeps the occupancy down (`registers`, `shared memory`, `block size`).
    """

    name: str
    share: float | None = None
    us: float | None = None
    grid: str = ""
    launches: int = 1
    operand_bytes: float | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limited_by: str = ""
    warps: int | None = None
    stages: int | None = None
    is_own: bool | None = None


def kernels(facts: Sequence[KernelFacts], most: int = 6, bytes_per_s: float | None = None) -> str:
    """A line per launch, those with the largest share of the time first; empty without any.

    Args:
        facts: of the kernels of a call; launches that are alike are one.
        most: lines.
        bytes_per_s: the measured rate of a copy on this device.
    """
    ranked = sorted(facts, key=lambda fact: -(fact.share or 0.0))
    lines = [_kernel(fact) for fact in ranked[:most]]
    if len(ranked) > most:
        rest = sum(fact.share or 0.0 for fact in ranked[most:])
        lines.append(f"and {len(ranked) - most} more kernels, {rest:.0%} of the time")
    lines += filter(None, [_traffic(facts, bytes_per_s)])
    return "\n".join(lines)


def _traffic(facts: Sequence[KernelFacts], bytes_per_s: float | None) -> str:
    """The arguments of all launches, intermediates too; empty unless known of most."""
    known = [fact for fact in facts if fact.operand_bytes is not None and fact.us]
    if not known or sum(fact.share or 0.0 for fact in known) < MOSTLY:
        return ""
    moved = sum(fact.operand_bytes or 0.0 for fact in known)
    rate = moved / sum(fact.us or 0.0 for fact in facts) * 1e6
    share = f", {rate / bytes_per_s:.0%} of this device's memory rate" if bytes_per_s else ""
    return f"all launches together: operands of {_size(moved)}, each once, at {_rate(rate)}{share}"


def _size(nbytes: float) -> str:
    unit, name = next(
        (each for each in ((1e9, "GB"), (1e6, "MB")) if nbytes >= each[0]), (1e3, "KB")
    )
    return f"{nbytes / unit:.3g} {name}"


def _rate(bytes_per_s: float) -> str:
    return (
        f"{bytes_per_s / 1e9:.0f} GB/s" if bytes_per_s >= 1e11 else f"{bytes_per_s / 1e9:.3g} GB/s"
    )


def _kernel(fact: KernelFacts) -> str:
    return f"kernel '{plain(fact.name, 60)}': {', '.join(_known(fact)) or 'nothing known'}"


def _known(fact: KernelFacts) -> Iterator[str]:
    if fact.grid:
        yield f"grid {fact.grid}"
    if fact.share is not None:
        yield f"{fact.share:.0%} of the time"
    if fact.us is not None:
        times = f" in {fact.launches} launches" if fact.launches > 1 else ""
        yield f"{_time(fact.us / 1e6)}{times}"
    if fact.is_own is False:
        yield "not one of the candidate's own"
    if fact.operand_bytes and fact.us:
        yield (
            f"operands of {_size(fact.operand_bytes)} ({_rate(fact.operand_bytes / fact.us * 1e6)})"
        )
    yield from _compiled(fact)


def _compiled(fact: KernelFacts) -> Iterator[str]:
    """The compiler's figures, and their meaning for the device."""
    if fact.registers is not None:
        yield f"{fact.registers} registers"
    if fact.spilled_bytes:
        yield f"{fact.spilled_bytes} bytes spilled per thread"
    if fact.shared_bytes is not None:
        yield f"{fact.shared_bytes} bytes of shared memory"
    if fact.occupancy is not None:
        why = f", limited by {fact.limited_by}" if fact.limited_by else ""
        yield f"occupancy {fact.occupancy:.0%}{why}"
    if fact.warps is not None:
        yield f"{fact.warps} warps"
    if fact.stages is not None:
        yield f"{fact.stages} stages"


def compose(parts: Iterable[str], limit: int = MAX_CHARS) -> str:
    """Parts, the most important first, as one text; whole lines only of the last that fits."""
    text = "\n".join(part.strip("\n") for part in parts if part.strip())
    if len(text) <= limit:
        return text
    return text[: limit - len(_CUT)].rpartition("\n")[0] + _CUT
