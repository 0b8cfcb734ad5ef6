"""Run as a script: converted programs against their references, under Triton's interpreter.

Arguments are fixtures; a line of JSON for each says how far outputs are apart, relative to the
largest value of the reference.
"""

import atexit
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch

from evolve.core.compiled import Compiled
from operators.local.inductor import convert
from tests.operators import interpreter

INTERPRETED = ("ieee",)
"""What `tl.dot` may make of float32 under the interpreter, of all that programs are offered."""


def main(names: list[str]) -> None:
    interpreter.prepare()
    for name in names:
        print(json.dumps([Path(name).stem, difference(Path(name))]), flush=True)


def difference(path: Path) -> float:
    fixture = json.loads(path.read_text())
    reference = {}
    exec(fixture["task"], reference)
    compiled = Compiled.from_json(fixture["compiled"])
    module = imported(convert(fixture["task"], path.stem, compiled, precisions=INTERPRETED))
    torch.manual_seed(0)
    arguments = reference["get_init_inputs"]()
    model = reference["Model"](*arguments).eval()
    candidate = module.ModelNew(*arguments).eval()
    candidate.load_state_dict(model.state_dict())
    inputs = reference["get_inputs"]()
    with torch.no_grad():
        expected, found = flat(model(*inputs)), flat(candidate(*inputs))
    assert len(expected) == len(found)
    return max(apart(*pair) for pair in zip(expected, found, strict=True))


def imported(source: str, *, is_kept: bool = False):
    """The module; its file stays until the process ends, if compilers read it at first launches."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location("converted", file.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if is_kept:
        atexit.register(Path(file.name).unlink)
    else:
        Path(file.name).unlink()
    return module


def flat(output) -> list[torch.Tensor]:
    if isinstance(output, dict):
        return [output[key] for key in sorted(output)]
    return list(output) if isinstance(output, tuple) else [output]


def apart(expected: torch.Tensor, found: torch.Tensor) -> float:
    assert expected.shape == found.shape
    assert expected.dtype == found.dtype
    finite = expected.isfinite()
    assert not found[~finite].isfinite().any()
    expected, found = expected[finite].double(), found[finite].double()
    span = expected.abs().max().item() or 1.0
    return (expected - found).abs().max().item() / span


if __name__ == "__main__":
    main(sys.argv[1:])
