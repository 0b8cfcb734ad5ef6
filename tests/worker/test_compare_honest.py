"""Calibration of the error budget: honest kernels pass whatever their order of operations, and
kernels that compute less than the task asks for fail.

Invariants: an honest fp32 kernel passes in every input family that applies to the task; arithmetic
that is shorter than the task allows, and every part of the work left out, fails in at least one.
"""

from functools import partial

import numpy
import pytest
import torch
from torch.nn import functional

from evolve.core.evaluation import Status
from evolve.worker.correctness import reference_runs
from evolve.worker.correctness.convolution import ByProducts
from tests.worker.judging import (
    cut_to_tf32,
    judged,
    loaded_case,
    norm_of,
    prepared,
    rounded_to_tf32,
    sequential_sum,
    task_source,
    verdicts,
)

LOG2_E = 1.4426950408889634


def task(outcome, inputs, **fields):
    rules = {name: fields.pop(name) for name in ("precision", "accumulation") if name in fields}
    return loaded_case(task_source(outcome, inputs, **fields), **rules)


def layernorm_task(rows, columns, draw="randn"):
    return task(
        "self.norm(x)",
        f"[torch.{draw}({rows}, {columns})]",
        setup="self.norm = nn.LayerNorm(values[0])",
        init=f"[{columns}]",
    )


LONG_SUM = task("x.sum(-1)", "[torch.randn(4, 65536)]")
POSITIVE_SUM = task("x.sum(-1)", "[torch.rand(8, 8192)]")
SCALAR_SUM = task("x.sum()", "[torch.randn(65536)]")
WHOLE_NORM = task("x / x.norm()", "[torch.rand(1024, 1024)]")
CUMULATIVE = task("torch.cumsum(x, -1)", "[torch.randn(4, 16384)]")
SOFTMAX = task("torch.softmax(x, -1)", "[torch.randn(32, 2048)]")
WIDE_SOFTMAX = task("torch.softmax(x, -1)", "[torch.randn(6, 320) * 4]")
PEAKED_SOFTMAX = task("torch.softmax(8 * x, -1)", "[torch.randn(4, 4096)]")
LAYERNORM = layernorm_task(32, 1024)
OFFSET_LAYERNORM = layernorm_task(32, 1024, "rand")
MATMUL = task("x @ y", "[torch.randn(96, 512), torch.randn(512, 80)]", arguments="x, y")
POSITIVE_MATMUL = task("x @ y", "[torch.rand(32, 2048), torch.rand(2048, 48)]", arguments="x, y")
ATTENTION = task(
    "F.scaled_dot_product_attention(q, k, v)",
    "[torch.randn(2, 2, 128, 32) for _ in range(3)]",
    arguments="q, k, v",
)
GELU = task("F.gelu(x + self.b)", "[torch.randn(48, 512)]",
            setup="self.b = nn.Parameter(torch.zeros(512))")  # fmt: skip
TANH = task("torch.tanh(x)", "[torch.randn(48, 512)]")
TOKEN_LOSS = task(
    "F.cross_entropy(x, y, reduction='none')",
    "[torch.randn(32, 1024) * 4, torch.randint(0, 1024, (32,))]",
    arguments="x, y",
)


def in_lanes(lanes):
    def candidate(model, x):
        return sequential_sum(x.reshape(*x.shape[:-1], -1, lanes).mT.contiguous()).sum(-1)

    return candidate


def pairwise_sum(model, x):
    while x.shape[-1] > 1:
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def sequential_cumsum(model, x):
    return torch.from_numpy(numpy.add.accumulate(x.numpy(), axis=-1, dtype=numpy.float32))


def online_softmax(model, x):
    maximum = torch.full((x.shape[0], 1), -float("inf"))
    total = torch.zeros(x.shape[0], 1)
    for block in x.split(64, dim=1):
        higher = torch.maximum(maximum, block.amax(1, keepdim=True))
        total = total * torch.exp(maximum - higher)
        total = total + sequential_sum(torch.exp(block - higher))[:, None]
        maximum = higher
    return torch.exp(x - maximum) / total


