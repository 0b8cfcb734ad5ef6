"""Tasks in 16 bits: kernels round what they have computed before a product takes it.

Invariants: in bf16 and fp16, honest kernels for attention and for chains that end in a product pass
in every input family, each with what it rounds at a scale of its own; arithmetic that is shorter
than the task's, and every part of the work left out, fails in at least one.
"""

import math
from functools import lru_cache, partial

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from evolve.core.evaluation import Status
from evolve.worker.correctness.sensitivity import intermediates_rounded
from tests.worker.judging import judged, loaded_case, one_case, prepared, task_source, verdicts

LOG2_E = math.log2(math.e)
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ATTENTION = task_source(
    "F.scaled_dot_product_attention(q, k, v, is_causal=CAUSAL)",
    "[2.5 * torch.randn(1, 2, 1024, WIDTH), *(torch.randn(1, 2, 256, WIDTH) for _ in range(2))]",
    arguments="q, k, v",
    extra="WIDTH, CAUSAL = 64, False",
)
CHAINS = {
    "mlp": task_source(
        "F.gelu(x @ self.first + self.bias) @ self.second",
        "[torch.randn(96, 256)]",
        setup="self.first, self.second = (nn.Parameter(torch.randn(256, 256) / 16) "
        "for _ in range(2)); self.bias = nn.Parameter(torch.randn(256))",
    ),
    "softmax": task_source(
        "torch.softmax(4 * x, -1) @ y",
        "[torch.randn(96, 512), torch.randn(512, 64)]",
        arguments="x, y",
    ),
    "norm": task_source(
        "self.norm(x) @ self.weight",
        "[torch.randn(96, 256)]",
        setup="self.norm = nn.LayerNorm(256); "
        "self.weight = nn.Parameter(torch.randn(256, 128) / 16)",
    ),
}


@lru_cache
def attention(precision, width, causal=False):
    return loaded_case(ATTENTION, precision=precision, cases=one_case(WIDTH=width, CAUSAL=causal))


@lru_cache
def chain(name, precision):
    return loaded_case(CHAINS[name], precision=precision)


def is_wrong_in_some_family(case, candidate):
    return any(
        judged(case, candidate, family).status is Status.WRONG_VALUE for family in case.families()
    )


def flash(
    model,
    q,
    k,
    v,
    *,
    block=64,
    base=2,
    fused=False,
    lazy=0.0,
    sums_rounded=False,
    causal=False,
    scale=1.0,
    start=-math.inf,
    keys=None,
    rescaled=True,
    weights=None,
    scores=torch.float32,
    sums=torch.float32,
):
    """FlashAttention (Dao et al., 2022) with its products in fp32, of rounded weights.

    `fused`: the maximum is subtracted by the instruction that multiplies by the scale, without a
    rounding between, as FlashAttention 2 does. `lazy`: the maximum follows only where it has grown
    by more (FlashAttention 4). The arguments from `scale` on are mistakes.
    """
    power = torch.exp2 if base == 2 else torch.exp
    factor = torch.tensor(scale * q.shape[-1] ** -0.5 * (LOG2_E if base == 2 else 1)).float()
    largest = torch.full((*q.shape[:-1], 1), start)
    total, value = torch.zeros_like(largest), torch.zeros(q.shape)
    rows = torch.arange(q.shape[-2])[:, None]
    for first in range(0, keys or k.shape[-2], block):
        some, of = (
            k[..., first : first + block, :].float(),
            v[..., first : first + block, :].float(),
        )
        found = (q.float() @ some.mT).to(scores).float()
        if causal:
            columns = first + torch.arange(some.shape[-2])
            found = found.masked_fill(columns > rows, -math.inf)
        found = found.double() * factor.double() if fused else found * factor
        new = torch.maximum(largest, found.amax(-1, keepdim=True).float())
        new = torch.where(new - largest > lazy, new, largest)
        powers = power((found - new).float())
        kept = power(largest - new) if rescaled else 1.0
        short = powers.to(weights or v.dtype).float()
        total = total * kept + (short if sums_rounded else powers).sum(-1, keepdim=True)
        value = (value * kept + short @ of).to(sums).float()
        largest = new
    return (value / total).to(v.dtype)


