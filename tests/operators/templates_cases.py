"""Calls of a vendor's library, as output code has them, with what torch computes for each."""

import itertools
import math

import torch

from operators.local.templates import How
from tests.operators.output_code import add, case, image, matrix, pointwise, relu, room

# --- matrices -------------------------------------------------------------------------------------


def product(
    name: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, **how: object
):
    called = (
        ("baddbmm" if a.dim() == 3 else "addmm")
        if bias is not None
        else ("bmm" if a.dim() == 3 else "mm")
    )
    arguments = ({"bias": bias} if bias is not None else {}) | {"a": a, "b": b}
    options = ", alpha=1, beta=1" if bias is not None else ""
    lines = [
        room("buf0", torch.empty((*a.shape[:-1], b.shape[-1]), device="meta", dtype=a.dtype)),
        f"extern_kernels.{called}({', '.join(arguments)}{options}, out=buf0)",
    ]
    return case(name, arguments, lines, f"torch.{called}({', '.join(arguments)})", **how)


def matrix_cases():
    for turned_a, turned_b in itertools.product((False, True), repeat=2):
        a, b = matrix(37, 50, turned=turned_a), matrix(50, 29, turned=turned_b)
        yield product(f"mm {turned_a} {turned_b}", a, b)
    yield product("mm that fits", matrix(64, 32), matrix(32, 64))
    yield product("bmm", matrix(3, 17, 20), matrix(3, 20, 33, turned=True))
    yield product("one matrix for a batch", matrix(3, 17, 20), matrix(1, 20, 18).expand(3, -1, -1))
    yield product("addmm by column", matrix(20, 16), matrix(16, 33), matrix(33))
    yield product("addmm by row", matrix(20, 16), matrix(16, 33), matrix(20, 1))
    yield product("baddbmm", matrix(2, 20, 16), matrix(2, 16, 33), matrix(2, 1, 33))
    yield product("long sum", matrix(19, 2100), matrix(2100, 23), matrix(23))
    yield product("long sum of a batch", matrix(2, 18, 2051), matrix(2, 2051, 20))
    yield product("matrix by vector", matrix(45, 130), matrix(130, 1))
    yield product("matrix by vector, by columns", matrix(45, 130, turned=True), matrix(130, 1))
    yield product("vector by matrix", matrix(1, 130), matrix(130, 45), matrix(45))
    yield product("vectors of a batch", matrix(3, 45, 30), matrix(3, 30, 1))
    far = torch.empty_strided((70, 20), (2**25 + 8, 1), device="meta")
    yield product("rows far apart", far, matrix(20, 17))
    yield product("columns far apart", matrix(17, 20), far.T)
    yield product("a matrix far apart by vector", far.T, matrix(70, 1))


# --- convolutions ---------------------------------------------------------------------------------


def convolution(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: bool = False,
    how: How = How.PLAIN,
    tail: bool = False,
    **options,
):
    """Options as in `torch.convolution`; what is left out is that of a plain one.

    With `tail` a kernel follows that reads by channels, by places, by both and by images.
    """
    space = x.dim() - 2
    settings = {
        "stride": (1,) * space,
        "padding": (0,) * space,
        "dilation": (1,) * space,
        "transposed": False,
        "output_padding": (0,) * space,
        "groups": 1,
    } | options
    filters = weight.shape[1] * settings["groups"] if settings["transposed"] else weight.shape[0]
    arguments = {"x": x, "weight": weight}
    if bias:
        arguments["bias"] = torch.empty(filters, device="meta", dtype=x.dtype)
    out = torch.convolution(*arguments.values(), *([] if bias else [None]), *settings.values())
    if x.dim() == 4 and not x.is_contiguous():  # on a GPU outputs lie as inputs do
        out = out.to(memory_format=torch.channels_last)
    words = ", ".join(f"{key}={value}" for key, value in settings.items())
    given = ", ".join(arguments) if bias else f"{', '.join(arguments)}"
    ending = "" if bias else ", bias=None"
    lines = [
        f"buf0 = extern_kernels.convolution({given}, {words}{ending})",
        f"assert_size_stride(buf0, {tuple(out.shape)}, {out.stride()}, 'aten.convolution')",
    ]
    call = ", ".join([*arguments, *([] if bias else ["None"]), *map(str, settings.values())])
    if tail:
        more, launch, kernel = image_tail(out)
        reference = TAIL.format(call=f"torch.convolution({call})", ones=", 1" * space)
        return case(name, arguments | more, lines + launch, reference, "buf1", kernel, how=how)
    return case(name, arguments, lines, f"torch.convolution({call})", how=how)


