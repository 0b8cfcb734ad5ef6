"""Run as a script on a GPU: what structural rewrites do to the times of compiler seeds.

    python -m tests.benchmarks.bench_structural [--instances 12]

For each reference: the seed and every rewrite of one of its kernels, each at the best of so many
random instances of its tunables (the same number for all), timed by `triton.testing.do_bench`. Not
the judge's times: a first look at which rewrite is worth its evaluations where.
"""

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import triton.testing

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from evolve.worker.build.inductor import compile_model, settings
from operators.local.inductor import convert
from operators.local.structure import REWRITES, NotApplicable, TritonProgram
from tests.gpu.test_compiler_seeds import Reference, _imported

REFERENCES = {
    "softmax 16384 x 4096": Reference((), "F.softmax(x, dim=1)", ("torch.randn(16384, 4096)",)),
    "softmax 4096 x 20000": Reference((), "F.softmax(x, dim=1)", ("torch.randn(4096, 20000)",)),
    "layernorm 8192 x 8192": Reference(
        ("ln = nn.LayerNorm(8192)",), "self.ln(x)", ("torch.randn(8192, 8192)",)
    ),
    "rmsnorm 8192 x 16384": Reference(
        (), "x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5)", ("torch.randn(8192, 16384)",)
    ),
    "gelu 8192 x 8192": Reference((), "F.gelu(x)", ("torch.randn(8192, 8192)",)),
    "row sums 65536 x 2048": Reference((), "(x * x).sum(1)", ("torch.randn(65536, 2048)",)),
}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--instances", type=int, default=12)
    instances = arguments.parse_args().instances
    for name, reference in REFERENCES.items():
        namespace = {}
        exec(reference.task, namespace)
        with torch.device("cuda"):
            model = namespace["Model"]().eval()
            inputs = [eval(text, {"torch": torch}) for text in reference.inputs]
        eager = timed(model, inputs)
        case = replace(compile_model(model, inputs, settings("default")), name="main")
        source = convert(reference.task, name, Compiled("default", torch.__version__, (case,)))
        print(f"{name}: eager {eager:.3f} ms", flush=True)
        for what, text in programs(source):
            best = min(found for found in times(text, model, inputs, instances))
            print(f"  {best:8.3f} ms  {eager / best:5.2f}x  {what}", flush=True)


def programs(source: str):
    """The seed, and what each rewrite makes of each of its kernels."""
    yield "seed", source
    program = TritonProgram(source)
    for rewrite, function in REWRITES.items():
        for kernel in program.kernels:
            try:
                yield f"{rewrite} of {kernel}", function(program, kernel)
            except NotApplicable as reason:
                print(f"             -        {rewrite} of {kernel}: {reason}")


def times(source: str, model, inputs, instances: int):
    """Milliseconds of the program as written, and of random instances that compile."""
    space, rng = tunables.parse(source), random.Random(0)
    for number in range(instances):
        chosen = space.sample(rng) if number else space.defaults
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.py"
            path.write_text(tunables.render(source, chosen))
            program = _imported(path).ModelNew().eval().cuda()
            program.load_state_dict(model.state_dict())
            try:
                yield timed(program, inputs)
            except triton.runtime.errors.OutOfResources:
                continue


def timed(module, inputs) -> float:
    with torch.no_grad():
        return triton.testing.do_bench(lambda: module(*inputs), warmup=5, rep=25)


if __name__ == "__main__":
    main()