def in_two_parts(model, q, k, v):
    """Keys in two parts, whose outcomes are joined (split keys, Flash-Decoding)."""
    parts = []
    for some, of in zip(k.chunk(2, -2), v.chunk(2, -2), strict=True):
        scores = q.float() @ some.float().mT * q.shape[-1] ** -0.5
        largest = scores.amax(-1, keepdim=True)
        powers = torch.exp(scores - largest)
        value = powers.to(v.dtype).float() @ of.float()
        parts.append((largest, powers.sum(-1, keepdim=True), value))
    most = torch.maximum(parts[0][0], parts[1][0])
    total = sum(sums * torch.exp(largest - most) for largest, sums, _ in parts)
    return (sum(made * torch.exp(of - most) for of, _, made in parts) / total).to(v.dtype)


def weights_divided(model, q, k, v):
    """The whole softmax first, rounded; then the product."""
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1).to(v.dtype).float() @ v.float()).to(v.dtype)


HONEST = {
    "powers of two, fused": partial(flash, fused=True),
    "powers of two": flash,
    "exponentials, fused": partial(flash, base=math.e, fused=True, block=32),
    "exponentials": partial(flash, base=math.e, block=128),
    "sum of rounded weights": partial(flash, fused=True, sums_rounded=True),
    "late maximum": partial(flash, lazy=8.0, block=32),
    "late maximum, fused": partial(flash, lazy=8.0, fused=True, block=128),
    "two parts": in_two_parts,
    "divided weights": weights_divided,
}


@pytest.mark.sample(12)  # each method, width and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("method", HONEST)
def test_attention_with_rounded_weights_passes_in_every_family(method, width, precision):
    found = verdicts(attention(precision, width), HONEST[method])
    assert set(found.values()) == {Status.CORRECT}, found


@pytest.mark.parametrize("precision", HALVES)
def test_causal_attention_with_rounded_weights_passes_in_every_family(precision):
    found = verdicts(
        attention(precision, 128, causal=True), partial(flash, fused=True, causal=True)
    )
    assert set(found.values()) == {Status.CORRECT}, found


