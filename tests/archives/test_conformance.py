"""Every archive holds to `ArchiveConformance`, whatever it is offered and wherever it is cut off.

Invariants, besides those of the suite, over any stream of offers (hypothesis):
1. What is stored from the answers alone is what the archive holds.
2. Restored at any point, also in another order of slots, it answers and holds the same from there.
3. It never fills more slots than its capacity.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.measurement import Interval
from evolve.core.protocols import Elite
from evolve.testing.archives import ArchiveConformance, mirrored
from tests.archives.classes import MAKERS

PROGRAMS = [f"p{number}" for number in range(12)]


@pytest.mark.parametrize("kind", MAKERS)
class TestEveryArchive(ArchiveConformance):
    @pytest.fixture(autouse=True)
    def _kind(self, kind):
        self.kind = kind

    def make(self):
        return MAKERS[self.kind]()

    def descriptors(self, rng):
        """Also what earlier evaluations lack, and no number can be had of on every device."""
        also = {"error": rng.choice([0.0, 0.05, 0.3, 1.0]), "memory_bytes": float(rng.randrange(4))}
        known = {name: value for name, value in also.items() if rng.random() < 0.7}
        return {**super().descriptors(rng), **known}


@st.composite
def elites(draw, sequence: int):
    program = draw(st.sampled_from(PROGRAMS))
    value = draw(st.integers(-3, 3)) / 4
    number = PROGRAMS.index(program)
    return Elite(
        program=program,
        assignment={},
        fitness=Interval(value, value - 0.1, value + 0.1),
        descriptors=draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "block": st.sampled_from([8.0, 9.0, 40.0, 200.0]),
                    "parallelism": st.sampled_from(["simd", "threads"]),
                    "error": st.sampled_from([0.0, 0.25, 1.0]),
                    "memory_bytes": st.sampled_from([0.0, 4096.0, 1e9]),
                },
            )
        ),
        sequence=sequence,
        operator="test",
        parents=(PROGRAMS[number // 2],) if number % 3 else (),
        evaluations=draw(st.integers(1, 3)),
    )


@st.composite
def streams(draw):
    sequences = draw(st.permutations(range(draw(st.integers(0, 40)))))
    near = sorted(range(len(sequences)), key=lambda n: n + sequences[n] % 5)
    return [draw(elites(sequence)) for sequence in near]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=25, deadline=None)
@given(stream=streams(), data=st.data())
def test_any_stream_can_be_followed_and_cut_anywhere(kind, stream, data):
    cut = data.draw(st.integers(0, len(stream)))
    lived, restored, slots = MAKERS[kind](), MAKERS[kind](), {}
    for number, elite in enumerate(stream):
        if number == cut:
            restored.restore(data.draw(st.permutations(list(slots.items())).map(dict)))
        offer = lived.offer(elite)
        if number >= cut:
            assert restored.offer(elite) == offer
        slots = mirrored(slots, elite, offer)
        assert slots == lived.slots()
        assert len(slots) <= lived.capacity
    if cut < len(stream):
        assert list(restored.slots().items()) == list(lived.slots().items())


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", MAKERS)
@given(stream=streams())
@settings(max_examples=10, deadline=None)
def test_odd_numbers_of_evaluations_and_equal_fitness_are_no_error(kind, stream):
    archive = MAKERS[kind]()
    for elite in stream:
        archive.offer(replace(elite, fitness=Interval(0.0, 0.0, 0.0), evaluations=1000))
