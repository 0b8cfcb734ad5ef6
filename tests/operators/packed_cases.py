"""Products and convolutions whose operands are cut into parts beforehand, of sizes that pay."""

import itertools

from operators.local.templates import How
from tests.operators.output_code import case, image, matrix, program, relu, room
from tests.operators.templates_cases import convolution, product

PACKED = {"how": How.PACKED, "multiprocessors": 16}  # so that small products have tiles for half
NARROW = {"how": How.PACKED, "multiprocessors": 4}
ROWS, COLUMNS, DEPTH = 530, 515, 259  # of which no block is a divisor


def product_cases():
    for turned_a, turned_b in itertools.product((False, True), repeat=2):
        a, b = matrix(ROWS, DEPTH, turned=turned_a), matrix(DEPTH, COLUMNS, turned=turned_b)
        yield product(f"product {turned_a} {turned_b}", a, b, **PACKED)
    whole = matrix(512, 256), matrix(256, 512)
    yield product("of whole blocks, with bias", *whole, matrix(512), **PACKED)
    batch = matrix(2, 512, 256), matrix(2, 256, 512, turned=True)
    yield product("of a batch", *batch, matrix(2, 1, 512), **PACKED)
    one = matrix(2, 512, 256), matrix(1, 256, 512).expand(2, -1, -1)
    yield product("one matrix for a batch", *one, **PACKED)
    few = matrix(40, 1027), matrix(1027, 300, turned=True)
    yield product("few rows", *few, matrix(300), **NARROW)
    yield product("few columns", matrix(300, 1024), matrix(1024, 33), **NARROW)
    across = matrix(516, 1100, turned=True), matrix(1100, 512)
    yield product("long lines across", *across, **PACKED)
    across = matrix(2, 512, 1024), matrix(2, 1024, 516)
    yield product("long lines across of a batch", *across, **PACKED)
    yield product("with a tail", *whole, **PACKED) | {
        "source": with_tail(),
        "reference": "torch.relu(a @ b)",
    }


def with_tail() -> str:
    lines = [
        room("buf0", matrix(512, 512)),
        "extern_kernels.mm(a, b, out=buf0)",
        "buf1 = buf0",
        "del buf0",
        f"triton_poi_fused_relu_0.run(buf1, {512 * 512}, stream=s)",
    ]
    tensors = {"a": matrix(512, 256), "b": matrix(256, 512)}
    return program(tensors, lines, "buf1", relu(512 * 512), **PACKED)


def convolution_cases():
    def cut(name: str, x, weight, **options):
        return convolution(name, x, weight, how=How.PACKED, **options)

    back = {"transposed": True}
    yield cut("plain", image(2, 5, 9, 11), image(32, 5, 3, 3), bias=True, padding=(1, 1))
    x, weight = image(2, 18, 9, 12), image(44, 18, 5, 7)
    yield cut("strided", x, weight, stride=(2, 3), padding=(1, 2))
    yield cut("dilated", image(1, 3, 12, 13), image(24, 3, 4, 3), dilation=(2, 3))
    yield cut("groups", image(2, 6, 7, 8), image(32, 3, 4, 4), groups=2, bias=True)
    yield cut("groups, last", image(2, 6, 7, 8, last=True), image(32, 3, 4, 4), groups=2)
    yield cut("a line", image(2, 17, 30), image(32, 17, 9), padding=(2,))
    yield cut("a volume", image(1, 4, 5, 6, 7), image(32, 4, 2, 3, 3), padding=(1, 0, 1))
    last = image(2, 20, 6, 7, last=True), image(32, 20, 3, 3, last=True)
    yield cut("channels last", *last, padding=(1, 1))
    yield cut("back", image(2, 7, 5, 6), image(7, 32, 3, 3), bias=True, **back)
    x, weight = image(2, 5, 4, 5), image(5, 16, 4, 5)
    strided = {"stride": (2, 3), "padding": (1, 1), "output_padding": (1, 0)}
    yield cut("back, strided", x, weight, bias=True, **strided, **back)
    x, weight = image(1, 4, 5, 4), image(4, 16, 4, 4)
    yield cut("back, dilated", x, weight, stride=(2, 3), dilation=(3, 2), **back)
    x, weight = image(1, 4, 5, 4), image(4, 16, 8, 2)
    strided = {"stride": (4, 2), "padding": (1, 1), "dilation": (2, 4)}
    yield cut("back, no tap for some", x, weight, bias=True, **strided, **back)
    x, weight = image(1, 8, 5, 4), image(8, 16, 4, 4)
    yield cut("back, groups", x, weight, groups=2, stride=(2, 2), **back)
    yield cut("back, a line", image(2, 3, 9), image(3, 32, 8), stride=(2,), **back)
    x, weight = image(1, 3, 3, 4, 2), image(3, 16, 2, 3, 3)
    yield cut("back, a volume", x, weight, stride=(2, 1, 2), **back)


