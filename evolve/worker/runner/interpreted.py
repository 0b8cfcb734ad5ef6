"""Triton's interpreter without a GPU: kernels that are tuned by themselves."""

import os
from typing import Any


def take_first_configurations() -> None:
    """Where kernels are interpreted, run one with `@triton.autotune` by its first configuration.

    To choose, Triton would time them on a GPU; their outcomes are the same.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    try:
        from triton.runtime.autotuner import Autotuner
    except ImportError:
        return
    choose = Autotuner.run

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        every = self.configs
        self.configs = every[:1]
        try:
            return choose(self, *arguments, **options)
        finally:
            self.configs = every

    if choose.__name__ == "run" and choose.__module__ == Autotuner.__module__:
        Autotuner.run = run
