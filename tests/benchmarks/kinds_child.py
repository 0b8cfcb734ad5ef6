"""One task of `gpu_kinds`, in a process of its own: its lines, from eager to the last seed."""

import argparse
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_leaves

from evolve.core.compiled import EXACT_CONVOLUTIONS, WHOLE, Compiled
from evolve.core.errors import UsageError
from evolve.core.protocols import Proposal
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.build import inductor
from evolve.worker.evidence.eager_rounding import CONVOLUTIONS, Watch
from evolve.worker.reference.placing import made_on
from operators.local.compiler_seed import CompilerSeed
from operators.local.template_seed import TemplateSeed
from tests.benchmarks import json_lines
from tests.benchmarks.gpu_forks import FAULTS, Compiling, Turns, is_lost
from tests.operators.inductor_running import imported
from tests.operators.proposing import proposals

MEMORY = 3  # exit status: there was not enough beside the others
LOST = 4  # exit status: a program has taken the device with it
_MILLISECONDS = 80.0  # of timing for each program
_VENDORS = re.compile(r"\btorch\.(mm|addmm|bmm|baddbmm|convolution|ops)\b")
_OPERATORS = (CompilerSeed(["default"]), TemplateSeed(["default", "same_layout", WHOLE]))
_VARIANTS = ("default", "same_layout", WHOLE)  # equal code stands for the first
_UNKNOWN = 8 << 30  # bytes, of a task that torch cannot weigh
_MAX_SHARE = 0.8  # of the device, for one task
_SPARE = 2 << 30  # bytes beside what tasks have reserved
_AT_ONCE = 1 << 27  # elements that are compared


class _Compiled(BaseException):
    """What torch.compile makes is there; it is not wanted to run yet."""


@dataclass(frozen=True)
class Attempt:
    """At a task.

    Attributes:
        last: a program for which there is not enough memory is a failure of its own, and not a
            reason to come again.
        skip: kinds of programs that have their lines.
    """

    last: bool = False
    skip: frozenset[str] = frozenset()


def look(
    name: str, answers: Path, turns: Turns, options: argparse.Namespace, attempt: Attempt
) -> None:
    """Notes lines for a task, at the end one that it is done.

    Args:
        name: of the task, as 1/40.
        answers: the file of lines.
        turns: on the device.
        options: of `gpu_kinds`.
        attempt: which this is.
    """

    def say(**about: object) -> None:
        json_lines.add(answers, {"task": name} | about)

    if options.device == "cuda":
        with turns.together():
            torch.cuda.init()  # a failure is not the task's
    try:
        Look(name, say, turns, options, attempt).all()
    except torch.OutOfMemoryError as error:
        say(kind="memory", error=repr(error)[:200])
        if not attempt.last:
            sys.exit(MEMORY)
    say(kind="done")


class Look:
    """At a task: its reference and its inputs on the device, and lines about programs.

    Args: those of `look`; `say` notes a line.
    """

    def __init__(
        self,
        name: str,
        say: Callable[..., None],
        turns: Turns,
        options: argparse.Namespace,
        attempt: Attempt,
    ) -> None:
        self._say, self._turns, self._options, self._this = say, turns, options, attempt
        self._task = find_task(f"kernelbench:{name}", size="gpu")

    @torch.no_grad()
    def all(self) -> None:
        try:
            self._prepare()
            with self._turns.alone():
                self._expected = self._model(*self._inputs)
                self._say(kind="eager", **self._measured(partial(self._model, *self._inputs)))
        except FAULTS as error:
            self._say(kind="eager", error=self._text(error))
            return
        if self._options.compile:
            self._attempt("compile", self._compile)
        for each in self._proposals():
            own = not _VENDORS.search(each.program.source)
            self._attempt(each.note, partial(self._seed, each.program.source), own=own)

    def _prepare(self) -> None:
        self._module: dict[str, Any] = {}
        exec(self._task.source, self._module)
        if self._options.device == "cuda":
            reserve(self._turns, weigh(self._module))
        with self._turns.together():
            self._arguments = self._made(self._module["get_init_inputs"])
            self._model = self._made(lambda: self._module["Model"](*self._arguments).eval())
            self._inputs = self._made(self._module["get_inputs"])

    def _made(self, make: Callable[[], Any]) -> Any:
        torch.manual_seed(0)
        return made_on(torch.device(self._options.device), make, seed=0)

    def _attempt(self, kind: str, make: Callable[[], Callable[[], Any]], **about: object) -> None:
        """A line for a program: made beside others, run alone."""
        if kind in self._this.skip:
            return
        try:
            call = make()
            with self._turns.alone():
                about["off"] = difference(call(), self._expected)
                about |= self._measured(call)
        except FAULTS as error:
            about["error"] = self._text(error)
        self._say(kind=kind, **about)
        if is_lost():
            sys.exit(LOST)

    def _text(self, error: Exception) -> str:
        if isinstance(error, torch.OutOfMemoryError) and not self._this.last:
            raise error
        return repr(error)[:300]

    def _compile(self) -> Callable[[], Any]:
        """The model by torch.compile; what follows a break of its graph waits for a first call."""
        from torch._inductor.output_code import CompiledFxGraph

        def stop(*_: object) -> None:
            raise _Compiled

        call = partial(torch.compile(self._model), *self._inputs)
        with suppress(_Compiled), mock.patch.object(CompiledFxGraph, "__call__", stop):
            call()
        return call

    def _seed(self, source: str) -> Callable[[], Any]:
        new = imported(source).ModelNew
        with self._turns.together():
            candidate = self._made(lambda: new(*self._arguments).eval())
            candidate.load_state_dict(self._model.state_dict())
        with Compiling():  # not by `__call__`, which may record a CUDA graph of what is launched
            candidate.forward(*self._inputs)
        return partial(candidate, *self._inputs)

    def _proposals(self) -> Iterator[Proposal]:
        """Seeds of the compiler and of the template library, in their order."""
        device = self._convolutions()
        if self._options.device == "cuda":
            properties = torch.cuda.get_device_properties(0)
            device["arch"] = f"{properties.major}{properties.minor}"
            device["multiprocessors"] = str(properties.multi_processor_count)
        made = tuple(self._references())
        task = Task(name=self._task.name, source=self._task.source, compiled=made)
        for operator in _OPERATORS:
            taken = Counter[str]()
            for found in proposals(operator, task, **device):
                if isinstance(found, Proposal):
                    variant = found.note.partition(",")[0]
                    taken[variant] += 1
                    if taken[variant] <= self._options.first:
                        yield found

    def _references(self) -> Iterator[Compiled]:
        """What the compiler makes of the reference, by those of the variants that differ."""
        seen = set()
        for variant in _VARIANTS:
            try:
                settings = inductor.settings(variant)
                case = inductor.compile_model(self._model, self._inputs, settings)
            except UsageError:
                continue
            except FAULTS as error:
                self._say(kind=f"variant {variant}", error=self._text(error))
                continue
            if case.code not in seen:
                seen.add(case.code)
                yield Compiled(variant, torch.__version__, (case,))

    def _convolutions(self) -> dict[str, str]:
        """Which of eager's make what of float32, as `operators.template_seed` has to know."""
        with self._turns.together(), Watch() as watch:
            self._model(*self._inputs)
        if not torch.backends.cudnn.allow_tf32 or all(watch.found.values()):
            return {CONVOLUTIONS: "ieee"}
        exact = sorted(key for key, is_exact in watch.found.items() if is_exact)
        return {CONVOLUTIONS: "tf32", EXACT_CONVOLUTIONS: ";".join(exact)}

    def _measured(self, call: Callable[[], object]) -> dict[str, object]:
        """Milliseconds, and the time of kernels where that is wanted."""
        found: dict[str, object] = {"ms": milliseconds(call)}
        return found | ({"kernels": kernels(call)} if self._options.profile else {})