def exp2_softmax(model, x):
    scaled = x * LOG2_E
    powers = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    return powers * (1 / powers.sum(-1, keepdim=True))


def sequential_softmax(model, x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / sequential_sum(powers)[..., None]


def normalised(x, mean, variance, model, eps=1e-5):
    weight, bias = norm_of(model)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias


def sequential_layernorm(model, x):
    mean = sequential_sum(x)[:, None] / x.shape[1]
    centred = x - mean
    return normalised(x, mean, sequential_sum(centred * centred)[:, None] / x.shape[1], model)


def one_pass_layernorm(model, x):
    mean = x.mean(-1, keepdim=True)
    return normalised(x, mean, (x * x).mean(-1, keepdim=True) - mean * mean, model)


def welford_layernorm(model, x):
    mean, squares = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
    for count, column in enumerate(x.unbind(1), start=1):
        before = column - mean
        mean = mean + before / count
        squares = squares + before * (column - mean)
    return normalised(x, mean[:, None], squares[:, None] / x.shape[1], model)


def matmul_by_blocks(depth):
    def candidate(model, x, y):
        outcome = torch.zeros(x.shape[0], y.shape[1])
        for start in range(0, x.shape[1], depth):
            outcome += x[:, start : start + depth] @ y[start : start + depth]
        return outcome

    return candidate


def three_tf32_products(model, x, y):
    high_x, high_y = rounded_to_tf32(x), rounded_to_tf32(y)
    return high_x @ (y - high_y) + (x - high_x) @ high_y + high_x @ high_y


def flash_attention(model, q, k, v):
    maximum = torch.full((*q.shape[:-1], 1), -float("inf"))
    total, outcome = torch.zeros_like(maximum), torch.zeros_like(q)
    for keys, values in zip(k.split(32, -2), v.split(32, -2), strict=True):
        scores = q @ keys.mT * q.shape[-1] ** -0.5
        higher = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        powers, shrink = torch.exp(scores - higher), torch.exp(maximum - higher)
        total = total * shrink + powers.sum(-1, keepdim=True)
        outcome, maximum = outcome * shrink + powers @ values, higher
    return outcome / total


def tanh_by_exponential(model, x):
    return 1 - 2 / (1 + torch.exp2(2 * LOG2_E * x))


def erf_gelu(model, x):
    x = x + model.b
    return 0.5 * x * (1 + torch.erf(x * 0.70710678))


def sequential_token_loss(model, x, y):
    maximum = x.amax(1)
    total = sequential_sum(torch.exp(x - maximum[:, None]))
    return maximum + torch.log(total) - x.gather(1, y[:, None])[:, 0]


@pytest.mark.parametrize(
    ("case", "candidate"),
    [
        (LONG_SUM, lambda model, x: sequential_sum(x)),
        (LONG_SUM, in_lanes(8)),
        (LONG_SUM, pairwise_sum),
        (POSITIVE_SUM, lambda model, x: sequential_sum(x)),
        (SCALAR_SUM, lambda model, x: sequential_sum(x)),
        (WHOLE_NORM, lambda model, x: x * sequential_sum(sequential_sum(x * x)).rsqrt()),
        (CUMULATIVE, sequential_cumsum),
        (SOFTMAX, online_softmax),
        (SOFTMAX, exp2_softmax),
        (SOFTMAX, sequential_softmax),
        (PEAKED_SOFTMAX, lambda model, x: exp2_softmax(model, 8 * x)),
        (PEAKED_SOFTMAX, lambda model, x: online_softmax(model, 8 * x)),
        (LAYERNORM, sequential_layernorm),
        (LAYERNORM, welford_layernorm),
        (LAYERNORM, one_pass_layernorm),
        (OFFSET_LAYERNORM, sequential_layernorm),
        (OFFSET_LAYERNORM, welford_layernorm),
        (MATMUL, matmul_by_blocks(1)),
        (MATMUL, matmul_by_blocks(16)),
        (MATMUL, three_tf32_products),
        (POSITIVE_MATMUL, matmul_by_blocks(8)),
        (ATTENTION, flash_attention),
        (GELU, erf_gelu),
        (TANH, tanh_by_exponential),
        (TOKEN_LOSS, sequential_token_loss),
    ],
)
def test_an_honest_kernel_passes_in_every_family(case, candidate):
    wrong = {name for name, status in verdicts(case, candidate).items() if status != "correct"}
    assert not wrong


def test_a_sequential_sum_of_65536_is_many_times_less_exact_than_eager_and_passes():
    own = judged(LONG_SUM, lambda model, x: x.sum(-1)).margin
    sequential = judged(LONG_SUM, lambda model, x: sequential_sum(x)).margin
    assert 10 * own < sequential < 0.5


def scanned(x):
    """Running sums in another order: in log2 steps, each adding what lies so far behind."""
    width = 1
    while width < x.shape[-1]:
        x = x + functional.pad(x, (width, 0))[..., : x.shape[-1]]
        width *= 2
    return x


DECAYS = task(
    "torch.exp((sums[..., :, None] - sums[..., None, :]).tril())",
    "[torch.randn(512, 64)]",
    arguments="x, sums=None",
    setup="self.register_forward_pre_hook(lambda model, given: (given[0], given[0].cumsum(-1)))",
)


def test_running_sums_may_be_others_whose_differences_a_state_space_model_takes_exponentials_of():
    def decays(sums):
        return torch.exp((sums[..., :, None] - sums[..., None, :]).tril())

    assert judged(DECAYS, lambda model, x: decays(scanned(x))).status is Status.CORRECT
    for shorter in (torch.bfloat16, torch.half):
        rounded = judged(DECAYS, lambda model, x, s=shorter: decays(x.cumsum(-1).to(s).float()))
        assert rounded.status is Status.WRONG_VALUE


CUT = """
def cut(x):
    is_read_by_tensor_cores = x.dtype is torch.float32
    return (x.view(torch.int32) & -0x2000).view(torch.float32) if is_read_by_tensor_cores else x
"""


def filters(terms, bias):
    """A product as tensor cores make it of fp32, less a bias, and cut off at zero."""
    return task(
        f"F.relu(cut(self.w) @ cut(x) - {bias})",
        f"[torch.rand({terms}, {min(4096, 2**22 // terms)})]",
        setup=f"self.w = nn.Parameter(torch.randn(256, {terms}))",
        extra=CUT,
    )


@pytest.mark.slow  # its parts are quick in test_tolerance
@pytest.mark.parametrize(("terms", "bias"), [(27, 0), (576, 0), (576, 14), (576, 28), (8192, 0)])
def test_where_eager_cuts_operands_short_others_may_round_them(terms, bias):
    """However many terms, and whatever is cut off at zero (of 28 nearly all, and whole blocks):
    eager's errors all make outcomes smaller, and of what is just below zero it has none.
    """

    case = filters(terms, bias)

    def by(rounding):
        return verdicts(case, lambda model, x: torch.relu(rounding(model.w) @ rounding(x) - bias))

    for rounding in (rounded_to_tf32, cut_to_tf32):
        assert set(by(rounding).values()) == {Status.CORRECT}
    for shorter in (torch.bfloat16, torch.float8_e4m3fn):
        found = by(lambda x, s=shorter: x.to(s).float())
        assert Status.WRONG_VALUE in found.values()
        assert bias or found["task"] is Status.WRONG_VALUE


BESIDE_A_COPY = task(
    "torch.cat([x, 100 * (cut(x[:20]) @ cut(x.T))])", "[torch.randn(256, 256)]", extra=CUT
)
SMALL_ROWS = task(
    "F.relu(cut(self.w) @ cut(x))",
    "[torch.rand(27, 4096)]",
    setup="self.w = nn.Parameter(torch.randn(256, 27)); self.w.data[::16] *= 0.02",
    extra=CUT,
)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "spoil", [torch.zeros_like, lambda y: 1.01 * y, lambda y: y.to(torch.float8_e4m3fn).float()]
)
def test_what_eager_cuts_short_excuses_nothing_beside_it(spoil):
    """Not what is copied, nor small rows between large ones."""

    def copied(model, x):
        y = torch.cat([x, 100 * (cut_to_tf32(x[:20]) @ cut_to_tf32(x.T))])
        return torch.cat([y[:200], spoil(y[200:256]), y[256:]])

    def small(model, x):
        y = torch.relu(cut_to_tf32(model.w) @ cut_to_tf32(x))
        y[::16] = spoil(y[::16])
        return y

    assert set(verdicts(BESIDE_A_COPY, copied).values()) == {Status.WRONG_VALUE}
    assert set(verdicts(SMALL_ROWS, small).values()) == {Status.WRONG_VALUE}


