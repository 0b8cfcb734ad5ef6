"""Programs with kernels of ours in the place of a vendor's, run beside torch in another process.

As a script: reads cases (of `templates_cases`, as JSON), and answers how far each output is from
that of torch, relative to the largest value of the latter. A case may have a task instead, with a
reference. The argument is the device.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tests.operators import cuda_emulation, interpreter, tilelang_emulation
from tests.operators.differences import differences_by
from tests.operators.emulated import EMULATED
from tests.operators.inductor_running import INTERPRETED, apart, flat, imported
from tests.operators.output_code import instance

_MAX_ELEMENTS = 2**24


def answers(
    cases: Sequence[Mapping[str, Any]], device: str, **environment: str
) -> dict[str, float]:
    """The differences by the names of the cases."""
    whole = json.dumps([{**each, "source": each["source"]} for each in cases])
    return differences_by("templates_running", device, given=whole, **environment)


def interpreted(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cases with tunables set to what Triton's interpreter is quick with."""
    return [
        {**each, "source": instance(each["source"], each["name"], INTERPRETED)} for each in cases
    ]


def made(size: int, view: Sequence[Sequence[int]], device: str) -> torch.Tensor:
    """Random numbers by a view of so many elements, of many only those that it shows."""
    if size <= _MAX_ELEMENTS:
        return torch.randn(size, device=device).as_strided(*view)
    with tempfile.NamedTemporaryFile() as file:
        whole = (
            torch.from_file(file.name, shared=True, size=size)
            if device == "cpu"
            else torch.empty(size, device=device)
        )
    shape, _ = view
    return whole.as_strided(*view).copy_(torch.randn(shape, device=device))


def like(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in another type, as it lies."""
    if dtype == tensor.dtype:
        return tensor
    other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=tensor.device)
    return other.copy_(tensor)


def beside_task(case: Mapping[str, Any]) -> float:
    """How far a program is from its task's reference in fp64, with the same weights; on the CPU.

    In fp32 the first call of torch in a process was off by 5e-5 in one of ten, at a tanh.
    """
    task: dict[str, Any] = {}
    exec(case["task"], task)
    model, inputs = task["Model"](*task["get_init_inputs"]()).eval(), task["get_inputs"]()
    program = imported(case["source"]).ModelNew(*task["get_init_inputs"]()).eval()
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        found = flat(program(*inputs))
        truth = flat(model.double()(*(each.double() for each in inputs)))
        return max(apart(t.float(), f) for t, f in zip(truth, found, strict=True))


def main(device: str) -> None:
    torch.backends.cudnn.allow_tf32 = False
    language = os.environ.get("EMULATES", "")
    if language == "nvrtc":
        torch.cuda._compile_kernel = cuda_emulation.Kernel
    elif language:
        EMULATED[language].prepare()
    elif device == "cpu":
        interpreter.prepare()
    for case in json.load(sys.stdin):
        torch.manual_seed(0)
        if "task" in case:
            print(json.dumps([case["name"], beside_task(case)]), flush=True)
            continue
        views = case["tensors"]
        dtypes = [getattr(torch, name.removeprefix("torch.")) for name in case["dtypes"]]
        tensors = [
            like(made(size, view, device), dtype)
            for (size, view), dtype in zip(views, dtypes, strict=True)
        ]
        names = dict(zip(case["names"], tensors, strict=True))
        with torch.no_grad():
            source = case["source"]
            if language == "tilelang":
                source = tilelang_emulation.adapted(source)
            module = imported(source, is_kept=device == "cuda")
            found = module.ModelNew()(*tensors)
            expected = eval(case["reference"], {"torch": torch, **names})
        print(json.dumps([case["name"], apart(expected, found)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
