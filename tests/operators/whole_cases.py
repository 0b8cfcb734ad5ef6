"""Operations that the compiler leaves whole, as output code has them, with torch's own results."""

from collections.abc import Sequence

import torch

from tests.operators.output_code import case, matrix, relu

HELD, LOOPED = 132, 1  # multiprocessors: with many, few long rows are cut into parts
COSINE = (
    "t0 = a * b\nt1 = a * a\nt2 = b * b\nreturn t0, t1, t2",
    "return 1.0 - a / tl.sqrt(b * c)",
)
SQUARE = "t0 = a - b\nt1 = t0 * t0\nreturn t1"
HINGE = "t0 = 1.0 - a * b\nreturn tl.where(t0 < 0.0, 0.0, t0)"


def whole(
    name: str,
    call: str,
    arguments: dict[str, torch.Tensor],
    out: torch.Tensor,
    reference: str,
    before: Sequence[str] = (),
    kernels: str = "",
    multiprocessors: int = HELD,
):
    """`call` is an operator with its arguments; `before` makes tensors that are no numbers.

    `kernels` is a `relu` that follows, if anything.
    """
    operator, _, given = call.partition("(")
    lines = [
        *before,
        f"buf0 = torch.ops.evolve.{operator}.default({given}",
        "buf1 = buf0",
        f"assert_size_stride(buf1, {tuple(out.shape)}, {out.stride()}, 'whole')",
        "del buf0",
    ]
    if kernels:
        lines.append(f"triton_poi_fused_relu_0.run(buf1, {out.numel()}, stream=s)")
    return case(name, arguments, lines, reference, "buf1", kernels, multiprocessors=multiprocessors)


def norm(
    name: str,
    x: torch.Tensor,
    settings: str,
    reference: str,
    *weights: torch.Tensor,
    multiprocessors: int = HELD,
):
    """`weights` are none, a weight, or a weight and a bias."""
    arguments = {"x": x} | dict(zip(("weight", "bias"), weights, strict=False))
    operands = ", ".join([*arguments, *["None"] * (2 - len(weights))])
    call = f"norm({operands}, {settings})"
    return whole(name, call, arguments, x, reference, multiprocessors=multiprocessors)


def norm_cases(kind: str, multiprocessors: int, long: int):
    """Rows of `long` elements; `kind` names the kernel that such rows get."""
    layer = "torch.nn.functional.layer_norm"
    group = "torch.nn.functional.group_norm"
    for size, affine in ((long, True), (long - 1, False)):
        weights = (matrix(size), matrix(size)) if affine else ()
        given = "weight, bias" if affine else "None, None"
        yield norm(
            f"{kind} layer {affine}",
            matrix(3, size),
            f"'layer', [3, {size}, 1], [1, {size}, 1], {1 / size}, 1e-05",
            f"{layer}(x + 0, ({size},), {given}, 1e-5)",
            *weights,
            multiprocessors=multiprocessors,
        )
    area = long // 3
    yield norm(
        f"{kind} groups",
        matrix(2, 6, area),
        f"'layer', [4, {3 * area}, 1], [2, 3, {area}], {1 / (3 * area)}, 1e-03",
        f"{group}(x, 2, weight, bias, 1e-3)",
        matrix(6),
        matrix(6),
        multiprocessors=multiprocessors,
    )
    yield norm(
        f"{kind} root mean square",
        matrix(4, long),
        f"'l2', [4, {long}, 1], [1, {long}, 1], {1 / long}, 1e-05",
        "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * weight",
        matrix(long),
        multiprocessors=multiprocessors,
    )
    yield norm(
        f"{kind} between other dimensions",
        matrix(2, long, 3),
        f"'l2', [2, {long}, 3], [1, 1, 1], 1.0, 0.0",
        "x / torch.linalg.vector_norm(x, dim=1, keepdim=True)",
        multiprocessors=multiprocessors,
    )
    yield norm(
        f"{kind} absolute values",
        matrix(5, long + 1),
        f"'l1', [5, {long + 1}, 1], [1, 1, 1], {1 / (long + 1)}, 0.0",
        "x / x.abs().mean(1, keepdim=True)",
        multiprocessors=multiprocessors,
    )


def batch_norm_cases():
    for affine in (True, False):
        weights = {"weight": matrix(5), "bias": matrix(5)} if affine else {}
        arguments = {"x": matrix(3, 5, 8, 9), "mean": matrix(5), "spread": matrix(5)} | weights
        given = ", ".join(weights or ("None", "None"))
        yield whole(
            f"batch norm {affine}",
            f"batch_norm(x, mean, variance, {given}, [3, 5, 72], 1e-05)",
            arguments,
            matrix(3, 5, 8, 9),
            f"torch.nn.functional.batch_norm(x, mean, spread * spread, {given}, eps=1e-5)",
            ["variance = torch.mul(spread, spread)", "assert_size_stride(variance, (5,), (1,))"],
        )


