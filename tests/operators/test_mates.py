"""Which programs a crossover shows beside its first parent.

Invariants:
1. Of other programs those are shown that are faster somewhere: in a kernel, or in a case.
2. A crossover is declined if no further parent has anything to give.
"""

from dataclasses import replace

import pytest

from evolve.core.program import Program
from evolve.core.protocols import Declined
from operators import Crossover
from tests.operators.history import History, prompt_of, request_of, section
from tests.operators.prompt_states import (
    H100,
    SOFTMAX_KERNEL,
    history_of,
    plant,
    softmax_h100,
    verdict,
)

SOFTMAX = softmax_h100()


def test_mates_are_those_that_have_another_kernel_faster():
    """Two programs of one generator were joined whose kernels were the same."""
    history = history_of(SOFTMAX.task)
    times = {"a": (600, 400), "b": (605, 405), "c": (900, 300)}  # us, of `pack` and of `product`
    for name, (pack, product) in times.items():
        words = (
            f"kernel 'pack': grid 64, 60% of the time, {pack} us, 32 registers\n"
            f"kernel 'product': 40% of the time, {product} us\n"
            "kernel 'void of(another kind)': 1% of the time, 1 us"
        )
        found = verdict((pack + product) / 1e3, 8.0, 0.5, "memory", words)
        plant(history, SOFTMAX_KERNEL + f"# {name}\n", found, note=name)
    best, same, other = (each.program[:8] for each in history.elites())
    asked = request_of(
        Crossover(mates="different"), history.context(history.elites()[:2], device=H100)
    )
    said = prompt_of(asked)
    assert f"program {best} has the fastest kernel pack: 0.6 ms against 0.9 ms" in said
    assert f"program {other} has the fastest kernel product: 0.3 ms against 0.4 ms" in said
    assert f"program {same}" not in section(said, "The parents")


def test_mates_are_those_that_win_where_the_parent_does_not():
    history = history_of(SOFTMAX.task)
    times = {"a": (1.0, 4.0), "b": (1.1, 4.1), "c": (3.0, 2.0)}
    for name, each in times.items():
        rows = [
            verdict(t, 8.0, 0.5, "memory", "", case=case).cases[0]
            for case, t in zip(("wide", "tall"), each, strict=True)
        ]
        found = verdict(sum(each) / 2, 8.0, 0.5, "memory", "")
        program = Program(SOFTMAX_KERNEL + f"# {name}\n")
        elite = history.judge(program, verdict=replace(found, cases=tuple(rows)))
        history._elites[program.digest] = elite
    by_name = {
        name: next(e for e in history.elites() if history.source(e.program).endswith(f"# {name}\n"))
        for name in times
    }
    parents = [by_name["a"], by_name["b"]]
    asked = request_of(Crossover(mates="different"), history.context(parents, device=H100))
    assert f"program {by_name['c'].program[:8]} is the fastest in case tall" in prompt_of(asked)
    plain = history.context([by_name["a"], by_name["c"]], device=H100)
    parents = section(prompt_of(request_of(Crossover(), plain)), "The parents")
    assert f"program {by_name['b'].program[:8]}" not in parents


def of_speed(*given: tuple[str, float]) -> History:
    """A run with programs of these texts and speedups, the first being the best."""
    history = history_of(SOFTMAX.task)
    for source, speedup in given:
        plant(history, source, verdict(8.0 / speedup, 8.0, 0.5, "memory", ""), note="")
    return history


ANOTHER = SOFTMAX_KERNEL.replace("total = tl.zeros", "rest = tl.zeros").replace("total", "rest")


@pytest.mark.parametrize("mates", ["selected", "different"])
@pytest.mark.parametrize(
    "second",
    [
        (SOFTMAX_KERNEL.replace("WARPS = 8", "WARPS = 16"), 3.9),  # a value of a tunable
        (SOFTMAX_KERNEL + "# said otherwise\n", 3.9),
        (ANOTHER, 0.35 * 4),  # another program, and slower everywhere
        (ANOTHER, 4 / 13),
    ],
)
def test_a_crossover_is_declined_if_the_second_parent_has_nothing_to_give(mates, second):
    history = of_speed((SOFTMAX_KERNEL, 4.0), second)
    for parents in (history.elites(), history.elites()[::-1]):
        declined = Crossover(mates=mates).propose(history.context(parents, device=H100))
        assert isinstance(declined, Declined), declined
        assert "lacks" in declined.reason


@pytest.mark.parametrize("mates", ["selected", "different"])
def test_a_slower_parent_with_parts_of_its_own_is_crossed(mates):
    history = of_speed((SOFTMAX_KERNEL, 4.0), (ANOTHER, 3.0))
    for parents in (history.elites(), history.elites()[::-1]):
        assert request_of(Crossover(mates=mates), history.context(parents, device=H100))


def test_of_three_parents_only_those_that_have_something_to_give_are_shown():
    history = of_speed((SOFTMAX_KERNEL, 4.0), (ANOTHER, 3.0), (ANOTHER + "# too\nX = 1\n", 0.4))
    asked = request_of(Crossover(count=3), history.context(history.elites(), device=H100))
    shown = section(prompt_of(asked), "The parents")
    assert [f"program {e.program[:8]}" in shown for e in history.elites()] == [True, True, False]
