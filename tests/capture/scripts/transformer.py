"""A small transformer that reads tokens, as a user would write it."""

import argparse
import sys

import torch
from layers import Config, Layer, RMSNorm
from torch import nn


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(256, config.dim)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = RMSNorm(config.dim)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Transformer(Config()).to(options.device).eval()
    with torch.no_grad():
        for _ in range(options.steps):
            model(torch.randint(0, 256, (8, options.tokens), device=options.device))
    print("read", options.steps)


if __name__ == "__main__":
    sys.exit(main())
