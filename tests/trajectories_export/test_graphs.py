"""Tasks recognised by what they compute.

1. One computation in another spelling is the same; other sizes, constants and operations are not.
2. A task file that hangs, dies or prints ends nothing but its own tracing.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.core.task import Task
from evolve.trajectories.decontamination import graphs
from evolve.trajectories.decontamination.graphs import Tracer
from evolve.trajectories.decontamination.holdout import hold_out

MODULE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, 4)

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.rand(8, 16)]


def get_init_inputs():
    return [16]
"""


def task(forward: str, before: str = "") -> Task:
    return Task(name="mine", source=before + MODULE.format(forward=forward))


@pytest.fixture(scope="module")
def tracer() -> Iterator[Tracer]:
    with Tracer() as started:
        yield started


@pytest.mark.slow
def test_one_computation_has_one_graph_however_it_is_spelled(tracer: Tracer):
    one = task("return torch.softmax(self.linear(x), dim=-1)")
    other = task("y = self.linear(x)\n        return y.softmax(-1)")
    assert tracer.signature(one) == tracer.signature(other)
    assert tracer.same(one, other)
    assert not tracer.same(one, task("return torch.softmax(self.linear(x), dim=0)"))
    assert not tracer.same(one, task("return torch.tanh(self.linear(x))"))


@pytest.mark.slow
def test_twins_are_paired_with_the_first_of_them(tracer: Tracer):
    one = task("return torch.softmax(self.linear(x), dim=-1)")
    other = task("return self.linear(x).softmax(-1)")
    third = task("y = self.linear(x)\n        return torch.softmax(y, dim=-1)")
    alone = [
        task("return torch.tanh(self.linear(x))"),
        Task(name="none", source="class Model: ..."),
    ]
    assert list(tracer.twins([one, *alone, other, third])) == [(one, other), (one, third)]


def test_other_sizes_have_another_signature(tracer: Tracer):
    one = task("return self.linear(x)")
    larger = Task(name="larger", source=one.source.replace("rand(8", "rand(9"))
    assert tracer.signature(one) != tracer.signature(larger)
    assert not tracer.same(one, larger)


def test_a_task_that_cannot_be_traced_equals_none(tracer: Tracer):
    branching = task("return x if x.sum() > 0 else -x")
    assert tracer.graph(branching) is None
    assert not tracer.same(branching, branching)


@pytest.mark.slow  # every file that dies takes a process with torch with it
def test_files_that_print_die_or_hang_end_nothing_else(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
):
    good = task("return self.linear(x)")
    known = tracer.signature(good)
    assert tracer.signature(task("return self.linear(x)", before="print('hello')")) == known
    assert tracer.signature(task("return x", before="import os\nos._exit(1)")) is None
    assert tracer.signature(good) == known
    monkeypatch.setattr(graphs, "TASK_DEADLINE_S", 0.2)
    assert tracer.signature(task("return x", before="import time\ntime.sleep(60)")) is None
    monkeypatch.undo()
    assert tracer.signature(good) == known


def test_a_held_out_task_is_recognised_by_its_graph(tracer: Tracer, tmp_path: Path):
    (tmp_path / "held.py").write_text(
        MODULE.format(forward="return torch.softmax(self.linear(x), dim=-1)")
    )
    held_out = hold_out([str(tmp_path / "held.py")], tracer)
    disguised = task("y = self.linear(x)\n        return y.softmax(-1)")
    found = held_out.match(disguised, tracer)
    assert found is not None
    assert (found.name.split()[0], found.how) == ("held.py", "graph")
    assert held_out.match(disguised) is None  # by its text it is another one
    assert held_out.match(task("return self.linear(x)"), tracer) is None