# --- memory ---------------------------------------------------------------------------------------


class _Widest(DispatchMode):
    """The most bytes that one operation has before it and after it."""

    bytes = 0

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        self.bytes = max(self.bytes, weight(arguments, options, outcome))
        return outcome


def weight(*trees: object) -> int:
    """Bytes of the tensors in them, of each storage once."""
    tensors = [leaf for leaf in tree_leaves(trees) if isinstance(leaf, torch.Tensor)]
    storages = {one.untyped_storage()._cdata: one.untyped_storage() for one in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def weigh(module: dict[str, Any]) -> int:
    """About how many bytes of the device a task takes, by tensors that have none."""
    try:
        with torch.no_grad(), torch.device("meta"), _Widest() as widest:
            model = module["Model"](*module["get_init_inputs"]()).eval()
            inputs = module["get_inputs"]()
            widest.bytes = 0
            outcome = model(*inputs)
    except FAULTS:
        return _UNKNOWN
    kept = weight(inputs, outcome) + 2 * weight(list(model.state_dict().values()))
    return kept + widest.bytes * 5 // 4


def reserve(turns: Turns, need: int) -> None:
    """Wait until so much of the device is free, and have this process's allocator keep it."""
    while True:
        with turns.alone():
            free, total = torch.cuda.mem_get_info()
            wanted = min(need, int(_MAX_SHARE * total))
            if free - wanted > _SPARE:
                torch.empty(wanted, dtype=torch.uint8, device="cuda")
                return
        time.sleep(0.5)


# --- on the device --------------------------------------------------------------------------------


def milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls, one event after the other."""
    call()
    return median(call, max(3, min(15, int(_MILLISECONDS / max(median(call, 2), 1e-3)))))


def median(call: Callable[[], object], count: int) -> float:
    """Of the milliseconds of calls; by the host's clock where no GPU is used."""
    if not torch.cuda.is_initialized():
        times = [time.perf_counter()]
        for _ in range(count):
            call()
            times.append(time.perf_counter())
        return statistics.median(1000 * (end - start) for start, end in pairwise(times))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(one.elapsed_time(other) for one, other in pairwise(events))


def kernels(call: Callable[[], object]) -> dict[str, int]:
    """Microseconds by kernel, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    return {event.key[:60]: round(event.self_device_time_total) for event in events[:6]}


def difference(found: Any, expected: Any) -> float:
    """Relative to the largest expected value; of the first tensor of each, part by part."""
    while isinstance(expected, (tuple, list)):
        found, expected = found[0], expected[0]
    assert found.shape == expected.shape, f"{tuple(found.shape)}, not {tuple(expected.shape)}"
    parts = zip(*(each.reshape(-1).split(_AT_ONCE) for each in (found, expected)), strict=True)
    most = [(one.double() - other.double()).abs().max() for one, other in parts]
    largest = max(float(other.abs().max()) for other in expected.reshape(-1).split(_AT_ONCE))
    return float(torch.stack(most).max()) / max(largest, 1e-30)
