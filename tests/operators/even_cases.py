"""Matrix products whose work is cut evenly, of random shapes among random numbers of programs."""

import random

import torch

from operators.local.templates import How
from tests.operators.output_code import matrix
from tests.operators.templates_cases import product


def even_cases(count: int):
    rng = random.Random(0)
    for number in range(count):
        batch, rows, columns = rng.choice((1, 2)), rng.randrange(2, 140), rng.randrange(2, 140)
        depth, programs = rng.randrange(256, 900), rng.randrange(1, 12)
        shape = (batch,) if batch > 1 else ()
        turned = bool(rng.randrange(2))
        a = matrix(*shape, rows, depth, turned=turned)
        b = matrix(*shape, depth, columns, turned=not turned)
        bias = matrix(*shape, 1, columns) if number % 2 else None
        name = f"even {number}: {shape} {rows} x {depth} x {columns} by {programs}"
        yield product(name, a, b, bias, how=How.EVEN, multiprocessors=programs)
    half = matrix(50, 300).to(torch.float16), matrix(300, 40).to(torch.float16)
    yield product("float16: even", *half, how=How.EVEN, multiprocessors=5)


EVEN_CASES = list(even_cases(8))
