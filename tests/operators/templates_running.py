"""Programs with kernels of ours in the place of a vendor's, run beside torch in another process.

As a script: reads cases (of `templates_cases`, as JSON), and answers how far each output is from
that of torch, relative to the largest value of the latter. A case may have a task instead, with a
reference. The argument is the device.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from triton.language.extra import libdevice

from tests.operators.inductor_running import apart, flat, imported, tanh

ROOT = Path(__file__).parents[2]


def answers(
    cases: Sequence[Mapping[str, Any]], device: str, **environment: str
) -> dict[str, float]:
    """The differences by the names of the cases."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.operators.templates_running", device],
        cwd=ROOT,
        env={**os.environ, **environment},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(map(json.loads, done.stdout.splitlines()))


def beside_task(case: Mapping[str, Any]) -> float:
    """How far a program is from its task's reference, with the same weights; on the CPU."""
    task: dict[str, Any] = {}
    exec(case["task"], task)
    model, inputs = task["Model"](*task["get_init_inputs"]()).eval(), task["get_inputs"]()
    program = imported(case["source"]).ModelNew(*task["get_init_inputs"]()).eval()
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        return max(
            apart(*pair) for pair in zip(flat(model(*inputs)), flat(program(*inputs)), strict=True)
        )


def main(device: str) -> None:
    torch.backends.cudnn.allow_tf32 = False
    if device == "cpu":
        libdevice.tanh = tanh  # NVIDIA's library is no part of the interpreter
    for case in json.load(sys.stdin):
        torch.manual_seed(0)
        if "task" in case:
            print(json.dumps([case["name"], beside_task(case)]), flush=True)
            continue
        views = case["tensors"]
        tensors = [torch.randn(size, device=device).as_strided(*view) for size, view in views]
        names = dict(zip(case["names"], tensors, strict=True))
        with torch.no_grad():
            found = imported(case["source"]).ModelNew()(*tensors)
            expected = eval(case["reference"], {"torch": torch, **names})
        print(json.dumps([case["name"], apart(expected, found)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