BEHIND_IMAGES = (
    *("x3 = xindex", "x1 = xindex // {size} % {channels}", "x0 = xindex % {size}"),
    "x2 = xindex // {image}",
    "tmp0 = tl.load(in_out_ptr0 + (x3), xmask)",
    "tmp1 = tl.load(in_ptr0 + (x1), xmask, eviction_policy='evict_last')",
    "tmp2 = tl.load(in_ptr1 + (x0 + {size}*x2), xmask, eviction_policy='evict_last')",
    "tmp3 = tl.load(in_ptr2 + (x0 + {size}*x1 + {image}*x2), xmask)",
    "tmp4 = tl.load(in_ptr3 + (x2), xmask)",
    "tmp5 = tl.load(in_ptr4 + (x0), xmask)",
    "tmp6 = tl.load(in_ptr5 + (x1 + {channels}*((tmp5 + 4) % 8)), xmask)",
    "tl.store(in_out_ptr0 + (x3), (tmp0 + tmp1) * tmp2 + tmp3 * tmp4 + tmp6, xmask)",
)
TAIL = (
    "({call} + shift.view(-1{ones})) * scale + rest * gate"
    " + table[(which + 4) % 8].t().view(1, *rest.shape[1:])"
)


def image_tail(out: torch.Tensor) -> tuple[dict[str, torch.Tensor], list[str], str]:
    """What it reads, its launch, and the kernel, as Inductor writes it."""
    batch, channels, *space = out.shape
    size, ones = math.prod(space), [1] * len(space)
    shapes = {
        "shift": (channels,),
        "scale": (batch, 1, *space),
        "rest": out.shape,
        "gate": (batch, 1, *ones),
        "which": (size,),
        "table": (8, channels),
    }
    numbers = {"size": size, "channels": channels, "image": size * channels}
    lines = [line.format(**numbers) for line in BEHIND_IMAGES]
    parameters = ", ".join(["in_out_ptr0", *(f"in_ptr{at}" for at in range(len(shapes)))])
    called = f"triton_poi_fused_tail_0.run(buf1, {', '.join(shapes)}, {out.numel()}, stream=s)"
    return (
        {
            name: torch.zeros(shape, dtype=torch.int64, device="meta")
            if name == "which"
            else torch.empty(shape, device="meta")
            for name, shape in shapes.items()
        },
        ["buf1 = buf0", "del buf0", called],
        pointwise("tail", out.numel(), parameters, lines),
    )


def convolution_cases():
    for last in (False, True):
        x, weight = image(2, 5, 9, 11, last=last), image(7, 5, 3, 2, last=last)
        yield convolution(f"few channels {last}", x, weight, bias=True)
        x, weight = image(2, 18, 7, 8, last=last), image(20, 18, 3, 3, last=last)
        yield convolution(f"padded and strided {last}", x, weight, stride=(2, 3), padding=(1, 2))
        x, weight = image(2, 6, 7, 8, last=last), image(6, 1, 3, 3, last=last)
        yield convolution(f"depthwise {last}", x, weight, groups=6, padding=(1, 1), bias=True)
    yield convolution("dilated", image(1, 17, 12, 9), image(4, 17, 3, 2), dilation=(2, 3))
    yield convolution("groups", image(2, 36, 5, 6), image(18, 18, 3, 3), groups=2, bias=True)
    yield convolution("two filters a channel", image(2, 4, 5, 6), image(8, 1, 3, 3), groups=4)
    yield convolution("few filters of few channels", image(1, 6, 5, 6), image(4, 3, 3, 3), groups=2)
    yield convolution("pointwise", image(2, 20, 5, 5), image(33, 20, 1, 1))
    yield convolution("a line", image(2, 17, 30), image(8, 17, 5), stride=(3,), padding=(2,))
    yield convolution("a volume", image(1, 4, 5, 6, 7), image(3, 4, 2, 3, 3), padding=(1, 0, 1))
    turned = {"transposed": True}
    yield convolution("back", image(2, 17, 5, 6), image(17, 8, 3, 3), bias=True, **turned)
    yield convolution(
        "back, strided",
        image(2, 5, 4, 5),
        image(5, 6, 3, 4),
        stride=(2, 3),
        padding=(1, 1),
        output_padding=(1, 0),
        **turned,
    )
    yield convolution(
        "back, dilated",
        image(1, 4, 5, 4),
        image(4, 3, 3, 3),
        stride=(2, 3),
        dilation=(3, 2),
        **turned,
    )
    yield convolution(
        "back, no tap for some",
        image(1, 4, 5, 4),
        image(4, 3, 3, 2),
        stride=(4, 2),
        padding=(1, 1),
        dilation=(2, 4),
        **turned,
    )
    yield convolution(
        "back, groups", image(1, 8, 5, 4), image(8, 3, 3, 3), groups=2, stride=(2, 2), **turned
    )
    yield convolution("back, a line", image(2, 3, 9), image(3, 4, 5), stride=(2,), **turned)
    yield convolution(
        "back, a volume", image(1, 3, 3, 4, 2), image(3, 2, 2, 3, 2), stride=(2, 1, 2), **turned
    )


