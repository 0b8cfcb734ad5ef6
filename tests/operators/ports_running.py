"""Run as a script: programs in other languages beside their references.

Arguments are a language, a device, and names of fixtures. On `cpu` kernels in CUDA C++ run as
threads of the CPU, those in Gluon, without their layouts, in Triton's interpreter, and those of
other languages with functions of torch in the place of the language's. A line of JSON for each says
how far outputs are apart, relative to the largest value of the reference.
"""

import json
import re
import sys

import torch

from evolve.core.source import tunables
from tests.operators import cuda_emulation, interpreter, port_cases, tilelang_emulation
from tests.operators.emulated import EMULATED
from tests.operators.inductor_running import apart, flat, imported

_OF_GLUON = {
    r"\n    layout: gl\.constexpr = .*": "",
    r", layout=(gl\.SliceLayout\(\d, layout\)|layout|\w+\.type\.layout)": "",
    r"@gluon\.constexpr_function\n(.*\n)+?\n\n": "",
    r"from triton\.experimental\.gluon import language as gl": "import triton.language as gl",
    r"from triton\.experimental import gluon\n": "",
    r"from triton\.experimental\.gluon\.language\.extra": "from triton.language.extra",
    r"@gluon\.jit": "@triton.jit",
}


def main(language: str, device: str, *names: str) -> None:
    if device == "cpu" and language == "gluon":
        interpreter.prepare()
    if device == "cpu":
        torch.cuda._compile_kernel = cuda_emulation.Kernel
    if device == "cpu" and language in EMULATED:
        EMULATED[language].prepare()
    for name in names:
        source = port_cases.ported(name, language)
        if device == "cpu" and language == "gluon":
            source = without_layouts(source)
        if device == "cpu":
            source = small(source)
        if device == "cpu" and language == "tilelang":
            source = tilelang_emulation.adapted(source)
        print(json.dumps([name, difference(name, source, device)]), flush=True)


def without_layouts(source: str) -> str:
    """A program in Gluon as one in Triton, which knows its layouts by itself."""
    for old, new in _OF_GLUON.items():
        source = re.sub(old, new, source)
    assert "gluon" not in source.partition("import")[2]
    return source


def small(source: str) -> str:
    """With few threads: each is one of the CPU."""
    space = tunables.parse(source)
    few = {each.name: each.choices[0] for each in space if each.name.endswith("NUM_WARPS")}
    return tunables.render(source, few | {n: 2 for n, v in few.items() if v == 1})


def difference(name: str, source: str, device: str) -> float:
    task, _ = port_cases.read(name)
    reference: dict = {}
    exec(task, reference)
    torch.manual_seed(0)
    arguments = reference["get_init_inputs"]()
    model = reference["Model"](*arguments).eval()
    candidate = imported(source).ModelNew(*arguments).eval()
    candidate.load_state_dict(model.state_dict())
    inputs = reference["get_inputs"]()
    with torch.no_grad():
        expected = flat(model(*inputs))
        found = flat(candidate.to(device)(*moved(inputs, device)))
    assert len(expected) == len(found)
    return max(apart(e, f.cpu()) for e, f in zip(expected, found, strict=True))


def moved(value, device: str):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    return type(value)(moved(each, device) for each in value)


if __name__ == "__main__":
    main(*sys.argv[1:])
