"""Programs of many launches replay them as a CUDA graph; here with a graph that is a list of calls.

Invariants: every call gives what the launches give for its own inputs, which no later call changes;
what is recorded holds for its shapes and for where parameters were.
"""

import textwrap
from types import SimpleNamespace

import pytest
import torch

from operators.local.inductor.recording import MANY, recording

FORWARD = "def forward(self, x):\n    y = torch.empty_like(x)\n{}    return {}"
ADD = "    kernel[(1,)](x, y, self.weight)\n"


class Kernel:
    """Adds a weight; while a graph is recorded, launches go there and nothing runs."""

    recorded = None
    launched = 0

    def __getitem__(self, grid):
        return self.launch

    def launch(self, x, y, weight):
        self.launched += self.recorded is None

        def run():
            y.copy_(x + weight)

        run() if self.recorded is None else self.recorded.append(run)


class Graph:
    def __init__(self):
        self.calls = []
        self.replays = 0

    def replay(self):
        self.replays += 1
        for call in self.calls:
            call()


class Recording:
    def __init__(self, kernel, graph):
        self.kernel, self.graph = kernel, graph

    def __enter__(self):
        self.kernel.recorded = self.graph.calls

    def __exit__(self, *_):
        self.kernel.recorded = None


def methods(launches=MANY, outcome="y", returned="output[0]"):
    forward = FORWARD.format(ADD * launches, outcome)
    return forward, recording([textwrap.indent(forward, "    ")], [returned])


@pytest.fixture
def made(monkeypatch):
    """A module with a forward of many launches, and its kernel."""
    kernel = Kernel()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: Recording(kernel, graph))
    recording_around = SimpleNamespace(is_on=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recording_around.is_on)

    def make(outcome="y", returned="output[0]"):
        forward, more = methods(outcome=outcome, returned=returned)
        text = "\n\n".join([textwrap.indent(forward, "    "), *more])
        scope = {"torch": torch, "kernel": kernel}
        exec(f"class ModelNew(torch.nn.Module):\n{text}", scope)
        model = scope["ModelNew"]()
        model.weight = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)
        return model, kernel, recording_around

    return make


def test_each_call_gives_what_comes_of_its_own_inputs(made):
    model, kernel, _ = made()
    first = model(torch.ones(3))
    launched = kernel.launched
    second = model(torch.full((3,), 5.0))
    assert (first.tolist(), second.tolist()) == ([3.0] * 3, [7.0] * 3)
    assert kernel.launched == launched == MANY  # once, to compile them


def test_each_shape_has_a_graph_of_its_own(made):
    model, _, _ = made()
    assert [model(torch.ones(n)).shape for n in (3, 1, 3)] == [(3,), (1,), (3,)]


def test_parameters_may_be_changed_and_moved(made):
    model, _, _ = made()
    x = torch.ones(2)
    model(x)
    with torch.no_grad():
        model.weight.fill_(4.0)
    assert model(x).tolist() == [5.0, 5.0]
    model.double()
    model.weight.data = torch.tensor(1.0)
    assert model(x).tolist() == [2.0, 2.0]


def test_inside_another_graph_launches_are_part_of_that_one(made):
    model, kernel, around = made()
    around.is_on = True
    model(torch.ones(2))
    assert kernel.launched == MANY
    assert "_graphs" not in vars(model)


def test_where_parameters_may_be_others_in_each_call_nothing_is_recorded(made):
    model, kernel, _ = made()
    model.replays_graph = False
    model(torch.ones(2))
    model(torch.ones(2))
    assert kernel.launched == 2 * MANY


@pytest.mark.parametrize(
    ("outcome", "returned", "kind"),
    [("(y, x)", "(output[0], output[1])", tuple), ("[y]", "[output[0]]", list)],
)
def test_several_outcomes_come_as_they_did(made, outcome, returned, kind):
    model, _, _ = made(outcome, returned)
    first = model(torch.ones(2))
    model(torch.zeros(2))
    assert type(first) is kind
    assert first[0].tolist() == [3.0, 3.0]


def test_inputs_may_be_of_another_type_and_want_gradients(made):
    model, _, _ = made()
    assert model(torch.ones(2)).dtype == torch.float32
    assert model(torch.ones(2, dtype=torch.float64)).dtype == torch.float64
    assert not model(torch.ones(2, requires_grad=True)).requires_grad


def test_what_the_host_waits_for_is_not_recorded():
    forward = FORWARD.format(ADD * MANY + "    torch.ops.aten.nonzero.default(y)\n", "y")
    assert recording([textwrap.indent(forward, "    ")], ["output[0]"]) == []


def test_few_launches_and_other_outcomes_are_left_alone():
    assert methods(launches=MANY - 1)[1] == []
    assert methods(returned="{'a': output[0]}")[1] == []