def shifted_mask(model, q, k, v):
    size = (q.shape[-2], k.shape[-2])
    seen = torch.ones(size, dtype=torch.bool).tril(1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


MISTAKES = {
    "maximum from zero": partial(flash, start=0.0),
    "no scale": partial(flash, scale=8.0),
    "wrong scale": partial(flash, scale=1.02),
    "last block left out": partial(flash, keys=192),
    "last key left out": lambda model, q, k, v: flash(model, q, k[..., :-1, :], v[..., :-1, :]),
    "sums not rescaled": partial(flash, rescaled=False),
    "weights in 8 bits": partial(flash, weights=torch.float8_e4m3fn),
    "sums in bf16": partial(flash, block=16, sums=torch.bfloat16),
    "scores in bf16": partial(flash, scores=torch.bfloat16),
    "queries in 8 bits": lambda model, q, k, v: flash(
        model, q.to(torch.float8_e4m3fn).to(q.dtype), k, v
    ),
    "values in 8 bits": lambda model, q, k, v: flash(
        model, q, k, v.to(torch.float8_e4m3fn).to(v.dtype)
    ),
    "no maximum": lambda model, q, k, v: (
        (p := torch.exp(q.float() @ k.float().mT * q.shape[-1] ** -0.5)).to(v.dtype).float()
        @ v.float()
        / p.sum(-1, keepdim=True)
    ).to(v.dtype),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_attention_that_computes_less_fails_in_some_family(mistake, width, precision):
    assert is_wrong_in_some_family(attention(precision, width), MISTAKES[mistake])


@pytest.mark.sample(4)  # each mistake and precision
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("mistake", [flash, shifted_mask, partial(flash, causal=True, keys=192)])
def test_a_causal_mask_that_is_wrong_fails_in_every_family(mistake, precision):
    found = verdicts(attention(precision, 64, causal=True), mistake)
    assert set(found.values()) == {Status.WRONG_VALUE}, found


def mlp(model, x, *, to=None, features=256, bias=True, gelu="none"):
    of = to or x.dtype
    hidden = x.float() @ model.first.float() + (model.bias.float() if bias else 0)
    hidden = functional.gelu(hidden, approximate=gelu).to(of).float()[:, :features]
    return (hidden @ model.second.float()[:features]).to(x.dtype)


def online(model, x, y, *, to=None, block=64, fused=False, terms=512, start=-math.inf):
    """Softmax and product in one go: weights are divided by their sum in the end."""
    x, y, short = x[:, :terms], y[:terms], y.dtype
    factor = torch.tensor(4 * LOG2_E).float()
    largest = torch.full((x.shape[0], 1), start)
    total, value = torch.zeros_like(largest), torch.zeros(x.shape[0], y.shape[1])
    for some, of in zip(x.float().split(block, 1), y.float().split(block), strict=True):
        some = some.double() * factor.double() if fused else some * factor
        new = torch.maximum(largest, some.amax(1, keepdim=True).float())
        powers, kept = torch.exp2((some - new).float()), torch.exp2(largest - new)
        total = total * kept + powers.sum(1, keepdim=True)
        value = value * kept + powers.to(to or short).float() @ of
        largest = new
    return (value / total).to(short)


def normed(model, x, *, to=None, weight=True, features=256):
    scale, offset = model.norm.weight.float(), model.norm.bias.float()
    rows = x.float()
    variance, mean = torch.var_mean(rows, 1, correction=0, keepdim=True)
    rows = (rows - mean) * torch.rsqrt(variance + 1e-5)
    rows = (rows * scale if weight else rows) + offset
    rows = rows.to(to or x.dtype).float()[:, :features]
    return (rows @ model.weight.float()[:features]).to(x.dtype)


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("mlp", mlp),
        ("mlp", partial(mlp, to=torch.float32)),
        ("softmax", online),
        ("softmax", partial(online, block=128, fused=True)),
        ("softmax", partial(online, to=torch.float32)),
        ("norm", normed),
        ("norm", partial(normed, to=torch.float32)),
    ],
)
def test_chains_that_end_in_a_product_pass_in_every_family(name, candidate, precision):
    found = verdicts(chain(name, precision), candidate)
    assert set(found.values()) == {Status.CORRECT}, found


@pytest.mark.sample(8)
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("mlp", partial(mlp, to=torch.float8_e4m3fn)),
        ("mlp", partial(mlp, features=255)),
        ("mlp", partial(mlp, bias=False)),
        ("softmax", partial(online, to=torch.float8_e4m3fn)),
        ("softmax", partial(online, terms=511)),
        ("softmax", partial(online, start=0.0)),
        ("norm", partial(normed, to=torch.float8_e4m3fn)),
        ("norm", partial(normed, features=255)),
        ("norm", partial(normed, weight=False)),
    ],
)
def test_a_chain_that_computes_less_fails_in_some_family(name, candidate, precision):
    assert is_wrong_in_some_family(chain(name, precision), candidate)


@pytest.mark.parametrize("name", ["attention", *CHAINS])
def test_what_the_reference_is_given_is_not_moved_and_what_it_computes_is(name):
    """By just one rounding, whatever operations torch has for it."""
    case = attention("bf16", 64) if name == "attention" else chain(name, "bf16")
    model, inputs, expected = prepared(case, "task")
    outcomes = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            outcomes += intermediates_rounded(
                [torch.bfloat16], "probe", model, inputs, None, together=True
            )
    for moved in outcomes:
        torch.testing.assert_close(moved, (1 + 2**-8) * expected.truth[0], rtol=1e-9, atol=1e-9)
