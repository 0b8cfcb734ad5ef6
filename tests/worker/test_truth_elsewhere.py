"""The fp64 truth if the GPU has no memory for it: by the CPU, when nothing can be let go.

Invariants:
1. It is what the GPU would have given, for outcomes that move with rounding too.
2. A reference that draws random numbers has none: another device draws others.
3. What the judge keeps for later is let go of before, and may be enough.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from evolve.worker.base import shortage
from evolve.worker.correctness import oracle, reference_runs
from evolve.worker.session.cache import Store


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0) * 2 + x


class Dropped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every first forward in fp64 finds no memory, as if the inputs were on a full GPU."""
    forward: Callable[..., Any] = reference_runs.forward

    def once(model: nn.Module, inputs: list[Any], *modes: Any) -> Any:
        if not any(isinstance(mode, reference_runs._NoDraws) for mode in modes):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(model, inputs, *modes)

    monkeypatch.setattr(reference_runs, "CPU", torch.device("cpu", 0))  # not where the inputs are
    monkeypatch.setattr(reference_runs, "forward", once)


def expected(model: nn.Module, x: torch.Tensor) -> oracle.Expected:
    return oracle.expect("task", model, [x], accumulation="ieee", even=False)


def test_the_cpu_works_out_the_truth_and_how_far_outcomes_move(request):
    x = torch.randn(300)
    usual = expected(Scaled(), x)
    usual_budgets = usual.wide_budgets
    request.getfixturevalue("short")
    with shortage.alone():
        found = expected(Scaled(), x)
        budgets = found.wide_budgets
    assert torch.equal(found.truth[0], usual.truth[0])
    assert budgets[0] is not None
    assert usual_budgets[0] is not None
    torch.testing.assert_close(budgets[0].rms, usual_budgets[0].rms, rtol=1.0, atol=0)


@pytest.mark.usefixtures("short")
def test_while_memory_can_still_become_free_nothing_is_worked_out_elsewhere():
    with pytest.raises(torch.OutOfMemoryError):
        expected(Scaled(), torch.randn(300))


@pytest.mark.usefixtures("short")
def test_random_numbers_are_drawn_by_no_other_device():
    with shortage.alone(), pytest.raises(torch.OutOfMemoryError, match="draws random numbers"):
        expected(Dropped().train(), torch.randn(300))


@pytest.mark.parametrize("keep", [
    lambda store: store.get(("small",), object, lambda _: 1),
    lambda store: store.passing(("large",), object, lambda _: 60, 60),
], ids=["kept", "passing"])  # fmt: skip
def test_what_is_kept_for_later_is_let_go_of_before_another_device_does_the_work(keep):
    """Where the truth has room then, it is worked out at once, and not half a minute later."""
    store, found = Store(100), []

    def make():
        found.append(shortage.is_alone())
        if len(found) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "made"

    with shortage.alone():
        keep(store)
        assert store.made(make) == "made"
        assert found == [False, True]
        assert store.made(make) == "made"  # nothing is kept any more
    assert found == [False, True, True]
    keep(store)
    store.made(make)
    assert not found[-1]  # others may have what they can let go of
