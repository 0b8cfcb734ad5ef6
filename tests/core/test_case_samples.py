"""Raw times of a case: typed for code, plain data for the store.

Invariant: what is stored of any samples gives equal ones back; anything else gives none.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.evaluation import CaseSamples, GraphSamples
from evolve.core.measurement import Ratio

MS = st.dictionaries(
    st.sampled_from(["candidate", "eager"]), st.lists(st.lists(st.floats(0.001, 9), min_size=1))
)
GRAPH = st.builds(
    GraphSamples,
    ms=MS,
    why_not=st.dictionaries(st.just("eager"), st.text()),
    ratios=st.dictionaries(st.just("eager"), st.floats(0.5, 2).map(lambda v: Ratio(v, v, v))),
)
TOGETHER = st.builds(
    CaseSamples,
    calls_per_block=st.integers(1, 99),
    overhead_ms=st.lists(st.floats(0, 1)),
    ms=MS,
    graph=st.none() | GRAPH,
    self_reported=st.dictionaries(st.just("eager"), st.just({"cold_ms": 1.0})),
)
SAMPLES = st.builds(
    lambda first, others: CaseSamples(
        calls_per_block=first.calls_per_block,
        overhead_ms=first.overhead_ms,
        ms=first.ms,
        graph=first.graph,
        separate=tuple(others),
    ),
    TOGETHER,
    st.lists(TOGETHER, max_size=2),
)


@given(SAMPLES)
def test_samples_come_back_from_the_store(samples):
    stored = json.loads(json.dumps(samples.to_json()))
    assert CaseSamples.from_json(stored) == samples


@pytest.mark.parametrize("stored", [None, 3, [1, 2], "text", {}])
def test_samples_of_another_shape_are_none(stored):
    assert CaseSamples.from_json(stored) == CaseSamples()
