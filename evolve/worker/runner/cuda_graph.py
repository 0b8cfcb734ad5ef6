"""Calls of a model recorded as one CUDA graph, in a runner.

Launched together, no call waits for the host. Their inputs are where the judge copies fresh values
to.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch


class Recording:
    """A forward for each of some inputs, and its outputs, each in memory of its own.

    Args:
        model: Of the forward.
        calls: The inputs of each call, where fresh values come before the graph is launched.
        lend_pool: Gives memory for allocations of the calls; no other thread uses it meanwhile.

    Raises:
        RuntimeError: a call cannot be recorded, since it waits for the device. Kernels that it
            launches on the legacy default stream is left out without an error.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        calls: Sequence[Sequence[Any]],
        lend_pool: Callable[[], AbstractContextManager[torch.cuda.MemPool]],
    ) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self.outputs: list[Any] = []
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()), lend_pool() as pool:
            # Not torch.cuda.graph: that asks for memory to be given back, which our pool keeps.
            token = cast(Any, pool.id)  # torch has another type for the tokens of its own pools
            self._graph.capture_begin(pool=token, capture_error_mode="thread_local")
            with contextlib.ExitStack() as on_failure:
                on_failure.callback(self._break_off)
                for inputs in calls:
                    self.outputs.append(model(*inputs))
                on_failure.pop_all()
            self._graph.capture_end()

    def _break_off(self) -> None:
        with contextlib.suppress(RuntimeError):  # the first error tells more
            self._graph.capture_end()

    def replay(self) -> None:
        """All calls on the present values of their inputs."""
        self._graph.replay()
