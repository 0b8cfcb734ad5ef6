"""Warm tasks: inputs, references and pools that stay in the judge from candidate to candidate.

Everything here is secret: seeds are drawn from the system once per task and session, and neither
they nor anything expected ever enters a runner.
"""

import itertools
import math
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.correctness.cases import LoadedCase, LoadedTask, load_task
from evolve.worker.correctness.non_finite import FAMILY, expected_pattern, with_non_finite
from evolve.worker.correctness.oracle import Expected
from evolve.worker.correctness.output_sizes import extent_of
from evolve.worker.correctness.reference_runs import copied, evaluate_reference
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Layout
from evolve.worker.ipc.pytree import bytes_of, map_tensors, tensors_of
from evolve.worker.ipc.tensor_buffer import Outline, Packed, TensorBuffer
from evolve.worker.reference.conditions import Conditions
from evolve.worker.reference.task_module import task_lock, task_values
from evolve.worker.session.cache import Made, Store
from evolve.worker.session.plan import Plan, Purpose

_SAMPLES = 2  # outputs of a timed block that are looked at
_OTHER_BLOCKS = 2  # with calls of other families among the task's own
_OTHER_CALLS = 4
_DRAWN_S = 0.1  # in each round, to compute the expected output of a call drawn for it
# Numbers of the task's own inputs for probes: no check uses them, so they are fresh.
TRAPPED, STUBBED, OBSERVED = 100, 101, 102
_KEPT_PER_OUTPUT = 4  # times its bytes: the reference's outcome, fp64 truth, and some


@dataclass(frozen=True, eq=False, slots=True)
class Check:
    """One hidden set of inputs, the first of a buffer, with its expected output."""

    inputs: TensorBuffer
    expected: Expected

    def tree(self) -> list[Any]:
        """The inputs as tensors; views of memory that is not to be written to."""
        return list(self.inputs.tree())


def _made_bytes(tensor: torch.Tensor) -> int:
    """Of a weight as it is made: in float32 at least, and cast afterwards."""
    return tensor.numel() * max(tensor.itemsize, torch.float32.itemsize)


