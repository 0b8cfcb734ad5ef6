"""A block on the CPU whose calls are given to the process one by one (`turns`).

The outputs of a call are looked at when it is said to be done, before the inputs of the next are
there: those that are judged as a whole, of each other a few bytes at a secret place. Outputs that
arrive later were not done when reported.
"""

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.base import faults
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Layout, fault_of_change, size_in_bytes
from evolve.worker.ipc.memfd import Piece
from evolve.worker.ipc.messages import Done
from evolve.worker.ipc.turns import Turns
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.sandbox import syscalls

_PEEK = 64  # bytes
_CHANGED = (
    "outputs of a timed run changed after they were said to be done (is work left over when "
    "forward returns?)"
)


class Handover:
    """One block, made ready before its clock starts.

    Args:
        device: That it runs on.
        process: That makes the calls.
        page: By which they are given to it.
        pieces: The inputs of each call, and their addresses.
        layout: Of the outputs of one call.
        judged: Calls whose outputs are judged, with the memory that takes them.
        changed: For each call the addresses of the inputs that it may change; the layout then
            ends with these.
    """

    def __init__(
        self,
        device: Device,
        process: RunnerProcess,
        page: Turns,
        pieces: Sequence[Piece],
        layout: Layout,
        judged: Mapping[int, list[Tensor]],
        changed: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self._device, self._process, self._page = device, process, page
        self._pieces, self._judged = pieces, judged
        self._changed = changed or [()] * len(pieces)
        self._width = len(layout) - len(self._changed[0])
        rng = random.Random(secrets.randbits(64))
        self._peeks = [_peek(layout, rng) for _ in pieces]
        self._seen = np.zeros((len(pieces), _PEEK), dtype=np.uint8)

    def run(self, case: int, seconds: float, kind: str = "calls") -> Done:
        """Have the stopped process make the calls (of that kind); returns its report.

        Raises:
            CandidateFault: it fails, or ends before it was given all of them.
        """
        deadline = time.perf_counter() + seconds
        given: list[bool] = []

        def give() -> None:
            given.append(self._give_all(deadline))

        self._page.begin()
        done = self._process.run(case, seconds, kind, resume=True, turns=len(self._pieces),
                                 page=self._page.fd, meanwhile=give)  # fmt: skip
        if not all(given):
            if time.perf_counter() > deadline:
                raise faults.timeout("run", seconds)
            raise CandidateFault(Status.HACK, "a block ended before all of its calls were given")
        return done

    def _give_all(self, deadline: float) -> bool:
        """Whether all were done in that time, and the process had nothing else to say."""
        page, starts = self._page, self._seen.ctypes.data
        is_over = partial(self._is_over, deadline)
        for at, (place, values) in enumerate(self._pieces):
            np.copyto(place, values)
            if not page.give(at + 1, is_over):
                return False
            outputs = (*page.outputs(self._width), *self._changed[at])
            if raw := self._judged.get(at):
                output_snapshot.read_all(self._device, self._process, outputs, raw)
            self._look(at, outputs, starts + at * _PEEK)
        return True

    def _is_over(self, deadline: float) -> bool:
        return self._process.has_word() or time.perf_counter() > deadline

    def _look(self, at: int, outputs: Sequence[int], into: int) -> None:
        output, start, size = self._peeks[at]
        if not size:
            return
        try:
            syscalls.read_memory(self._process.pid, outputs[output] + start, into, size)
        except OSError as error:
            raise CandidateFault(
                Status.WRONG_VALUE, f"an output is not where it is said to be ({error})"
            ) from error

    def require_same(self, done: Done, kept: Sequence[int]) -> None:
        """CandidateFault if outputs have changed since they were reported as done.

        Args:
            done: Of the calls, once the process stands.
            kept: Places of outputs that may lie in memory which all calls share.
        """
        before, width = self._seen.copy(), self._width + len(self._changed[0])
        for at in range(len(self._pieces)):
            outputs = done.addresses[at * width : (at + 1) * width]
            self._look(at, outputs, self._seen.ctypes.data + at * _PEEK)
        for at in np.flatnonzero((before != self._seen).any(axis=1)).tolist():
            raise fault_of_change(done, self._peeks[at][0], width, kept, _CHANGED)


def _peek(layout: Layout, rng: random.Random) -> tuple[int, int, int]:
    """Which output is looked at, from which byte on, and how many."""
    filled = [at for at, of in enumerate(layout) if size_in_bytes(of)]
    if not filled:
        return 0, 0, 0
    output = rng.choice(filled)
    size = size_in_bytes(layout[output])
    length = min(size, _PEEK)
    return output, rng.randrange(size - length + 1), length
