"""Calls of a model recorded as one CUDA graph, in a runner.

Launched together, no call waits for the host. What each is given lies at addresses of the
recording's own; fresh values are copied there before the graph is launched, which belongs to the
time that it takes.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from evolve.worker import slab


class Recording:
    """A forward for each of some trees of inputs, and its outputs, each in memory of its own.

    Args:
        model: Whose forward.
        size: Bytes of all inputs.
        trees: Of each call's inputs.
        lend_pool: Gives memory for what the calls allocate, where nobody else allocates meanwhile.

    Raises:
        RuntimeError: a call cannot be recorded, since it waits for the device. What it launches on
            the legacy default stream is left out without an error.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        size: int,
        trees: tuple[bytes, ...],
        lend_pool: Callable[[], AbstractContextManager[torch.cuda.MemPool]],
    ) -> None:
        self._inputs = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._graph = torch.cuda.CUDAGraph()
        self.outputs: list[Any] = []
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()), lend_pool() as pool:
            # Not torch.cuda.graph: that asks for memory to be given back, which our pool keeps.
            token = cast(Any, pool.id)  # torch has another type for the tokens of its own pools
            self._graph.capture_begin(pool=token, capture_error_mode="thread_local")
            with contextlib.ExitStack() as on_failure:
                on_failure.callback(self._break_off)
                for tree in trees:
                    self.outputs.append(model(*slab.unpack(tree, self._inputs)))
                on_failure.pop_all()
            self._graph.capture_end()

    def _break_off(self) -> None:
        with contextlib.suppress(RuntimeError):  # the first error tells more
            self._graph.capture_end()

    def replay(self, fresh: torch.Tensor) -> None:
        """All calls on fresh inputs, which lie in `fresh` as the trees say."""
        self._inputs.copy_(fresh)
        self._graph.replay()
