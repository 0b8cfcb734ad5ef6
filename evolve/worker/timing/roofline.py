"""A device's limits, measured: rates of memory and of arithmetic, and time's floor.

Each rate is measured once in a session, when it is first asked for, as the best of a few runs:
disturbances make a run longer, and a ceiling that is too low would refute honest times. Torch's
rate stands for the device's limit; a kernel may do better (streaming stores), so only the rate of
writing, with a margin, refutes a time.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from evolve.worker.timing.reference_cost import Cost

_COPY, _WRITE, _PRODUCT = "copy", "write", "product"
_REPEATS = 7
_MIN_BYTES = 4 << 20  # moved in one measurement: a small buffer is gone over several times
_MIN_EXPONENT = 16  # power of two of the smallest working set measured
_MAX_EXPONENT = {"cpu": 28}
_MAX_EXPONENT_OF_GPU = 30
# On a CPU a plain store reads its line first; one that streams past the caches does not.
_WRITE_MARGIN = {"cpu": 2.0}
_WRITE_MARGIN_OF_GPU = 1.25
# Roundings of operands that a task's arithmetic allows.
_FASTER = {("fp32", "tf32"): "tf32", ("fp32", "half"): "fp16"}
# With tensor cores: products of parts of the operands that add up to one in fp32.
_IN_PARTS = {"tf32x3": ("tf32", 3), "bf16x3": ("bf16", 3)}
_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32,
           "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The time that the reference's bytes and operations take at the measured rates.

    `seconds` is the longer of the two; `basis` says which (`memory`, or e.g. `bf16 arithmetic`).
    `flops_per_s` is None if nothing is counted or measured.
    """

    seconds: float
    basis: str
    bytes_per_s: float
    flops_per_s: float | None