# --- pooling and attention ------------------------------------------------------------------------


def pool(name: str, function: str, x: torch.Tensor, *settings: object):
    """Settings as of `torch.ops.aten`; maxima come with their places, which nothing uses."""
    several = function.startswith("max")
    out = getattr(torch.ops.aten, function)(x, *settings)
    shape = out[0] if several else out
    given = ", ".join(["x", *map(str, settings)])
    lines = [f"buf0 = torch.ops.aten.{function}.default({given})"]
    lines += ["buf1 = buf0[0]", "del buf0"] if several else ["buf1 = buf0"]
    lines.insert(2, f"assert_size_stride(buf1, {tuple(shape.shape)}, {shape.stride()}, 'pool')")
    reference = f"torch.ops.aten.{function}({given})" + "[0]" * several
    return case(name, {"x": x}, lines, reference, out="buf1")


def pool_cases():
    x = image(2, 3, 9, 11)
    yield pool("average", "avg_pool2d", x, [3, 2], [2, 2], [1, 1], False, True, None)
    yield pool(
        "average without padding", "avg_pool2d", x, [3, 3], [2, 2], [1, 1], False, False, None
    )
    yield pool("average rounded up", "avg_pool2d", x, [3, 3], [2, 2], [1, 1], True, True, None)
    yield pool("average by a number", "avg_pool2d", x, [3, 3], [2, 2], [0, 0], False, True, 5)
    volume = image(2, 3, 5, 6, 7)
    yield pool("average of a volume", "avg_pool3d", volume, [3, 3, 3], [2, 2, 2], [1, 1, 1])
    last = image(2, 6, 9, 11, last=True)
    yield pool("maximum, channels last", "max_pool2d_with_indices", last, [3, 3], [2, 2], [1, 1])
    yield pool("maximum of a volume", "max_pool3d_with_indices", volume, [2, 3, 2])
    yield pool("maximum, dilated", "max_pool2d_with_indices", x, [3, 2], [1, 2], [0, 0], [2, 3])


def attention(
    name: str, function: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rest: str
):
    """`rest` is what follows the three tensors; `causal` and `scale` in it are known to torch."""
    shape = (*q.shape[:3], v.shape[3])
    lines = [
        f"copy = reinterpret_tensor(q, {tuple(q.shape)}, {q.stride()}, 0)",
        f"buf0 = torch.ops.aten._scaled_dot_product_{function}.default(copy, k, v{rest})",
        "del copy",
        "buf1 = buf0[0]",
        f"assert_size_stride(buf1, {shape}, {torch.empty(shape, device='meta').stride()}, 'sdpa')",
        "del buf0",
    ]
    causal = ", is_causal=True" if "True" in rest.rpartition(", 0.0")[2] else ""
    scale = f", scale={rest.rpartition('scale=')[2]}" if "scale=" in rest else ""
    grouped = ", enable_gqa=True" if k.shape[1] != q.shape[1] else ""
    reference = f"torch.nn.functional.scaled_dot_product_attention(q, k, v{causal}{scale}{grouped})"
    return case(name, {"q": q, "k": k, "v": v}, lines, reference, out="buf1")


def heads(*shape: int, rows_first: bool = False) -> torch.Tensor:
    """Batch, heads, rows, features; or as views of batch, rows, heads, features."""
    if rows_first:
        batch, count, rows, features = shape
        return torch.empty((batch, rows, count, features), device="meta").transpose(1, 2)
    return torch.empty(shape, device="meta")


def attention_cases():
    q, k, v = heads(2, 3, 37, 20), heads(2, 3, 45, 20), heads(2, 3, 45, 20)
    yield attention("attention", "efficient_attention", q, k, v, ", None, False")
    k, v = heads(2, 3, 37, 20), heads(2, 3, 37, 24)
    yield attention("causal", "efficient_attention", q, k, v, ", None, True, 0.0, True")
    wide = heads(2, 3, 37, 300)
    yield attention("wide values", "efficient_attention", q, k, wide, ", None, True, 0.0, True")
    turned = [heads(2, 2, 20, 16, rows_first=True)] * 3
    yield attention("by rows", "flash_attention", *turned, ", 0.0, True, False, scale=0.3")
    yield attention("on a CPU", "flash_attention_for_cpu", *turned, "")
    q, k = heads(2, 6, 20, 16), heads(2, 2, 25, 16)
    yield attention("heads that share keys", "flash_attention", q, k, k, ", 0.0, False")