IMAGES = task(
    "F.relu(F.conv2d(cut(x), cut(self.w)))",
    "[torch.rand(16, 8, 66, 66)]",
    setup="self.w = nn.Parameter(torch.randn(16, 8, 3, 3))",
    extra=CUT,
)


@pytest.mark.parametrize("is_by_products", [False, True])
def test_convolutions_are_cut_short_whatever_they_are_made_by(is_by_products, monkeypatch):
    """On a GPU fp64 has none that are fast: there matrix products stand for them."""
    if is_by_products:
        monkeypatch.setattr(reference_runs, "ByProducts", partial(ByProducts, "cpu"))

    def by(rounding):
        prepared.cache_clear()
        convolved = functional.conv2d
        return judged(
            IMAGES, lambda model, x: torch.relu(convolved(rounding(x), rounding(model.w)))
        )

    assert by(rounded_to_tf32).status is Status.CORRECT
    assert by(lambda x: x.bfloat16().float()).status is Status.WRONG_VALUE


def in_half(function):
    def candidate(model, *inputs):
        halves = (x.half() if x.is_floating_point() else x for x in inputs)
        return function(model, *halves).float()

    return candidate


def softmax_from(scores, maximum):
    powers = torch.exp(scores - maximum)
    return powers / powers.sum(-1, keepdim=True)


