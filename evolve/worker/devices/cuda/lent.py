"""Memory of the judge that one runner uses, by the addresses that the runner has for it."""

from dataclasses import dataclass, field

import torch

from evolve.worker.devices.cuda.arenas import Arena
from evolve.worker.ipc.signals import Signals


@dataclass(slots=True)
class Lent:
    """The judge's memory that one runner uses.

    Attributes:
        pool: memory of its tensors.
        base: where it says that it maps the pool.
        claimed: where it says that it maps its inputs.
        signals: the page that both see.
        inputs: memory that inputs are copied to; None before the first.
        guarded: bytes of inputs that have a guard behind them; 0 before the first.
        former: arenas that were too small, which it may still have mapped.
        layouts: trees of inputs that it has made tensors of, with their numbers.
        recorded: the case and the trees of its recording.
        warmed: cases that it has run, with the calls of a block.
        is_timed: whether it is kept to the core of those that are timed.
    """

    pool: Arena
    base: int
    signals: Signals
    inputs: Arena | None = None
    claimed: int = 0
    guarded: int = 0
    former: list[Arena] = field(default_factory=list)
    layouts: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    recorded: tuple[int, tuple[bytes, ...]] | None = None
    warmed: set[tuple[int, int]] = field(default_factory=set)
    is_timed: bool = False

    def output_at(self, address: int, size: int, may_be_input: bool) -> torch.Tensor:
        """So many bytes at an address of the runner's; OSError if it has none there."""
        places = [(self.base, self.pool)]
        if may_be_input and self.inputs is not None:
            places.append((self.claimed, self.inputs))
        for begin, arena in places:
            start = address - begin
            if 0 <= start <= start + size <= arena.size:
                return arena.memory[start : start + size]
        raise OSError("not memory that torch has allocated in the process")
