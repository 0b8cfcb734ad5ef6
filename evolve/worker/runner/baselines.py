"""The reference run in other ways than torch's defaults, to be measured against.

`eager` is the reference as it is: TF32 on for cuDNN, off for matrix products. The others have the
same source and weights, in processes of their own. They are trusted, so their outputs are not
judged: `eager_tf32` may well be less exact than a task allows its candidates to be.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from evolve.core.errors import UsageError
from evolve.languages.builds import kept_folder

_ARITHMETIC = {"eager_ieee": False, "eager_tf32": True}
_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
_OF_INDUCTOR = {
    "compile_threads": 1,  # in this process, which may start few
    # In a folder of its own, every process would compile headers anew, for seconds.
    "cpp_cache_precompile_headers": False,
    # Kernels bundled with the graph remember the folder they were built in, which is gone by now.
    "bundle_triton_into_fx_graph_cache": False,
}
_MAX_VARIANTS = 256  # cases of a task share the code of `forward`


def require_baseline(name: str, place: torch.device) -> None:
    """Raises UsageError if the baseline makes no sense on the device."""
    if place.type == "cpu" and name in _ARITHMETIC:
        raise UsageError(
            f"baseline {name}: on the CPU there is no TF32, and it is the same as eager. "
            "Use eager, compile or compile_max_autotune."
        )


# --- the runner's side --------------------------------------------------------------------------


def prepare(build: str | None, may_build: bool) -> None:
    """Have torch's compiled code go to the folder `build`, or come from a private copy of it."""
    for variable, name in _CACHES.items():
        os.environ[variable] = kept_folder(name, build, may_build)


def run_as(name: str, make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Models as the baseline runs them; settings of the process are changed for good."""
    if name in _ARITHMETIC:
        torch.backends.cuda.matmul.allow_tf32 = _ARITHMETIC[name]
        torch.backends.cudnn.allow_tf32 = _ARITHMETIC[name]
        return make
    from torch._dynamo import config  # seconds to import, where the zygote has not
    from torch._inductor import config as inductor

    config.recompile_limit = _MAX_VARIANTS
    for setting, value in _OF_INDUCTOR.items():
        if hasattr(inductor, setting):  # not in all versions
            setattr(inductor, setting, value)
    # The mode with CUDA graphs would hand out the same memory in every call.
    mode = "default" if name == "compile" else "max-autotune-no-cudagraphs"

    def compiled(*about: Any) -> nn.Module:
        model = make(*about)
        model.compile(mode=mode, dynamic=False)
        return model

    return compiled
