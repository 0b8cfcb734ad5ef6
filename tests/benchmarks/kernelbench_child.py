"""KernelBench's own evaluator in a process: JSON lines in, JSON lines out.

    {"reference": ..., "candidate": ..., "trials": 5, "timings": 100}
    -> {"compiled": ..., "correct": ..., "seconds": ..., "time_ms": ..., "eager_ms": ...}
    {"reference": ..., "timings": 100} -> {"eager_ms": ...}

KERNELBENCH_PATH names the checkout. What its modules import for language models and data sets takes
no part in judging: it stands here as empty modules, and so do two others if they are not there.
"""

import contextlib
import importlib.util
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

_UNUSED = {
    "requests": (),
    "dotenv": ("load_dotenv",),
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "datasets": ("load_dataset",),
}


class _Record:
    """As much of pydantic's `BaseModel` as KernelBench's result needs."""

    def __init__(self, **values: Any) -> None:
        for name in type(self).__annotations__:
            setattr(self, name, values.get(name, getattr(type(self), name)))


def _stand_in(name: str, **attributes: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def _evaluator() -> Any:
    for name, attributes in _UNUSED.items():
        _stand_in(name, **dict.fromkeys(attributes, lambda *_, **__: None))
    if importlib.util.find_spec("pydantic") is None:
        _stand_in("pydantic", BaseModel=_Record)
    if importlib.util.find_spec("tqdm") is None:
        _stand_in("tqdm", tqdm=lambda items, **_: items)
    sys.path.insert(0, str(Path(os.environ["KERNELBENCH_PATH"]).parent / "src"))
    sys.path.insert(0, str(Path(os.environ["KERNELBENCH_PATH"]) / "src"))
    return importlib.import_module("kernelbench.eval")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # KernelBench prints
    evaluator = _evaluator()
    import torch

    torch.zeros(1, device="cuda")
    print(json.dumps({"ready": torch.cuda.get_device_name()}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "candidate" not in asked:
            with contextlib.redirect_stdout(sys.stderr):
                measured = evaluator.timing.measure_ref_program_time(
                    "", asked["reference"], num_trials=asked["timings"]
                )
            print(json.dumps({"eager_ms": (measured or {}).get("mean")}), file=answers, flush=True)
            continue
        start = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            result = evaluator.eval_kernel_against_ref(
                asked["reference"],
                asked["candidate"],
                num_correct_trials=asked["trials"],
                num_perf_trials=asked["timings"],
                measure_performance=True,
                backend="triton",
                device=torch.device("cuda", 0),
            )
        answer = {"seconds": time.monotonic() - start}
        if result is not None:
            answer |= {"compiled": result.compiled, "correct": result.correctness,
                       "time_ms": result.runtime, "eager_ms": result.ref_runtime}  # fmt: skip
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
