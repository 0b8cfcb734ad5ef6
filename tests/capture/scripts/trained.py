"""Training that uses a module in all the ways that matter to its backward pass."""

import argparse

import torch
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--save")
options.add_argument("--odd", action="store_true", help="calls that a winner must not make too")
options.add_argument("--elsewhere", action="store_true", help="a gradient of another tensor")
options.add_argument("--steps", type=int, default=3)
options.add_argument("--second", action="store_true", help="penalties on gradients and curvature")
options.add_argument("--graph", action="store_true", help="of gradients, of which none is taken")
OPTIONS = options.parse_args()
SHIFT = nn.Parameter(torch.zeros(16))


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = None

    def forward(self, x, gain):
        y = torch.tanh(x * self.weight) * gain
        return y if self.shift is None else y + self.shift[0]


def silu_mean(x):
    return (x * torch.sigmoid(x)).mean(1)


def noisy(x):
    return x * torch.rand_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.first, self.second = Scaled(16), Scaled(16)

    def forward(self, x):
        x = self.first(x, 2.0)  # needs no gradient itself
        x = self.first(self.inner(x), gain=2.0) + self.first(self.inner(x), 2.0)
        x = self.second(x, 2.0)
        x = x.mul_(0.5)
        return silu_mean(x)


def odd(net, x):
    net.first.weight.requires_grad_(False)
    silu_mean(net(x)[:, None] * torch.ones(16)).sum().backward()  # a frozen parameter
    net.first.weight.requires_grad_(True)
    with torch.no_grad():
        net(x)
    loss = net(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    y = net.inner(x)
    z = silu_mean(y)
    try:
        with torch.no_grad():
            y.add_(1.0)
        z.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    handle = net.first.register_full_backward_hook(lambda *_: None)
    net(x).sum().backward()
    handle.remove()


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW([*net.parameters(), SHIFT], lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
losses = []
for _ in range(OPTIONS.steps):
    optimizer.zero_grad()
    x = torch.randn(8, 16)
    loss = silu_mean(noisy(net.inner(x))).sum() + (net(x) ** 2).sum()
    if OPTIONS.second:
        (gradient,) = torch.autograd.grad(loss, net.first.weight, create_graph=True)
        (curvature,) = torch.autograd.grad(gradient.sum(), net.first.weight, create_graph=True)
        loss = loss + 0.01 * (gradient.square().sum() + curvature.square().sum())
    if OPTIONS.graph:
        torch.autograd.grad(loss, [*net.parameters()], create_graph=True)
    loss.backward()
    if OPTIONS.odd:
        odd(net, x)
    if OPTIONS.elsewhere:
        net.second.shift = [SHIFT]  # no parameter of the module
        net(x).sum().backward()
        net.second.shift = None
    optimizer.step()
    scheduler.step()
    losses.append(loss.detach())
if OPTIONS.save:
    torch.save([losses, *(one.detach() for one in net.parameters()), SHIFT.detach()], OPTIONS.save)
