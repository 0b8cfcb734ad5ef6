"""Presets on landscapes: one for each engine, real operators, and a scripted model that they ask.

Invariants:
1. Behind each engine the model climbs, asked over HTTP.
2. The same run takes the same steps. The lists were written down when this test was: a change that
   nobody meant shows here, one that is meant changes them.
"""

import pytest

from evolve.app import components
from evolve.core.randomness import stream
from evolve.store import RunRow, Store
from evolve.testing.landscapes import family
from evolve.testing.model_server import ModelServer, Request
from tests.search.composed import preset, searched, verified_progress
from tests.search.landscape_model import answer

ENGINES = {
    "population": "kernel_smith",
    "queue": "polca",
    "tree": "mcts",
    "lineage": "mtmc",
    "best_of_n": "best_of_n",
}


@pytest.mark.slow  # presets search with a model in cli/test_presets
@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_scripted_model_climbs_behind_real_operators(engine: str, store):
    landscape = family(2)["noisy"]

    def script(request: Request) -> str:
        rng = stream(0, "script", request.number)
        return answer(request.body["messages"][1]["content"], landscape, rng)

    with ModelServer(script) as server:
        config = preset(ENGINES[engine], "llm.slots=1", f"llm.api_base={server.api_base}")
        model = components.build_model(config)
        search = searched(store, landscape, config, seed=2, evaluations=30, model=model)
        assert server.deliveries > 10
    made = verified_progress(store, search.run, landscape)
    print(f"{engine}: {made:.2f}")
    assert made > 0.15


def steps_of(store: Store, run: RunRow, landscape) -> list[str]:
    """Every step as `operator<parent:outcome`: parents are steps, outcomes true scores or words."""
    made: dict[str, int] = {}
    found = []
    for step in store.steps(run.id):
        parent = made.get(step.parents[0], "-") if step.parents else "-"
        outcome = "failed" if step.failure else str(step.status)
        if step.program:
            made.setdefault(step.program, step.sequence)
            if step.ratios:
                outcome = f"{landscape.progress(store.source(step.program)):.2f}"
        found.append(f"{step.operator}<{parent}:{outcome}")
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_takes_the_steps_that_it_took(engine: str, store):
    landscape = family(2)["multi_modal"]
    search = searched(store, landscape, preset(ENGINES[engine]), seed=2, evaluations=20)
    assert steps_of(store, search.run, landscape) == GOLDEN[engine].split()


GOLDEN = {
    "population": """
        seed<-:0.00 rewrite_full<0:-0.18 rewrite_full<0:0.05 rewrite_full<0:0.24 rewrite_full<0:0.09
        rewrite_full<0:failed rewrite_full<1:wrong_value rewrite_full<2:0.05 rewrite_full<3:0.20
        rewrite_full<4:0.24 rewrite_full<4:-0.02 rewrite_full<1:0.00 rewrite_full<1:wrong_value
        rewrite_full<3:-0.03 rewrite_full<4:-0.18 rewrite_full<4:0.18 rewrite_full<11:0.09
        rewrite_full<1:-0.27 rewrite_full<2:-0.18 rewrite_full<4:0.05 rewrite_full<4:0.00
        verify<9:0.24 verify<3:0.24
    """,
    "queue": """
        seed<-:0.00 remeasure_head<-:0.00 rewrite_full<0:-0.18 remeasure_head<-:-0.18
        rewrite_full<0:0.05 remeasure_head<-:0.05 rewrite_full<2:0.24 remeasure_head<-:0.05
        rewrite_full<2:0.00 remeasure_head<-:0.00 summarise<6:wrong_value remeasure_head<-:0.00
        rewrite_full<0:0.00 remeasure_head<-:0.24 rewrite_full<8:-0.14 remeasure_head<-:0.05
        rewrite_full<12:0.24 remeasure_head<-:0.05 rewrite_full<6:-0.36 remeasure_head<-:0.00
        verify<6:0.24
    """,
    "tree": """
        seed<-:0.00 universal<0:-0.18 universal<1:0.05 universal<0:0.24 universal<3:0.06
        universal<4:failed universal<3:wrong_value universal<4:-0.13 universal<0:-0.14
        universal<7:0.37 universal<9:-0.36 universal<3:0.06 universal<7:wrong_value
        universal<10:-0.24 universal<0:-0.27 universal<4:0.15 universal<9:0.37 universal<16:0.47
        universal<3:0.20 universal<7:0.01 universal<17:0.56 verify<20:0.56
    """,
    "lineage": """
        seed<-:0.00 macro_micro<0:0.05 macro_micro<1:0.14 macro_micro<2:wrong_value
        macro_micro<2:0.28 macro_micro<4:-0.29 macro_micro<4:wrong_value macro_micro<4:0.18
        macro_micro<4:0.18 macro_micro<4:0.05 macro_micro<4:0.18 macro_micro<4:-0.18
        macro_micro<4:failed macro_micro<4:wrong_value macro_micro<4:-0.19 macro_micro<4:0.23
        macro_micro<4:0.18 macro_micro<4:0.23 macro_micro<4:0.32 macro_micro<18:0.50
        macro_micro<19:0.41 verify<19:0.50
    """,
    "best_of_n": """
        seed<-:0.00 rewrite_full<-:-0.18 rewrite_full<-:0.05 rewrite_full<-:0.24
        rewrite_full<-:0.09 rewrite_full<-:failed rewrite_full<-:wrong_value rewrite_full<-:0.00
        rewrite_full<-:-0.14 rewrite_full<-:0.05 rewrite_full<-:0.21 rewrite_full<-:0.18
        rewrite_full<-:wrong_value rewrite_full<-:-0.06 rewrite_full<-:-0.27 rewrite_full<-:0.09
        rewrite_full<-:0.09 rewrite_full<-:-0.27 rewrite_full<-:-0.23 rewrite_full<-:-0.14
        rewrite_full<-:-0.09 verify<3:0.24
    """,
}
