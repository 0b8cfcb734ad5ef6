"""A small transformer that reads random tokens: a script to find the slow parts of.

evolve tasks capture examples/own_script/train.py --out tasks -- --steps 20
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    dim: int = 64
    heads: int = 4
    layers: int = 4


class NewGELU(nn.Module):
    """GELU as GPT-2 writes it out."""

    def forward(self, x):
        inner = 0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.norm, self.last_norm = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)
        self.up, self.down = (
            nn.Linear(config.dim, 4 * config.dim),
            nn.Linear(4 * config.dim, config.dim),
        )
        self.gelu = NewGELU()

    def forward(self, x):
        batch, tokens, dim = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        return x + self.down(self.gelu(self.up(self.last_norm(x))))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(256, config.dim)
        self.layers = nn.Sequential(*(Layer(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.dim, 256)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--train", action="store_true", help="with backward passes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Transformer(Config()).to(options.device).train(options.train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torch.set_grad_enabled(options.train):
        for _ in range(options.steps):
            tokens = torch.randint(0, 256, (8, 129), device=options.device)
            scores = model(tokens[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            if options.train:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
