"""From a module of a network to a kernel that takes its place, in Python.

python examples/python_api/search_a_module.py [wall time, e.g. 5m]
"""

import sys

import torch
from torch import nn

import evolve

TOKENS, FEATURES = 512, 1024


class GatedNorm(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        # Random, as if trained: with ones, a kernel could leave the weight out and still be right.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.weight * torch.sigmoid(gate)


def make_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES)]


def make_init_inputs() -> list[int]:
    return [FEATURES]


def tell(event: evolve.Event) -> None:
    if isinstance(event, evolve.Judged):
        best = " (best so far)" if event.is_best else ""
        print(f"step {event.sequence}: {event.operator}, {event.status}{best}", flush=True)


def main(budget: str | dict[str, object] = "5m") -> None:
    result = evolve.optimize(
        GatedNorm,
        inputs=make_inputs,
        init_inputs=make_init_inputs,
        search="quick",
        budget=budget,
        on_event=tell,
    )
    print(result)
    if result.speedup is None:
        return
    # From here on the winner's code runs in this process, outside of the sandbox: read it first.
    reference = GatedNorm(*make_init_inputs())
    kernel = result.module()(*make_init_inputs())
    kernel.load_state_dict(reference.state_dict())
    inputs = make_inputs()
    torch.testing.assert_close(kernel(*inputs), reference(*inputs), rtol=1e-4, atol=1e-4)
    print("the kernel and the module agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
