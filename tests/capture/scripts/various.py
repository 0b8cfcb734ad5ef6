"""Modules as users write them: configurations, caches, keyword arguments, in-place writes."""

import argparse
from functools import partial

import torch
import torch.nn.functional as F
from layers import Config
from torch import nn

GAIN = 0.5


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1) * sin + x * cos


class Model(nn.Module):
    """Has the name of the convention, and arguments of the command line."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        self.angle = nn.Parameter(torch.rand(options.dim))

    def forward(self, x):
        return rotated(x, self.angle.cos(), self.angle.sin()) * self.options.gain


class Cached(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.project = nn.Linear(config.dim, config.dim)
        self.register_buffer("cache", torch.zeros(2, 8, config.dim), persistent=False)

    def forward(self, x, start: int):
        self.cache[:, start : start + x.shape[1]] = self.project(x) * GAIN
        return {"last": self.cache[:, start], "all": self.cache.sum(1)}


class Each(nn.Module):
    def __init__(self, function, norm=nn.LayerNorm):
        super().__init__()
        self.function, self.norm = function, norm(64)

    def forward(self, *tensors, scale=1.0, **options):
        return tuple(self.function(self.norm(x)) * scale for x in tensors)


class Half(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.to(torch.bfloat16)).float()


class InPlace(nn.Module):
    def forward(self, x, index):
        x.add_(1.0)
        return x[index]


class SetLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1

    def forward(self, x):
        return x * self.factor


class Opaque(nn.Module):
    def forward(self, x, log):
        log.append(1)
        return x * 2


class Fill(nn.Module):
    def forward(self, x, mask, value):
        return x.masked_fill(mask, value)


class Log(list):
    pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--gain", type=float, default=2.0)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    model, cached = Model(options), Cached(Config())
    each = Each(F.silu, norm=partial(nn.LayerNorm, eps=1e-3))
    mixed = nn.Sequential(nn.Linear(64, 32), nn.GELU(approximate="tanh"), nn.Dropout(0.5)).eval()
    half, in_place = Half(nn.Linear(64, 64).to(torch.bfloat16)), InPlace()
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 64, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    compiled = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    if options.compile:
        compiled = torch.compile(compiled, backend="eager")
    set_later, opaque, fill, mixed_types = SetLater(), Opaque(), Fill(), nn.Linear(64, 3)
    set_later.factor = 3
    with torch.no_grad():
        for step in range(3):
            x = torch.randn(2, 4, 64)
            model(x)
            cached(x, start=4 * (step % 2))
            each(x, x + 1, scale=0.5)
            mixed(x)
            half(x)
            in_place(x.clone(), torch.tensor([1, 0]))
            encoder(x)
            compiled(x)
            set_later(x)
            opaque(x, Log())
            fill(x, torch.ones(4, 64).tril().bool(), float("-inf"))
            F.softmax(torch.randn(4, 2 + step % 2), dim=-1)
            with torch.autocast("cpu", torch.bfloat16):
                mixed_types(x)
    with torch.inference_mode():
        nn.Softplus()(torch.randn(5))
    raise SystemExit(0)


if __name__ == "__main__":
    main()
