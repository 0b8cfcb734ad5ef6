"""Islands are apart but for migration, in prompts too.

Invariants:
1. What a prompt shows beside the parent is of the parent's island: OpenEvolve draws top and diverse
   programs there (`process_parallel.py`), ShinkaEvolve by default (`enforce_island_separation`).
   AdaEvolve shows the best of all islands, and unlike ones of the parent's.
2. Several parents of a step are of one island.
3. Programs of different speed that stand side by side are of one island.
"""

import re
from collections.abc import Mapping

import pytest

from evolve.core.model import ModelReply, ModelRequest
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SEED_SOURCE
from tests.search.models import ScriptedModel, answer
from tests.search.preset_run import reply, searched

PRESETS = {"kernel_smith": 5, "openevolve": 5, "shinka": 2, "cuda_l1_islands": 4}
_NUMBERED = re.compile(r"^NUMBER = (\d+)$", re.MULTILINE)


def other_speeds(request: ModelRequest, number: int) -> ModelReply:
    """A program that was never seen, of one of six speeds; a summary that quotes none."""
    if request.purpose == "summarise":
        return answer("- nothing yet")
    source = re.sub(r"^BLOCK = \d+", f"BLOCK = {16 << number % 6}", SEED_SOURCE, flags=re.MULTILINE)
    return reply(f"{source}\nNUMBER = {number}\n")


def islands_of(store: Store, run: RunRow, count: int) -> Mapping[str, int]:
    """The island that each program was made on: its parent's, or where the seed does not tell."""
    found: dict[str, int] = {}
    for step in store.steps(run.id):
        if step.parents and step.program:
            turn = step.sequence % count
            found.setdefault(step.program, found.get(step.parents[0], turn))
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_prompt_shows_programs_of_the_parents_island_only(preset: str, store: Store):
    """With kernel_smith, step 5 on island 0 showed programs of islands 3, 1, 4 and 2."""
    model = ScriptedModel(script=other_speeds)
    words = (f"search={preset}", "operators.tune=null", "archive.migration=none")
    limits = ("termination.proposals=40", "termination.wall_time=null")
    _, run = searched(store, *words, *limits, model=model)
    islands = islands_of(store, run, PRESETS[preset])
    by_number = {
        _NUMBERED.findall(store.source(program))[0]: island for program, island in islands.items()
    }
    shown = 0
    for asked in model.asked:
        seen = {by_number[number] for number in _NUMBERED.findall(asked.messages[1].content)}
        assert len(seen) <= 1
        shown += bool(seen)
    assert shown > 20
    assert len({*islands.values()}) == PRESETS[preset]


@pytest.mark.slow
def test_adaevolve_shows_the_best_of_all_islands(store: Store):
    model = ScriptedModel(script=other_speeds)
    searched(
        store, "search=adaevolve", "operators.tune=null", "archive.migration=none", model=model
    )
    run = store.run("demo")
    islands: dict[str, set[str]] = {}
    for slot, elite in store.slots(run.id).items():
        islands.setdefault(slot[0], set()).update(_NUMBERED.findall(store.source(elite.program)))
    last = {*_NUMBERED.findall(model.asked[-1].messages[1].content)}
    assert sum(bool(last & island) for island in islands.values()) > 1
