"""Training whose time goes into one elementwise function, forward and backward."""

import argparse

import torch
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--device", default="cpu")
options.add_argument("--rows", type=int, default=512)
options.add_argument("--steps", type=int, default=6)
OPTIONS = options.parse_args()


def gated(x, gate):
    return x * torch.relu(gate).square()


torch.manual_seed(0)
torch.set_num_threads(1)
x, gate = (nn.Parameter(torch.randn((OPTIONS.rows, 1024), device=OPTIONS.device)) for _ in range(2))
optimizer = torch.optim.SGD([x, gate], lr=1e-3)
for _ in range(OPTIONS.steps):
    optimizer.zero_grad()
    gated(x, gate).square().mean().backward()
    optimizer.step()
print("trained", OPTIONS.steps)
