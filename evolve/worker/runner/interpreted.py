"""Triton's interpreter: what it cannot do by itself, and need not."""

import os
from typing import Any


def take_first_configurations() -> None:
    """Where kernels are interpreted, run one with `@triton.autotune` by its first configuration.

    To choose, Triton would time them on a GPU; what they compute is the same.
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
