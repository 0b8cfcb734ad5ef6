"""Layers of the transformer, beside its script as users have them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    dim: int = 64
    heads: int = 4
    layers: int = 4


class RMSNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class NewGELU(nn.Module):
    """GELU as GPT-2 writes it out."""

    def forward(self, x):
        inner = 0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x, *, causal=False):
        batch, tokens, dim = x.shape
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return {"out": self.out(mixed.transpose(1, 2).reshape(batch, tokens, dim))}


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = RMSNorm(config.dim)
        self.attention = Attention(config)
        self.last_norm = RMSNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), NewGELU(), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x), causal=True)["out"]
        return x + self.mlp(self.last_norm(x))
