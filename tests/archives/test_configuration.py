"""Archives as they are configured.

Invariants:
1. Any archive can be what islands or novelty are made of, but for those that hold copies.
2. Objectives that the device cannot deliver are refused with field, value and remedy.
3. A capacity that is typed for the whole bounds the parts; one typed for a part bounds it further.
4. The value that a message offers in the place of a wrong number is taken.
5. An archive that is made in Python has the values of its configuration file.
"""

import re

import pytest

from evolve.app import components
from evolve.app.compatibility import refuse_missing_descriptors
from evolve.core.errors import UsageError
from evolve.core.protocols import Archive
from evolve.testing.parts import make_elite
from tests.cli.recording import settings
from tests.composing import composed
from tests.configured import differing_defaults

PARTS = ("topk", "map_elites", "compiled", "priority", "tree", "pareto", "novelty")


def built(*words: str) -> Archive:
    return components.build_archive(composed("task=softmax", *words))


def held(archive: Archive, count: int = 100) -> int:
    for number in range(count):
        archive.offer(make_elite(f"p{number}", speedup=1 + number, sequence=number))
    return len(archive.slots())


@pytest.mark.sample(3)
@pytest.mark.parametrize("whole", ["islands", "novelty"])
@pytest.mark.parametrize("part", PARTS)
def test_any_archive_can_be_part_of_another(whole, part):
    archive = built(f"archive={whole}", f"archive@archive.of={part}")
    assert held(archive)
    assert getattr(archive, "offers", None) is not None


def test_parts_of_parts_can_be_chosen():
    archive = built("archive=islands", "archive@archive.of=novelty", "archive@archive.of.of=tree")
    assert archive.offers == {"islands", "tree"}
    assert archive.describes.keys() == {"sketch"}


@pytest.mark.parametrize("whole", ["islands", "novelty"])
def test_islands_are_no_part_of_another_archive(whole):
    with pytest.raises(UsageError, match="put them outside"):
        built(f"archive={whole}", "archive@archive.of=islands")


def test_memory_is_an_objective_on_the_cpu_and_refused_on_a_gpu():
    words = ("archive=pareto", "+archive.objectives.memory_bytes=min")
    refuse_missing_descriptors(settings(*words, "device=cpu"))
    with pytest.raises(
        UsageError, match=r"archive\.objectives\.memory_bytes: device=cuda .* error"
    ):
        refuse_missing_descriptors(settings(*words, "device=cuda"))
    without = settings(*words[:1], "archive.objectives.compile_s=null", "device=cuda")
    refuse_missing_descriptors(without)
    assert without["archive"]["objectives"]["error"] == "min"


def test_the_capacity_of_the_whole_bounds_the_parts():
    words = ["archive=islands", "archive@archive.of=topk", "archive.count=2", "archive.most=2"]
    assert held(built(*words, "archive.capacity=20")) == 20
    assert held(built(*words, "archive.capacity=20", "archive.of.capacity=3")) == 6
    assert held(built(*words, "archive.capacity=20", "archive.of.capacity=50")) == 20
    assert held(built("archive=novelty", "archive.capacity=20")) == 20


@pytest.mark.parametrize("name", sorted({*PARTS, "islands", "lineage"}))
def test_the_example_that_a_refused_number_is_answered_with_is_taken(name):
    config = composed("task=softmax", f"archive={name}")
    given = dict(config["archive"])
    numbers = [key for key, value in given.items() if type(value) in (int, float)]
    assert "capacity" in numbers
    for key in numbers:
        with pytest.raises(UsageError, match=rf"archive\.{key}=[\d.]+") as refused:
            components.build_archive({"archive": given | {key: -1}})
        example = re.search(rf"archive\.{key}=([\d.]+)", str(refused.value))[1]
        value = float(example) if "." in example else int(example)
        assert components.build_archive({"archive": given | {key: value}})


def test_a_wrong_setting_of_a_part_is_refused():
    with pytest.raises(UsageError, match=r"archive\.depth"):
        built("archive=islands", "archive.of.depth=0")
    with pytest.raises(UsageError, match="dept"):
        built("archive=islands", "+archive.of.dept=1")


def test_defaults_are_the_values_of_the_configuration_files():
    """But for the axes of compiled kernels, and novelty's distance, which is made anew."""
    assert differing_defaults("archive") == {"MapElites.axes", "Novelty.distance"}
