"""One module, called as it was judged and in every other way; `--save FILE` of all outcomes."""

import sys

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16))

    def forward(self, x, factor=2.0):
        return x * self.weight * factor


def main():
    torch.manual_seed(0)
    module, x, outcomes = Scale().eval(), torch.randn(8, 16), []

    def call(*args, **kwargs):
        outcomes.append(module(*args, **kwargs))

    with torch.no_grad():
        call(x, 2.0)
        if "--judged-only" in sys.argv:
            return
        module.weight.fill_(3.0)  # a winner has to see the new values
        call(x, 2.0)
        module.weight = nn.Parameter(torch.rand(16))
        call(x, 2.0)
        call(x, 3.0)
        call(x, factor=2.0)
        call(x[:4], 2.0)
        call(torch.randn(16, 8).T, 2.0)
        call(torch.randn(8 * 16 + 1)[1:].view(8, 16), 2.0)
        with torch.autocast("cpu", torch.bfloat16):
            call(x, 2.0)
        module.train()
        call(x, 2.0)
        module.eval()
        handle = module.register_forward_hook(lambda *_: None)
        call(x, 2.0)
        handle.remove()
        module.double()
        call(x, 2.0)
        module.float()
    call(x, 2.0)
    outcomes[-1].sum().backward()
    outcomes.append(module.weight.grad)
    if "--save" in sys.argv:
        torch.save(outcomes, sys.argv[-1])


main()