# --- pointwise kernels in the tail ----------------------------------------------------------------


def tail_cases():
    a, b, bias = matrix(37, 50), matrix(50, 29), matrix(29)
    made = room("buf0", matrix(37, 29))
    product = "extern_kernels.addmm(bias, a, b, alpha=1, beta=1, out=buf0)"
    after = ["buf1 = buf0", "del buf0", "triton_poi_fused_relu_0.run(buf1, 1073, stream=s)"]
    for mask in ("xmask", "None"):
        yield case(
            f"relu in place, mask {mask}",
            {"a": a, "b": b, "bias": bias},
            [made, product, *after],
            "torch.relu(torch.addmm(bias, a, b))",
            out="buf1",
            kernels=relu(1073, mask),
        )
    yield case(
        "after a copy of what is misaligned",  # as of torch 2.13
        {"a": a, "b": b, "bias": bias},
        [
            made,
            "extern_kernels.mm(a, b, out=buf0)",
            "assert_size_stride(bias, (29, ), (1, ), 'input')",
            "bias = copy_if_misaligned(bias)",
            "buf1 = buf0; del buf0  # reuse",
            "triton_poi_fused_add_0.run(buf1, bias, 1073, stream=s)",
        ],
        "torch.addmm(bias, a, b)",
        out="buf1",
        kernels=pointwise(
            "add",
            1073,
            "in_out_ptr0, in_ptr0",
            [
                "x0 = xindex % 29",
                "x2 = xindex",
                "tmp0 = tl.load(in_out_ptr0 + (x2), xmask)",
                "tmp1 = tl.load(in_ptr0 + (x0), xmask)",
                "tl.store(in_out_ptr0 + (x2), tmp0 + tmp1, xmask)",
            ],
        ),
    )
    a, b = matrix(19, 2100), matrix(2100, 23)
    yield case(
        "after parts of a sum",
        {"a": a, "b": b},
        [
            room("buf0", matrix(19, 23)),
            "extern_kernels.mm(a, b, out=buf0)",
            "triton_poi_fused_relu_0.run(buf0, 437, stream=s)",
        ],
        "torch.relu(torch.mm(a, b))",
        kernels=relu(437),
    )
    scaled = [
        "x2 = xindex",
        "x1 = (xindex // 30) % 20",
        "tmp0 = tl.load(in_ptr0 + (x2), xmask)",
        "tmp1 = tl.load(in_ptr1 + (x1), xmask, eviction_policy='evict_last')",
        "tmp2 = tmp0 * tmp1",
        "tmp3 = tmp2 + tmp0",
        "tl.store(out_ptr0 + (x2), tmp3, xmask)",
    ]
    out = torch.empty(2, 20, 5, 6, device="meta")
    settings = (
        "stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=True, "
        "output_padding=(0, 0), groups=1"
    )
    yield case(
        "scaled by channel into another tensor",
        {"x": image(2, 17, 5, 6), "weight": image(17, 20, 3, 3), "scale": matrix(20)},
        [
            f"buf0 = extern_kernels.convolution(x, weight, {settings}, bias=None)",
            f"assert_size_stride(buf0, {tuple(out.shape)}, {out.stride()}, 'aten.convolution')",
            "copy = reinterpret_tensor(scale, (20, ), (1, ), 0)",
            room("buf1", out),
            "triton_poi_fused_add_mul_0.run(buf0, copy, buf1, 1200, stream=s)",
            "del buf0",
        ],
        "(lambda y: y * scale[:, None, None] + y)(torch.conv_transpose2d(x, weight, padding=1))",
        out="buf1",
        kernels=pointwise("add_mul", 1200, "in_ptr0, in_ptr1, out_ptr0", scaled),
    )
    yield from view_cases()