class PreparedCase:
    """One case of a warm task."""

    def __init__(
        self,
        index: int,
        case: LoadedCase,
        spare: LoadedCase | None,
        device: Device,
        store: Store,
        key: tuple[str, str],
    ) -> None:
        self.index = index
        self._device = device
        self.case = case
        self._store = store
        self._secret = secrets.randbits(62)
        self._key = (*key, index, self._secret)  # a task that comes back has other weights
        with task_lock:
            self.effects = case.effects
            self.model_seed = self._seed("model")
            self._model = case.model(self.model_seed)
            arguments = {
                "init": case.init_inputs(self.model_seed),
                "state": dict(self._model.state_dict()),
            }
            self.arguments = device.make_buffer([arguments])
            self.made_bytes = sum(map(_made_bytes, tensors_of(arguments)))
            self.families = case.families()
            first = case.inputs(self._seed("size"))
            packed = Packed([first])
            self.outline = Outline(packed.trees[0], packed.size)  # of the inputs of one call
            extent = extent_of(spare, self.outline, self.effects) if spare else None
        self._affordable_samples = device.block_pool
        self._expecting_s: float | None = None  # for one set of inputs, the shortest so far
        self._turns = itertools.count()
        self._has_no_pattern = False  # of NaN and infinities that is stable
        self.input_bytes = bytes_of(first)
        self._output_bytes = extent.outputs if extent else None
        self.peak_bytes = extent.peak if extent else 0
        self.least_bytes = 0  # that processes of the judge were found to need

    def _seed(self, *purpose: Any) -> int:
        return hash((self._secret, *purpose)) & ((1 << 62) - 1)

    @property
    def conditions(self) -> Conditions:
        """How all models of it are called."""
        return self.effects.conditions

    def check(self, family: str, number: int) -> Check:
        """The hidden inputs `number` of a family, with the outcome expected."""
        return self._store.get(
            (*self._key, "check", family, number),
            lambda: self._make_check(self._check_buffer(family, number), family),
            lambda check: check.expected.nbytes + check.inputs.size,
            self._bytes_of_check,
        )

    def non_finite(self) -> Check | None:
        """Hidden inputs with NaN and infinities, and the pattern expected; None if none is stable.

        References with effects are left out, for a NaN in a state stays there, and tasks with a
        check of their own, which may allow any.
        """
        if self.effects.any or self.case.check is not None or self._has_no_pattern:
            return None
        found = self._store.get(
            (*self._key, "check", FAMILY),
            self._make_non_finite,
            lambda check: check.expected.nbytes + check.inputs.size if check else 0,
            self._bytes_of_check,
        )
        self._has_no_pattern = found is None
        return found

    def _make_non_finite(self) -> Check | None:
        seed = self._seed(FAMILY)
        with task_values(self.case.task, "its outcome"), torch.no_grad():
            if (inputs := with_non_finite(self.case.inputs(seed), seed)) is None:
                return None
            buffer = self._device.make_buffer([inputs])
            expected = expected_pattern(self.case, copied(self._model), list(buffer.tree()))
        return Check(buffer, expected) if expected else None

    def inputs(self, family: str, number: int) -> TensorBuffer:
        """Those of `check` by themselves, for which nothing has to be worked out."""
        return self._store.made(partial(self._check_buffer, family, number))

    def run_under(self, mode: AbstractContextManager[object]) -> None:
        """One forward of the reference in a mode of torch, whose outcome is not used."""
        inputs = self.inputs("task", 0)

        def run() -> None:
            with mode:
                evaluate_reference(self.case.task, copied(self._model), list(inputs.tree()))

        self._store.made(run)

    @property
    def _bytes_of_check(self) -> int:
        """As far as is known: outputs are counted once they have been seen."""
        return self.input_bytes + _KEPT_PER_OUTPUT * (self._output_bytes or 0)

    @property
    def output_bytes(self) -> int:
        """The reference's output; if only a call can tell, the first request makes it."""
        self.measure()
        assert self._output_bytes is not None
        return self._output_bytes

    def measure(self) -> None:
        """Make that call, unless it is known."""
        if self._output_bytes is None:
            reference = self.check("task", 0).expected.reference
            self._output_bytes = sum(tensor.nbytes for tensor in reference)

    @property
    def known_bytes(self) -> int:
        """The larger of inputs and outputs; of the inputs as long as outputs are not known."""
        return max(self.input_bytes, self._output_bytes or 0)

    @property
    def is_measured(self) -> bool:
        """Whether `output_bytes` are known."""
        return self._output_bytes is not None

    def _check_buffer(self, family: str, number: int) -> TensorBuffer:
        with task_values(self.case.task, "its inputs"):
            return self._device.make_buffer([self.case.inputs(self._seed(family, number), family)])

    def _make_check(self, buffer: TensorBuffer, family: str = "task") -> Check:
        start = time.perf_counter()
        with task_values(self.case.task, "its outcome"):
            expected = self.case.expected(self._model, list(buffer.tree()), family)
        made = self._store.made
        later = replace(
            expected, widen=partial(made, expected.widen), loosen=partial(made, expected.loosen)
        )
        check = Check(buffer, later)
        seconds = time.perf_counter() - start
        self._expecting_s = min(self._expecting_s or seconds, seconds)
        return check

    def block(self, number: int, calls: int) -> TensorBuffer:
        """Inputs of a timed block, one set for each of its calls; -1 is for warming up.

        Those of large inputs are passing: kept, they would drive out things made more slowly.
        Both sides of a comparison are timed on a block one after the other, and so find it.
        """
        make = partial(self._make_block, number, calls)
        size = self.input_bytes * calls
        return self._store.passing(
            self._block_key(number, calls), make, lambda buffer: buffer.size, size
        )

    def _block_key(self, number: int, calls: int) -> tuple[Any, ...]:
        return (*self._key, "block", number, calls)

    def _make_block(self, number: int, calls: int) -> TensorBuffer:
        return self._device.make_buffer(self._sets(number, calls))

    def _sets(self, number: int, calls: int) -> list[list[Any]]:
        others = self._others(number, calls)
        if len(others) == calls:  # none of the task's own, which may take gigabytes
            sets: list[list[Any]] = [[]] * calls
        else:
            sets = self.case.input_sets(self._seed("block", number), calls)
        for at, family in others.items():
            sets[at] = self.case.inputs(self._seed("other", number, at), family)
        return sets

    @property
    def single(self) -> int:
        """Number of the block that is there to be run with one call."""
        return self._device.block_pool + _OTHER_BLOCKS

    @property
    def sampled_blocks(self) -> range:
        """Numbers of blocks for stack_samples at a process: it could tell those that it has met."""
        return range(self.single + 1, self.single + 1 + self._device.stack_samples)

    def other_block(self) -> int | None:
        """A block in which secret calls are of other families; such blocks take turns.

        To be judged and not scored: an outcome that is right only for the task's own values shows,
        even if the candidate recognises timing. None if no other family applies.
        """
        if len(self.families) < 2:
            return None
        return self._device.block_pool + next(self._turns) % _OTHER_BLOCKS

    def late_block(self, calls: int, rng: random.Random) -> int:
        """A block in which a secret call gets its inputs late: one that is judged."""
        pool = range(self._device.block_pool)
        return rng.choice([number for number in pool if self.usually_judged(number, calls)])

    def late_calls(self, number: int, calls: int) -> tuple[int, ...]:
        """The calls of a block that get their inputs late: one that is looked at, no first one."""
        sampled = self.usually_sampled(number, calls)
        return next(((call,) for call in sampled if call), ())

    @property
    def decoys(self) -> int:
        """Number of the block whose inputs lie where others are to come, and nowhere else."""
        return self.sampled_blocks.stop

    def _others(self, number: int, calls: int) -> dict[int, str]:
        """The calls of a block that are of another family, with its name."""
        turn = number - self._device.block_pool
        if not 0 <= turn < _OTHER_BLOCKS:
            return {}
        draws = random.Random(self._seed("families", calls))
        families = [family for family in self.families if family != "task"]
        draws.shuffle(families)
        count = min(_OTHER_CALLS if self._can_afford_all else 1, calls, len(families))
        chosen = (families * _OTHER_BLOCKS)[turn * count : (turn + 1) * count]
        places = random.Random(self._seed("places", number, calls)).sample(range(calls), count)
        return dict(zip(sorted(places), chosen, strict=True))

    @property
    def _can_afford_all(self) -> bool:
        return self._affordable_samples == self._device.block_pool

    def usually_sampled(self, number: int, calls: int) -> tuple[int, ...]:
        """The calls of a block whose outputs are looked at, in no order: the first may be judged.

        Secret, and the same for every candidate of the session: no process lives long enough to
        learn them, and the expected outputs are computed once. Many candidates together may learn
        them from their verdicts: so each round judges a call besides that is drawn for it
        (`draw_call`).
        """
        if others := self._others(number, calls):
            return tuple(others)
        draws = random.Random(self._seed("sampled", number, calls))
        return tuple(draws.sample(range(calls), min(_SAMPLES, calls)))

    def usually_judged(self, number: int, calls: int) -> tuple[int, ...]:
        """Those of the calls looked at that are judged: one of each block that can be afforded.

        The expected outputs have to be computed, in fp64 too, and kept, or each candidate pays for
        it again: if that takes too long, or they are too large, two are judged in spite of it.
        """
        if number in self.sampled_blocks or number == self.decoys:
            return ()
        if number >= self._device.block_pool:
            return self.usually_sampled(number, calls)
        pool = self._device.block_pool
        blocks = random.Random(self._seed("judged")).sample(range(pool), self._affordable_samples)
        return self.usually_sampled(number, calls)[:1] if max(number, 0) in blocks else ()

    def draw_call(
        self, numbers: Sequence[int], calls: int, rng: random.Random
    ) -> tuple[int, int] | None:
        """One of these blocks and a call of it, to be judged in a round.

        Its expectation has to be worked out for that round alone. If it takes long, in
        so many of the rounds that they pay `_DRAWN_S` each in the mean; None in the others.
        """
        if rng.random() * (self._expecting_s or 0.0) > _DRAWN_S:
            return None
        return rng.choice(numbers), rng.randrange(calls)

    def draw_blocks(self, count: int, calls: int, rng: random.Random) -> list[int]:
        """Numbers of blocks for a round, one of which is judged."""
        pool = range(self._device.block_pool)
        numbers = rng.sample(pool, count)
        judged = [number for number in pool if self.usually_judged(number, calls)]
        if not set(judged).intersection(numbers):
            numbers[rng.randrange(count)] = rng.choice(judged)
        return numbers

    def block_check(self, number: int, at: int, calls: int) -> Check:
        """Call `at` of a block, with the outcome expected; not kept if it was drawn for a round."""
        return self._store.get(
            (*self._key, "sample", number, at, calls),
            lambda: self._make_check(
                self._one_call(number, at, calls), self._others(number, calls).get(at, "task")
            ),
            lambda check: check.expected.nbytes + check.inputs.size,
            self._bytes_of_check,
            keep=at in self.usually_sampled(number, calls),
        )

    def _one_call(self, number: int, at: int, calls: int) -> TensorBuffer:
        """A copy, or the block if it has no other call: one of large inputs does not stay."""
        if calls == 1:
            return self.block(number, calls)
        is_there = self._store.holds(self._block_key(number, calls))
        # All calls are drawn, as for the block: a later draw may write to what an earlier one gave.
        inputs = self.block(number, calls).tree(at) if is_there else self._sets(number, calls)[at]
        return self._device.make_buffer([map_tensors(torch.Tensor.clone, inputs)])

    def most_calls(self, output_bytes: int, block_bytes: int, spare_bytes: int) -> int:
        """Calls in a block that the memory allows: outputs of all of them are alive together.

        Args:
            output_bytes: Of one call.
            block_bytes: For the inputs of all, and for the outputs.
            spare_bytes: A process's memory besides `working_bytes`, which are for one call.
        """
        by_blocks = block_bytes // max(1, self.input_bytes, output_bytes)
        return max(1, min(by_blocks, 1 + spare_bytes // max(1, output_bytes)))

    def calls(self, seconds_per_call: float, output_bytes: int, spare_bytes: int) -> int:
        """Calls in a block: about as long as the device wants it, if the memory is there.

        Args:
            seconds_per_call: Of the reference.
            output_bytes: See `most_calls`.
            spare_bytes: See `most_calls`.
        """
        kept = max(1, self.input_bytes + _KEPT_PER_OUTPUT * output_bytes)
        fitting = self._device.warm_bytes // 4 // kept
        quick = int(self._device.judged_s / self._expecting_s) if self._expecting_s else fitting
        self._affordable_samples = max(2, min(fitting, quick, self._device.block_pool))
        fewest, most = self._device.calls
        wanted = math.ceil(self._device.block_s / max(seconds_per_call, 1e-6))
        affordable = self.most_calls(output_bytes, self._device.block_bytes, spare_bytes)
        return usual_number(min(max(wanted, fewest), affordable, most))

    def prepare_blocks(self, calls: int) -> None:
        """Make the blocks that there is room to keep until they are timed, and no others."""
        pool = self._device.block_pool + (_OTHER_BLOCKS if len(self.families) > 1 else 0)
        for number in (-1, *range(pool), *self.sampled_blocks):
            self.block(number, calls)
            if not self._store.keeps(self._block_key(number, calls)):
                return


class PreparedTask:
    """A loaded task with its cases, for one purpose (`search` or `verify` have other secrets)."""

    def __init__(
        self, task: Task, loaded: LoadedTask, device: Device, store: Store, purpose: str
    ) -> None:
        self.task = task
        self.loaded = loaded
        self.token = secrets.token_hex(8)  # its own: loaded again, a task has other secrets
        key = (task.revision, purpose)
        # For `extent_of`, which imports for seconds; a device without a room asks for no sizes
        # before a call has shown them.
        spares: Iterable[LoadedCase | None] = [None] * len(loaded.cases)
        if device.room:
            spares = load_task(task, device.place).cases
        self.cases = [
            PreparedCase(number, case, spare, device, store, key)
            for number, (case, spare) in enumerate(zip(loaded.cases, spares, strict=True))
        ]
        if not self.timed:
            raise UsageError(f"task {task.name}: no case is timed. Set timed on at least one case.")
        # By case, measured once: seconds of one call of the reference, calls per timed block.
        self.reference_s: dict[int, float] = {}
        self.calls: dict[int, int] = {}
        self.measuring = threading.Lock()
        self.has_fitted = False  # whether the device had memory for all that a candidate is asked
        # By the case's name: where the reference's outputs lie relative to their address.
        self.layouts: dict[str, Layout] = {}

    @property
    def is_measured(self) -> bool:
        """Whether the size of its outputs is known."""
        return all(case.is_measured for case in self.cases)

    @property
    def smallest(self) -> PreparedCase:
        return min(self.cases, key=lambda case: case.input_bytes)

    @property
    def timed(self) -> list[PreparedCase]:
        return [case for case in self.cases if case.case.timed]


class PreparedTasks:
    """The tasks that a judge knows, the last few of them warm."""

    def __init__(self, device: Device, tasks: int = 4) -> None:
        self._device = device
        self._store = Store(device.warm_bytes, device.release)
        self._tasks: OrderedDict[tuple[str, str], PreparedTask] = OrderedDict()
        self._limit = tasks
        self._lock = threading.Lock()

    def get(self, task: Task, purpose: Purpose = "search") -> PreparedTask:
        """Load the task or take it from the last time.

        Raises:
            UsageError: the task's file cannot be used.
        """
        key = (task.revision, purpose)
        if (known := self._known(key)) is not None:
            return known
        with task_lock:
            if (known := self._known(key)) is not None:  # another thread has loaded it meanwhile
                return known
            with task_values(task.name, "its values"):
                made = self._store.made(lambda: self._loaded(task, purpose))
            with self._lock:
                self._tasks[key] = made
                while len(self._tasks) > self._limit:
                    self._tasks.popitem(last=False)
        return made

    def _loaded(self, task: Task, purpose: str) -> PreparedTask:
        """With the facts known from another purpose: families take seconds to find out."""
        with self._lock:
            warm = [one for (name, _), one in self._tasks.items() if name == task.revision]
        loaded = warm[0].loaded if warm else load_task(task, self._device.place)
        return PreparedTask(task, loaded, self._device, self._store, purpose)

    def made(self, make: Callable[[], Made]) -> Made:
        """The result of `make`, if necessary by evicting warm tasks from memory."""
        return self._store.made(make)

    def let_go(self) -> None:
        """Of all inputs and outcomes; the tasks stay."""
        self._store.let_go()

    def _known(self, key: tuple[str, str]) -> PreparedTask | None:
        with self._lock:
            if key in self._tasks:
                self._tasks.move_to_end(key)
            return self._tasks.get(key)


def usual_number(calls: int) -> int:
    """Of few, the next one down: so that blocks that are there already are met again."""
    power = 1 << (calls.bit_length() - 1)
    return power + power // 2 if calls >= power + power // 2 else power


def inputs_to_check(case: PreparedCase, plan: Plan) -> list[tuple[str, int]]:
    """Hidden inputs to check a candidate on: several of the task's own, some of each family."""
    checks = [("task", number) for number in range(plan.own_inputs)]
    others = [family for family in case.families if family != "task"]
    return checks + [(f, n) for f in others for n in range(plan.family_inputs)]