def attention_from_zero(model, q, k, v):
    """Its running maximum starts at zero, not at minus infinity."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return softmax_from(scores, scores.amax(-1, keepdim=True).clamp(min=0)) @ v


def layernorm_with(eps=1e-5, unbiased=False):
    def candidate(model, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=unbiased)
        return normalised(x, mean, variance, model, eps)

    return candidate


@pytest.mark.sample(13)
@pytest.mark.parametrize(
    ("case", "candidate"),
    [
        (LONG_SUM, lambda model, x: x.half().float().sum(-1)),
        (LONG_SUM, lambda model, x: x[..., :-1].sum(-1)),
        (LONG_SUM, lambda model, x: x[..., 1:].sum(-1)),
        (POSITIVE_SUM, lambda model, x: x.bfloat16().float().sum(-1)),
        (POSITIVE_SUM, lambda model, x: x[..., :-1].sum(-1)),
        (SCALAR_SUM, lambda model, x: x.half().float().sum()),
        (SCALAR_SUM, lambda model, x: x[:-1].sum()),
        (WHOLE_NORM, lambda model, x: (x / x.norm()).half().float()),
        (WHOLE_NORM, lambda model, x: x / x[:-1].norm()),
        (CUMULATIVE, lambda model, x: x.half().float().cumsum(-1)),
        (CUMULATIVE, lambda model, x: x.cumsum(-1) - x),
        (SOFTMAX, in_half(lambda model, x: torch.softmax(x, -1))),
        (SOFTMAX, lambda model, x: torch.softmax(x.bfloat16(), -1).float()),
        (SOFTMAX, lambda model, x: x.exp() / x.exp().sum(-1, keepdim=True)),
        (SOFTMAX, lambda model, x: x.exp() / x[:, :-1].exp().sum(-1, keepdim=True)),
        (SOFTMAX, lambda model, x: softmax_from(x, x.amax(-1, keepdim=True).clamp(min=0))),
        (WIDE_SOFTMAX, lambda model, x: softmax_from(x, x[:, :-1].amax(-1, keepdim=True))),
        (WIDE_SOFTMAX, lambda model, x: softmax_from(x, x[:, 1:].amax(-1, keepdim=True))),
        (PEAKED_SOFTMAX, lambda model, x: torch.zeros_like(x)),
        (PEAKED_SOFTMAX, in_half(lambda model, x: torch.softmax(8 * x, -1))),
        (LAYERNORM, layernorm_with(eps=0.0)),
        (LAYERNORM, layernorm_with(eps=1e-6)),
        (LAYERNORM, layernorm_with(unbiased=True)),
        (LAYERNORM, lambda model, x: functional.layer_norm(x, x.shape[1:])),
        (LAYERNORM, lambda model, x: functional.layer_norm(x, x.shape[1:], norm_of(model)[0])),
        (OFFSET_LAYERNORM, layernorm_with(eps=0.0)),
        (MATMUL, lambda model, x, y: rounded_to_tf32(x) @ rounded_to_tf32(y)),
        (MATMUL, in_half(lambda model, x, y: x @ y)),
        (MATMUL, lambda model, x, y: x[:, :-1] @ y[:-1]),
        (POSITIVE_MATMUL, lambda model, x, y: rounded_to_tf32(x) @ rounded_to_tf32(y)),
        (POSITIVE_MATMUL, lambda model, x, y: x[:, :-1] @ y[:-1]),
        (ATTENTION, in_half(lambda model, q, k, v: torch.softmax(q @ k.mT / 32**0.5, -1) @ v)),
        (ATTENTION, lambda model, q, k, v: torch.softmax(q @ k.mT / 6, -1) @ v),
        (ATTENTION, attention_from_zero),
        (GELU, lambda model, x: functional.gelu(x + model.b, approximate="tanh")),
        (GELU, lambda model, x: functional.gelu(x)),
        (TANH, in_half(lambda model, x: torch.tanh(x))),
        (TOKEN_LOSS, lambda model, x, y: functional.cross_entropy(x, y).expand(32)),
        (TOKEN_LOSS, lambda model, x, y: torch.logsumexp(x[:, 1:], 1) - x[range(32), y]),
    ],
)
def test_a_kernel_that_computes_less_fails_in_some_family(case, candidate):
    assert Status.WRONG_VALUE in verdicts(case, candidate).values()


@pytest.mark.parametrize("rows", ["torch.randn(31, 1024), torch.full((1, 1024), 3.3)",
                                  "torch.full((32, 1024), 3.3)"])  # fmt: skip
def test_a_norm_of_a_constant_row_may_be_off_by_the_rounding_of_its_mean(rows):
    case = task(
        "self.norm(x)",
        f"[torch.cat([{rows}])]" if "randn" in rows else f"[{rows}]",
        setup="self.norm = nn.LayerNorm(values[0])",
        init="[1024]",
    )

    def in_parts(model, x):
        mean = x.reshape(-1, 64, 16).sum(1).sum(1, keepdim=True) / 1024
        variance = (x - mean).square().mean(1, keepdim=True)
        return normalised(x, mean, variance, model)

    for candidate in (in_parts, welford_layernorm):
        assert judged(case, candidate).status is Status.CORRECT