def tail_cases():
    def cut(name: str, x, weight, **options):
        return convolution(name, x, weight, how=How.PACKED, tail=True, **options)

    yield cut("tail of images", image(2, 5, 9, 11), image(32, 5, 3, 3), padding=(1, 1))
    yield cut("tail, even rows", image(2, 5, 9, 18), image(32, 5, 3, 3))
    yield cut("tail, groups", image(2, 6, 7, 8), image(32, 3, 4, 4), groups=2)
    strided = {"stride": (2, 3), "padding": (1, 1), "output_padding": (1, 0), "transposed": True}
    yield cut("tail, back", image(2, 5, 4, 5), image(5, 16, 4, 5), **strided)


WIDE = """
import torch

class Model(torch.nn.Module):
    def forward(self, {names}):
        return ({function}).float()

def get_inputs():
    {names} = {inputs}
    {change}
    return [{names}]

def get_init_inputs():
    return []
"""
CHANGES = {
    "numbers near the largest float32": "a, b = a * 1e30, b * 1e3",
    "numbers near the smallest float32": "a, b = a * 1e-34, b * 1e4",
    "numbers at the smallest float32": "a, b = a.sign() * 2**-124, b * 1e4",
    "one at the largest, one far below": "a, b = a * 1e37, b * 1e-10",
    "blocks of falling size": "a[:, 64:] *= 2**-12; a[:, 256:] *= 2**-12",
    "blocks of rising size": "a[:, 64:] *= 2**12; a[:, 256:] *= 2**12",
    "both near the square root of the smallest": "a, b = a.abs() * 2**-62, b.abs() * 2**-62",
    "large elements beside small ones": "a[:, ::2] *= 3e3; b[::2] /= 3e3; b[1::2] *= 3",
    "a line of zeros": "a[3] = 0; b[:, 5] = 0",
    "positive numbers": "a, b = a.abs(), b.abs()",
}


def wide_cases():
    """Beside references in float64."""
    few = {"a": matrix(24, 1030), "b": matrix(1030, 200)}
    own = product("", *few.values(), **NARROW)["source"]
    for name, change in CHANGES.items():
        yield wide(f"few rows: {name}", own, few, change, "a.double() @ b.double()")
    a, b = matrix(512, 320), matrix(320, 512)
    own = product("", a, b, **PACKED)["source"]
    for name, change in CHANGES.items():
        yield wide(name, own, {"a": a, "b": b}, change, "a.double() @ b.double()")
    x, weight = image(2, 20, 7, 8), image(40, 20, 3, 3)
    own = convolution("", x, weight, how=How.PACKED)["source"]
    change = "x, weight = x * 1e-34, weight * 1e4"
    function = "torch.nn.functional.conv2d(x.double(), weight.double())"
    yield wide("images of small numbers", own, {"x": x, "weight": weight}, change, function)
    change = "x[0, 0, 3, 3] = float('inf')"
    yield wide("an infinite pixel", own, {"x": x, "weight": weight}, change, function)


def few_filters():
    """Convolutions whose outputs side by side are columns of one product."""

    def cut(name: str, x, weight, **options):
        return convolution(f"few filters, {name}", x, weight, how=How.WIDE, **options)

    back = {"transposed": True}
    yield cut("plain", image(2, 5, 9, 11), image(8, 5, 3, 3), bias=True, padding=(1, 1))
    x, weight = image(2, 18, 9, 12), image(12, 18, 5, 7)
    yield cut("strided", x, weight, stride=(2, 3), padding=(1, 2))
    yield cut("dilated", image(1, 3, 12, 13), image(8, 3, 4, 3), dilation=(2, 3))
    yield cut("groups", image(2, 6, 7, 8), image(16, 3, 4, 4), groups=2, bias=True)
    yield cut("a line", image(2, 17, 30), image(8, 17, 9), padding=(2,))
    yield cut("a volume", image(1, 4, 5, 6, 7), image(8, 4, 2, 3, 3), padding=(1, 0, 1))
    last = image(2, 20, 6, 7, last=True), image(8, 20, 3, 3, last=True)
    yield cut("channels last", *last, padding=(1, 1))
    yield cut("back", image(2, 7, 5, 6), image(7, 8, 3, 3), bias=True, **back)
    x, weight = image(2, 5, 4, 5), image(5, 8, 4, 5)
    strided = {"stride": (2, 3), "padding": (1, 1), "output_padding": (1, 0), **back}
    yield cut("back, strided", x, weight, bias=True, **strided)
    yield cut("back, strided, with a tail", x, weight, tail=True, **strided)
    x, weight = image(1, 4, 5, 4), image(4, 16, 4, 4)
    yield cut("back, dilated", x, weight, stride=(2, 3), dilation=(3, 2), **back)
    x, weight = image(1, 4, 5, 4), image(4, 16, 8, 2)
    strided = {"stride": (4, 2), "padding": (1, 1), "dilation": (2, 4), **back}
    yield cut("back, no tap for some", x, weight, bias=True, **strided)
    x, weight = image(1, 8, 5, 4), image(8, 8, 4, 4)
    yield cut("back, groups", x, weight, groups=2, stride=(2, 2), **back)
    yield cut("back, a line", image(2, 3, 9), image(3, 16, 8), stride=(2,), **back)
    x, weight = image(1, 3, 3, 4, 2), image(3, 8, 2, 3, 3)
    yield cut("back, a volume", x, weight, stride=(2, 1, 2), **back)
    yield cut("with a tail", image(2, 5, 9, 11), image(8, 5, 3, 3), padding=(1, 1), tail=True)