def view_cases():
    """Results and operands by other shapes, as a linear layer has them on input of three axes."""
    a, b = matrix(6, 16, 40), matrix(40, 40)
    yield case(
        "a sum in the place of an operand",
        {"a": a, "b": b},
        [
            "buf0 = torch.relu(a)",
            "assert_size_stride(buf0, (6, 16, 40), (640, 40, 1))",
            room("buf1", matrix(96, 40)),
            "extern_kernels.mm(reinterpret_tensor(buf0, (96, 40), (40, 1), 0), b, out=buf1)",
            "buf2 = reinterpret_tensor(buf0, (6, 4, 4, 40), (640, 160, 40, 1), 0)",
            "del buf0",
            "triton_poi_fused_add_0.run(buf2, buf1, 3840, stream=s)",
            "del buf1",
        ],
        "(torch.relu(a) + torch.relu(a) @ b).view(6, 4, 4, 40)",
        out="buf2",
        kernels=add(3840),
    )
    yield case(
        "in the tail by another shape",
        {"a": a, "b": b},
        [
            room("buf0", matrix(96, 40)),
            "extern_kernels.mm(reinterpret_tensor(a, (96, 40), (40, 1), 0), b, out=buf0)",
            "buf1 = reinterpret_tensor(buf0, (6, 16, 40), (640, 40, 1), 0)",
            "del buf0",
            "triton_poi_fused_relu_0.run(buf1, 3840, stream=s)",
        ],
        "torch.relu(a @ b)",
        out="buf1",
        kernels=relu(3840),
    )
    settings = (
        "stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, "
        "output_padding=(0, 0), groups=1"
    )
    yield case(
        "a convolution with a tail by another shape",
        {"x": image(2, 17, 5, 6), "weight": image(20, 17, 3, 3)},
        [
            f"buf0 = extern_kernels.convolution(x, weight, {settings}, bias=None)",
            "assert_size_stride(buf0, (2, 20, 5, 6), (600, 30, 6, 1), 'aten.convolution')",
            "buf1 = reinterpret_tensor(buf0, (2, 20, 30), (600, 30, 1), 0)",
            "del buf0",
            "triton_poi_fused_relu_0.run(buf1, 1200, stream=s)",
        ],
        "torch.relu(torch.conv2d(x, weight, padding=1)).flatten(2)",
        out="buf1",
        kernels=relu(1200),
    )


def half_cases():
    """In fp16 and bf16, summed in float32."""
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        a, b = matrix(37, 50).to(dtype), matrix(50, 29).to(dtype)
        yield product(f"{name}: mm", a, b)
        yield product(f"{name}: matrix by vector", a, b[:, :1].contiguous())
        yield product(f"{name}: long sum", matrix(19, 2100).to(dtype), matrix(2100, 23).to(dtype))
        x, weight = image(2, 18, 7, 8).to(dtype), image(20, 18, 3, 3).to(dtype)
        yield convolution(f"{name}: convolution", x, weight, bias=True)
        shared = [heads(2, 2, 20, 16).to(dtype)] * 2
        q = heads(2, 4, 20, 16).to(dtype)
        yield attention(f"{name}: attention", "flash_attention", q, *shared, ", 0.0, True")


TOLERANCES = {"float16": 1e-3, "bfloat16": 8e-3}
"""Of outputs, relative to the largest, where that is not float32: the last bit and a half."""


def tolerance(name: str, usual: float) -> float:
    """For a case of that name."""
    return TOLERANCES.get(name.partition(":")[0], usual)


def image_tail_cases():
    def with_tail(name: str, x, weight, **options):
        return convolution(f"tail of images, {name}", x, weight, tail=True, **options)

    back = {"transposed": True}
    yield with_tail("plain", image(3, 5, 9, 11), image(7, 5, 3, 2), bias=True)
    yield with_tail("one", image(1, 5, 9, 11), image(7, 5, 3, 2))
    yield with_tail("of one channel", image(2, 5, 9, 11), image(1, 5, 3, 2))
    yield with_tail("even rows", image(2, 20, 6, 14), image(12, 20, 3, 3))
    yield with_tail("depthwise", image(2, 6, 7, 8), image(6, 1, 3, 3), groups=6)
    yield with_tail("two filters a channel", image(2, 4, 5, 6), image(8, 1, 3, 3), groups=4)
    yield with_tail("groups", image(2, 36, 5, 6), image(18, 18, 3, 3), groups=2, bias=True)
    yield with_tail("lines", image(2, 17, 30), image(8, 17, 5), stride=(3,), padding=(2,))
    yield with_tail("volumes", image(2, 4, 5, 6, 7), image(3, 4, 2, 3, 3), padding=(1, 0, 1))
    strided = back | {"stride": (2, 3), "padding": (1, 1), "output_padding": (1, 0)}
    yield with_tail("back", image(2, 5, 4, 5), image(5, 6, 3, 4), **strided)
    yield with_tail("back, groups", image(1, 8, 5, 4), image(8, 3, 3, 3), groups=2, **back)


CASES = [
    *matrix_cases(),
    *convolution_cases(),
    *pool_cases(),
    *attention_cases(),
    *tail_cases(),
    *image_tail_cases(),
    *half_cases(),
]