class Roofline:
    """Rates of one device.

    Args:
        place: the device.
        alone: gives a context in which nothing else works on it; entered only to measure.
    """

    def __init__(
        self, place: torch.device, alone: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._place = place
        self._alone = alone
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int | str], float | None] = {}

    def copy_rate(self, size: int) -> float:
        """Bytes read and written per second by a copy, if `size` bytes are in use."""
        return self._memory_rate(_COPY, size)

    def write_rate(self, size: int) -> float:
        """Bytes per second that nothing can exceed which writes `size` different bytes."""
        return self._memory_rate(_WRITE, size) * _WRITE_MARGIN.get(
            self._place.type, _WRITE_MARGIN_OF_GPU
        )

    def flop_rate(self, kind: str, accumulation: str = "ieee") -> float | None:
        """Operations per second of a large matrix product; None if the device has none.

        Args:
            kind: of the operands, as in `Cost.flops`.
            accumulation: arithmetic that the task allows.
        """
        return self._fastest(kind, accumulation)[0]

    def _fastest(self, kind: str, accumulation: str) -> tuple[float | None, str]:
        """The best rate that the task allows, and the kind of arithmetic that has it."""
        found = self.product_rates(kind, accumulation)
        return max(((rate, way) for way, rate in found.items()), default=(None, kind))

    def product_rates(self, kind: str, accumulation: str) -> dict[str, float]:
        """Operations per second of products in each arithmetic that a task allows for a kind."""
        allowed = (kind, _FASTER.get((kind, accumulation), kind))
        ways = {each: (each, 1) for each in allowed}
        if kind in ("fp32", "tf32") and self._all([(_PRODUCT, "tf32")]) != [None]:
            if kind == "fp32":
                ways |= _IN_PARTS
            if "tf32" in allowed:  # float16 has as many bits, and a line's powers of two the range
                ways["fp16"] = ("fp16", 1)
        rates = self._all([(_PRODUCT, of) for of, _ in ways.values()])
        return {
            way: rate / parts
            for rate, (way, (_, parts)) in zip(rates, ways.items(), strict=True)
            if rate
        }

    def floor(self, cost: Cost, accumulation: str, calls: int) -> Floor:
        """The time of one call of `cost`, if `calls` with inputs of their own follow another."""
        memory = self.copy_rate(max(1, cost.moved_bytes) * calls)
        rates = {kind: self._fastest(kind, accumulation) for kind in cost.flops}
        known = {kind: rate for kind, (rate, _) in rates.items() if rate}
        computing = sum(cost.flops[kind] / rate for kind, rate in known.items())
        moving = cost.moved_bytes / memory
        kinds = "+".join(sorted({rates[kind][1] for kind in known}))
        return Floor(
            seconds=max(moving, computing),
            basis="memory" if moving >= computing else f"{kinds} arithmetic",
            bytes_per_s=memory,
            flops_per_s=sum(cost.flops[kind] for kind in known) / computing if computing else None,
        )

    def _memory_rate(self, what: str, size: int) -> float:
        """The best rate at this size and larger ones: small ones pay for being started."""
        largest = _MAX_EXPONENT.get(self._place.type, _MAX_EXPONENT_OF_GPU)
        first = min(max(size.bit_length() - 1, _MIN_EXPONENT), largest)
        rates = self._all([(what, power) for power in range(first, largest + 1)])
        return max(filter(None, rates))

    def _all(self, wanted: list[tuple[str, int | str]]) -> list[float | None]:
        """The known rate, measured at first use."""
        with self._lock:
            if lacking := [key for key in wanted if key not in self._known]:
                with self._alone():
                    self._known |= {key: self._measured(*key) for key in lacking}
            return [self._known[key] for key in wanted]

    def _measured(self, what: str, which: int | str) -> float | None:
        if isinstance(which, str):
            return self._measured_flops(which)
        moved = 2 if what == _COPY else 1  # bytes for each of a buffer
        size = (1 << which) // moved
        memory = torch.empty(size, dtype=torch.uint8, device=self._place)
        work = _copier(memory) if what == _COPY else _writer(memory)
        return moved * size / self._seconds(work, times=max(1, _MIN_BYTES >> which))

    def _measured_flops(self, kind: str) -> float | None:
        dtype = _DTYPES.get(kind)
        if dtype is None or (self._place.type == "cpu" and kind in ("tf32", "fp8")):
            return None
        n = self._matrix_size(kind)
        try:
            with _tf32(kind == "tf32"):
                return 2 * n**3 / self._seconds(_product(n, dtype, self._place), 1)
        except (RuntimeError, NotImplementedError):  # no such product on this device
            return None

    def _matrix_size(self, kind: str) -> int:
        if self._place.type == "cpu":
            return 1024 if kind in ("fp32", "fp64") else 256
        return 4096 if kind in ("fp32", "fp64") else 8192

    def _seconds(self, work: Callable[[], object], times: int) -> float:
        """One run of the work, in the best of some series of `times`."""
        work()
        taken = []
        for _ in range(_REPEATS):
            self._wait()
            start = time.perf_counter()
            for _ in range(times):
                work()
            self._wait()
            taken.append((time.perf_counter() - start) / times)
        return min(taken)

    def _wait(self) -> None:
        if self._place.type == "cuda":
            torch.cuda.synchronize()


def _copier(memory: Tensor) -> Callable[[], object]:
    source = torch.ones_like(memory)
    return lambda: memory.copy_(source)


def _writer(memory: Tensor) -> Callable[[], object]:
    words = memory.view(torch.float32)
    return lambda: words.fill_(1.0)


def _product(n: int, dtype: torch.dtype, place: torch.device) -> Callable[[], object]:
    a = torch.randn(n, n, device=place).to(dtype)
    b = torch.randn(n, n, device=place).to(dtype)
    if dtype is not torch.float8_e4m3fn:
        return lambda: a @ b
    one = torch.ones((), device=place)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)


class _tf32:  # noqa: N801 (used like a function)
    """Inside, products of fp32 may be computed in tf32, or not."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def __enter__(self) -> None:
        self._before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = self._allowed

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self._before
