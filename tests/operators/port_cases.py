"""Programs of the compiler in other languages: fixtures, and products of matrices."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from operators.local.inductor import PRECISIONS, convert
from operators.local.ports import PORTS
from operators.local.templates import Products
from operators.local.tuning import fits
from tests.operators.handwritten_code import CASES
from tests.operators.output_code import TASK, Case, compiled, extent, matrix, room

FOLDER = Path(__file__).parent / "inductor_fixtures"
FLOAT = ("torch.float32",)
_INTEGERS = {("cross_entropy", "labels"): "torch.int64"}


def read(name: str) -> tuple[str, Compiled]:
    """A fixture's task and compiled code, with types of arguments, which the files lack."""
    if name in CASES:
        return CASES[name]
    data = json.loads((FOLDER / f"{name}.json").read_text())
    found = Compiled.from_json(data["compiled"])
    cases = []
    for case in found.cases:
        typed = [
            replace(a, dtype=a.dtype or _INTEGERS.get((name, a.source), "torch.float32"))
            for a in case.arguments
        ]
        cases.append(replace(case, arguments=tuple(typed)))
    return data["task"], replace(found, cases=tuple(cases))


def ported(name: str, language: str) -> str:
    """A fixture's program in a language."""
    task, found = read(name)
    port = PORTS[language]
    return convert(
        task, name, found, Products(PRECISIONS, how=port.products), PRECISIONS, port.rewrite
    )


def product(
    name: str,
    language: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    tiled: bool = False,
    stretched: bool = False,
) -> Case:
    """A call of a library for a product, as a program in a language; tensors are on `meta`."""
    function = (
        ("baddbmm" if bias is not None else "bmm")
        if a.dim() == 3
        else ("addmm" if bias is not None else "mm")
    )
    arguments = ({"bias": bias} if bias is not None else {}) | {"a": a, "b": b}
    options = ", alpha=1, beta=1" if bias is not None else ""
    out = torch.empty((*a.shape[:-1], b.shape[-1]), device="meta", dtype=a.dtype)
    lines = [
        "with torch.cuda._DeviceGuard(0):",
        f"    {room('buf0', out)}",
        f"    extern_kernels.{function}({', '.join(arguments)}{options}, out=buf0)",
    ]
    found, port = compiled(arguments, lines, "buf0"), PORTS[language]

    def written() -> str:
        task = TASK.format(names=", ".join(arguments))
        products = (tiled and (port.stretched if stretched else port.tiled)) or port.products
        return convert(
            task, "t", found, Products(PRECISIONS, how=products), PRECISIONS, port.rewrite
        )

    views = [(extent(t), (tuple(t.shape), t.stride())) for t in arguments.values()]
    return Case(
        written,
        name=name,
        names=list(arguments),
        tensors=views,
        dtypes=[str(tensor.dtype) for tensor in arguments.values()],
        reference=f"torch.{function}({', '.join(arguments)})",
    )


def products(language: str, scale: int = 1) -> list[Case]:
    """Products of all layouts and types; sizes are multiplied by a scale."""
    m, n, k = 70 * scale, 33 * scale, 50 * scale
    cases = [
        product("by rows", language, matrix(m, k), matrix(k, n)),
        product("by columns", language, matrix(m, k, turned=True), matrix(k, n, turned=True)),
        product("bias of a row", language, matrix(m, k), matrix(k, n, turned=True), matrix(n)),
        product("bias of a column", language, matrix(m, k), matrix(k, n), matrix(m, 1)),
        product("batch", language, matrix(3, m, k), matrix(3, k, n, turned=True)),
        product(
            "one for a batch",
            language,
            matrix(3, m, k),
            matrix(1, k, n).expand(3, -1, -1),
            matrix(3, 1, n),
        ),
    ]
    for dtype in (torch.float16, torch.bfloat16):
        a, b = matrix(m, k).to(dtype), matrix(k, n, turned=True).to(dtype)
        word = str(dtype).removeprefix("torch.")
        cases.append(product(f"{word}: bias", language, a, b, matrix(n).to(dtype)))
    return cases


def with_room(case: Case, count: int) -> Iterator[str]:
    """A program with tunables drawn at random, as far as the tuner would ask for them."""
    rng, space = random.Random(case["name"]), tunables.parse(case["source"])
    drawn = (space.sample(rng) for _ in range(100 * count))
    room = (each for each in drawn if fits(case["source"], each))
    return (tunables.render(case["source"], each) for each in islice(room, count))


def tiled_products(scale: int = 1) -> list[Case]:
    """Products in Gluon whose tiles the tensor memory accelerator reads: all layouts."""
    m, n, k = 72 * scale, 40 * scale, 56 * scale
    return [
        product(
            f"{word}: {'columns' if turned else 'rows'}",
            "gluon",
            matrix(m, k, turned=turned).to(getattr(torch, word)),
            matrix(k, n, turned=turned).to(getattr(torch, word)),
            matrix(n).to(getattr(torch, word)),
            tiled=True,
        )
        for word in ("float16", "bfloat16")
        for turned in (False, True)
    ]


def packed_products() -> list[Case]:
    """Products in Gluon of operands that are cut beforehand: all layouts, blocks at the edges."""
    m, n, k = 1160, 1000, 616
    given = {
        "by rows": (matrix(m, k), matrix(k, n)),
        "by columns": (matrix(m, k, turned=True), matrix(k, n, turned=True), matrix(n)),
        "few steps": (matrix(m, 64), matrix(64, n), matrix(m, 1)),
        "batch": (matrix(3, m, k), matrix(3, k, n, turned=True)),
        "one for a batch": (
            matrix(3, m, k),
            matrix(1, k, n).expand(3, -1, -1),
            matrix(3, 1, n),
        ),
    }
    return [product(name, "gluon", *each, tiled=True) for name, each in given.items()]


def stretched_products() -> list[Case]:
    """The same with sums that are long enough for two products of parts."""
    m, n, k = 1160, 1000, 1096
    given = {
        "by rows, two products": (matrix(m, k), matrix(k, n)),
        "by columns, two products": (
            matrix(m, k, turned=True),
            matrix(k, n, turned=True),
            matrix(n),
        ),
    }
    options = {"tiled": True, "stretched": True}
    return [product(name, "gluon", *each, **options) for name, each in given.items()]