def two_products():
    """Sums that are long enough for two products of parts, in all layouts, beside torch's."""
    m, n, k = 1160, 1000, 1096
    for turned in (False, True):
        a, b = matrix(m, k, turned=turned), matrix(k, n, turned=turned)
        yield product(
            f"two products {turned}", a, b, matrix(n), how=How.STRETCHED, multiprocessors=16
        )
    batch = matrix(2, m, k), matrix(2, k, n)
    yield product("two products, batch", *batch, how=How.STRETCHED, multiprocessors=16)
    x, weight = image(8, 120, 17, 18), image(44, 120, 3, 3)
    yield convolution("two products, images", x, weight, bias=True, how=How.STRETCHED)
    back = {"stride": (2, 2), "transposed": True, "how": How.STRETCHED}
    yield convolution("two products, back", image(8, 260, 9, 8), image(260, 16, 4, 4), **back)


STRETCHED = (
    "one at the largest, one far below",
    "both near the square root of the smallest",
    "large elements beside small ones",
)


def stretched_cases():
    """Sums that are long enough for two products of parts, beside references in float64."""
    two = {"how": How.STRETCHED, "multiprocessors": 16}
    sides = {"a": matrix(512, 1030), "b": matrix(1030, 512)}
    own = product("", *sides.values(), **two)["source"]
    for name in STRETCHED:
        yield wide(f"two: {name}", own, sides, CHANGES[name], "a.double() @ b.double()")
    images = {"x": image(1, 120, 7, 8), "weight": image(40, 120, 3, 3)}
    own = convolution("", *images.values(), how=How.STRETCHED)["source"]
    function = "torch.nn.functional.conv2d(x.double(), weight.double())"
    yield wide("two: an infinite pixel", own, images, "x[0, 0, 3, 3] = float('inf')", function)
    images = {"x": image(1, 260, 5, 4), "weight": image(260, 16, 4, 4)}
    back = {"how": How.STRETCHED, "stride": (2, 2), "transposed": True}
    own = convolution("", *images.values(), **back)["source"]
    function = "torch.nn.functional.conv_transpose2d(x.double(), weight.double(), stride=2)"
    yield wide("two: back", own, images, "", function)


def several():
    """Convolutions whose runs of taps are divided into different blocks, one after the other."""
    kernels = image(32, 32, 3, 3), image(32, 32, 5, 5), image(16, 32, 7, 7)
    settings = (
        "stride=(1, 1), padding=(0, 0), dilation=(1, 1), transposed=False, "
        "output_padding=(0, 0), groups=1"
    )
    lines, before, reference = [], "x", "x"
    for number, (filters, side) in enumerate([(32, 13), (32, 9), (16, 3)]):
        called = f"extern_kernels.convolution({before}, w{number}, {settings}, bias=None)"
        stride = (filters * side**2, side**2, side, 1)
        lines += [
            f"buf{number} = {called}",
            f"assert_size_stride(buf{number}, {(1, filters, side, side)}, {stride}, 'convolution')",
        ]
        before, reference = f"buf{number}", f"torch.conv2d({reference}, w{number})"
    arguments = {"x": image(1, 32, 15, 15)} | {
        f"w{number}": weight for number, weight in enumerate(kernels)
    }
    return case("one after the other", arguments, lines, reference, before, how=How.PACKED)


def wide(name: str, source: str, tensors, change: str, function: str):
    inputs = ", ".join(f"torch.randn{tuple(tensor.shape)}" for tensor in tensors.values())
    names = ", ".join(tensors)
    task = WIDE.format(names=names, inputs=inputs, change=change, function=function)
    return {"name": name, "source": source, "task": task}


PACKED_CASES = [
    known | {"name": f"packed, {known['name']}"}
    for known in (*product_cases(), *convolution_cases(), *tail_cases(), several())
]
WIDE_CASES = list(wide_cases())
STRETCHED_CASES = list(stretched_cases())
FEW_FILTERS = list(few_filters())