def scan_cases():
    x, inner = matrix(40, 530), matrix(4, 45, 11)
    last, middle = "[40, 530, 1]", "[4, 45, 11]"
    plain = {"x": x}
    yield whole("sums", f"scan(x, None, {last}, False, False, False)", plain, x, "x.cumsum(1)")
    yield whole("products", f"scan(x, None, {last}, True, False, False)", plain, x, "x.cumprod(1)")
    yield whole(
        "sums from the end",
        f"scan(x, None, {last}, False, True, False)",
        plain,
        x,
        "x.flip(1).cumsum(1).flip(1)",
    )
    yield whole(
        "sums of what comes before",
        f"scan(x, None, {last}, False, False, True)",
        plain,
        x,
        "x.cumsum(1).roll(1, 1) * (torch.arange(530, device=x.device) > 0)",
    )
    yield whole(
        "sums of what is not masked",
        f"scan(x, mask, {last}, False, False, False)",
        {"x": x, "m": x},
        x,
        "(x * (m < 0)).cumsum(1)",
        ["mask = torch.lt(m, 0)", "assert_size_stride(mask, (40, 530), (530, 1))"],
    )
    plain = {"x": inner}
    yield whole(
        "sums between other dimensions",
        f"scan(x, None, {middle}, False, False, False)",
        plain,
        inner,
        "x.cumsum(1)",
    )
    yield whole(
        "products from the end, between other dimensions",
        f"scan(x, None, {middle}, True, True, False)",
        plain,
        inner,
        "x.flip(1).cumprod(1).flip(1)",
    )


def total(
    name: str,
    tensors: dict[str, torch.Tensor],
    term: str,
    outcome: str,
    shape: list[int],
    scale: float,
    reference: str,
):
    given = ", ".join([*tensors, *["None"] * (3 - len(tensors))])
    call = f"total({given}, {term!r}, {outcome!r}, {shape}, {scale})"
    out = torch.empty((), device="meta")
    return whole(name, call, tensors, out, reference)


def loss_cases():
    a, b = matrix(65, 333), matrix(65, 333)
    full, size = [65, 333], 65 * 333
    square = f"((a - b) ** 2).sum() / {size}"
    yield total("mean square", {"a": a, "b": b}, SQUARE, "", full, 1 / size, square)
    hinge = f"torch.clamp(1 - a * b, min=0).sum() / {size}"
    for name, other in (("column", matrix(333)), ("row", matrix(65, 1)), ("one", matrix(1, 1))):
        tensors = {"a": a, "b": other}
        yield total(f"hinge, one a {name}", tensors, HINGE, "", full, 1 / size, hinge)
    cosine = "(1 - torch.cosine_similarity(a, b, 1)).mean()"
    yield total("cosine", {"a": a, "b": b}, *COSINE, full, 1 / 65, cosine)
    flat = {"a": matrix(2, 3, 700), "b": matrix(2, 3, 700)}
    cosine = "(1 - torch.cosine_similarity(a, b, 2)).mean()"
    yield total("cosine of a batch", flat, *COSINE, [2, 3, 700], 1 / 6, cosine)
    three = {"a": a, "b": b, "c": matrix(1, 333)}
    text = "return tl.where(a > b, a, c)"
    reference = "torch.where(a > b, a, c).sum()"
    yield total("three tensors", three, text, "", full, 1.0, reference)


def entropy_cases():
    for name, x, view in (
        ("last", matrix(9, 700), "[9, 700, 1]"),
        ("between", matrix(2, 33, 5), "[2, 33, 5]"),
    ):
        rest = (x.shape[0], *x.shape[2:])
        labels = torch.empty(rest, dtype=torch.int64, device="meta")
        yield whole(
            f"cross entropy, classes {name}",
            f"cross_entropy(x, target, {view}, 1)",
            {"x": x, "t": labels},
            torch.empty(rest, device="meta"),
            "torch.nn.functional.cross_entropy(x, t.abs(), reduction='none', ignore_index=1)",
            ["target = torch.abs(t)", f"assert_size_stride(target, {rest}, {labels.stride()})"],
        )


def tail_cases():
    """A `relu` follows, which goes into the tail of kernels that store in a loop too."""
    for name, multiprocessors, size in (("held", HELD, 70), ("looped", LOOPED, 8200)):
        x = matrix(3, size)
        yield whole(
            f"{name} with a tail",
            f"norm(x, None, None, 'l1', [3, {size}, 1], [1, 1, 1], 1.0, 0.5)",
            {"x": x},
            x,
            "torch.relu(x / (x.abs().sum(1, keepdim=True) + 0.5))",
            kernels=relu(3 * size),
            multiprocessors=multiprocessors,
        )
    x = matrix(40, 530)
    call = "scan(x, None, [40, 530, 1], False, False, False)"
    reference = "torch.relu(x.cumsum(1))"
    yield whole("sums with a tail", call, {"x": x}, x, reference, kernels=relu(x.numel()))


def half_cases():
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        x, weight = matrix(7, 130).to(dtype), matrix(130).to(dtype)
        settings = f"'layer', [7, 130, 1], [1, 130, 1], {1 / 130}, 1e-05"
        reference = "torch.nn.functional.layer_norm(x, (130,), weight, bias)"
        yield norm(f"{name}: layer", x, settings, reference, weight, weight)
        call = "scan(x, None, [7, 130, 1], False, False, False)"
        yield whole(f"{name}: sums", call, {"x": x}, x, "x.float().cumsum(1).to(x.dtype)")
        out = torch.empty((), dtype=dtype, device="meta")
        call = f"total(x, y, None, {SQUARE!r}, '', [7, 130], {1 / 910})"
        reference = "((x.float() - y.float()) ** 2).mean().to(x.dtype)"
        yield whole(f"{name}: mean square", call, {"x": x, "y": x}, out, reference)


WHOLE_CASES = [
    *norm_cases("held", HELD, 70),
    *norm_cases("looped", LOOPED, 8200),
    *list(norm_cases("in parts", HELD, 16390))[::4],
    *batch_norm_cases(),
    *scan_cases(),
    *loss_cases(),
    *entropy_cases(),
    *tail_cases(),
    *half_cases(),
]
