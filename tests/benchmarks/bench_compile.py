"""Seconds that compilers of languages take for ported programs, for an H100 that is not there.

    python -m tests.benchmarks.bench_compile [--languages gluon,nvrtc]

Of each language that this interpreter has (TileLang, cuTile and CuTe DSL in interpreters of their
own), for a row softmax, a layer norm and products of 4096 matrices in float32 by parts and in bf16:
seconds of the processors, which depend less on a loaded machine than those of the clock do. Each
instance is compiled in a process of its own with empty caches, imports not counted; the first has
the program's defaults, others have tunables drawn at random.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from evolve.core.source import tunables
from evolve.languages.registry import find_language
from operators.local.ports import PORTS
from tests.benchmarks.conditions import print_conditions
from tests.worker.serving import ROOT

PROGRAMS = {
    "softmax": "softmax",
    "layernorm_looped": "layer norm",
    "float32": "product, fp32",
    "bfloat16": "product, bf16",
}
_SIDE = 4096
_HEAD = "| language | program | processors, s | least to most | clock, s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--languages", default=",".join(PORTS), help="by comma")
    parser.add_argument("--instances", type=int, default=3, help="of each program")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        language, name, number = options.one.split("/")
        print(json.dumps(seconds(language, name, int(number))))
        return
    print_conditions()
    print(f"\n{_HEAD}\n| --- | --- | --- | --- | --- |")
    for language in options.languages.split(","):
        if why := find_language(language).missing_package():
            print(f"{language}: {why}", file=sys.stderr)
            continue
        for name in PROGRAMS:
            print(row(language, name, options.instances), flush=True)


def row(language: str, name: str, instances: int) -> str:
    """Of the table: medians."""
    found = []
    for number in range(instances):
        done = measured(f"{language}/{name}/{number}")
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1][:100]
            return f"| {language} | {PROGRAMS[name]} | failed: {why} |  |  |"
        found.append(json.loads(done.stdout.splitlines()[-1]))
    used, clock = zip(*found, strict=True)
    return (
        f"| {language} | {PROGRAMS[name]} | {statistics.median(used):.2f} "
        f"| {min(used):.2f} to {max(used):.2f} | {statistics.median(clock):.2f} |"
    )


def measured(one: str) -> subprocess.CompletedProcess[str]:
    """An instance, in a process with caches of its own."""
    words = [sys.executable, "-m", "tests.benchmarks.bench_compile", "--one", one]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **variables(folder)}
        return subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )


def variables(folder: str) -> dict[str, str]:
    """Empty caches, and the GPU that compilers cannot ask."""
    return {
        "PYTHONPATH": str(ROOT),
        "TRITON_CACHE_DIR": folder,
        "CUDA_TILE_CACHE_DIR": folder,
        "TILELANG_CACHE_DIR": folder,
        "TILELANG_DEFAULT_TARGET": '{"kind": "cuda", "arch": "sm_90a"}',
        "TILELANG_PRINT_ON_COMPILATION": "0",
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": folder,
    }


def seconds(language: str, name: str, number: int) -> tuple[float, float]:
    """Of the processors and of the clock, for an instance of a program; 0 has its defaults."""
    source, compiling = program(language, name)
    if number:
        space = tunables.parse(source)
        source = tunables.render(source, space.sample(random.Random(f"{name} {number}")))
    ready = compiling(source)
    start_used, start = used()
    kernels = ready()
    assert kernels, f"{language} compiled nothing"
    end_used, end = used()
    return end_used - start_used, end - start


def used() -> tuple[float, float]:
    """Seconds of the processors by this process and by children that have ended; of the clock."""
    times = os.times()
    return sum(times[:4]), time.monotonic()


Ready = Callable[[], Sequence[object]]
"""Compiles a program; gives what became of each kernel."""


def program(language: str, name: str) -> tuple[str, Callable[[str], Ready]]:
    """A program's text, and what compiles instances of it."""
    import torch

    from tests.operators import port_cases
    from tests.operators.output_code import matrix

    if name not in ("float32", "bfloat16"):
        task, _ = port_cases.read(name)
        source = port_cases.ported(name, language)
        return source, lambda text: ready(language, with_arguments(text, task), inputs_of(task))
    kind = getattr(torch, name)
    a, b = matrix(_SIDE, _SIDE).to(kind), matrix(_SIDE, _SIDE).to(kind)
    tiled = name == "bfloat16"
    case = port_cases.product(name, language, a, b, tiled=tiled)
    return case["source"], lambda text: ready(language, text, [a, b])


def inputs_of(task: str) -> list:
    module: dict = {}
    exec(task, module)
    return module["get_inputs"]()


def with_arguments(source: str, task: str) -> str:
    """The program whose `ModelNew` has its task's arguments already."""
    module: dict = {}
    exec(task, module)
    arguments = module["get_init_inputs"]()
    return f"{source}\nProgram = ModelNew\nModelNew = lambda: Program(*{arguments!r}).eval()\n"


def ready(language: str, source: str, inputs: list) -> Ready:
    """What compiles all kernels of a program for these inputs."""
    import torch

    from tests.languages.programs import loaded
    from tests.operators import nvrtc_library, port_gates
    from tests.operators.compiling import compiled, launches

    if language == "gluon":
        on_meta = [each.to("meta") for each in inputs]
        return lambda: [compiled(each) for each in launches(source, on_meta)]
    if language == "nvrtc":
        import pytest

        made = nvrtc_library.use(pytest.MonkeyPatch())
        return lambda: (loaded(source), made)[1]
    on_cpu = [torch.zeros(each.shape, dtype=each.dtype) for each in inputs]
    run = port_gates.forward(source, on_cpu)
    compiler = getattr(port_gates, language)
    return lambda: compiler((lambda: loaded(source)) if language == "cute" else run)


if __name__ == "__main__":
    main()
