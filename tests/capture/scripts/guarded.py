"""One module, called as it was judged and in every other way."""

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
    module, x = Scale().eval(), torch.randn(8, 16)
    with torch.no_grad():
        module(x, 2.0)
        if "--judged-only" in sys.argv:
            return
        module.weight.fill_(3.0)  # a winner has to see the new values
        module(x, 2.0)
        module.weight = nn.Parameter(torch.rand(16))
        module(x, 2.0)
        module(x, 3.0)
        module(x, factor=2.0)
        module(x[:4], 2.0)
        module(torch.randn(16, 8).T, 2.0)
        module(torch.randn(8 * 16 + 1)[1:].view(8, 16), 2.0)
        with torch.autocast("cpu", torch.bfloat16):
            module(x, 2.0)
        module.train()(x, 2.0)
        module.eval()
        handle = module.register_forward_hook(lambda *_: None)
        module(x, 2.0)
        handle.remove()
        module.double()(x, 2.0)
        module.float()
    module(x, 2.0).sum().backward()


main()
