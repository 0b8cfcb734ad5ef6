"""Seeing the operations of ATen that torch runs."""

from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """Inside, every operation goes through `run`, whose answer is its outcome."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch._dynamo, which takes 1.4 s

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The replacement of the result of `operation(*arguments, **options)`."""
        raise NotImplementedError
