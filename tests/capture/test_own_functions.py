"""The user's own functions, backward passes and configurations become tasks.

Invariants:
1. A function of the script's or of a module beside it, decorated or not, is a part if its arguments
   are tensors and plain values; a winner takes its calls.
2. A script behaves as without capture: compiled, scripted and recursive functions too; it has the
   names that Python gives a script, in one dict.
3. Where gradients flow back, the backward pass is a task too, with the gradient that was recorded.
4. A configuration is written with the attributes that are read, and no others.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evolve.capture.apply import Chosen, check
from evolve.capture.processes import Script, started
from evolve.capture.task_file import captured
from evolve.tasks import find_task
from evolve.worker.correctness.cases import load_task
from tests.capture.scripts_running import capture

HELPERS = """\
import functools

import torch


def doubling(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return call


def swish(x, beta: float = 1.0):
    return x * torch.sigmoid(beta * x)


@doubling
def gated(x, gate):
    return swish(x) * gate
"""
SCRIPT = """\
import torch
from helpers import gated, swish

SCALE = 0.5
times: list[int] = [1, 2]


def halved(x, *, depth: int):
    return x * SCALE if depth == 0 else halved(x, depth=depth - 1)


def through(x, model):
    return model(x)


@torch.jit.script
def scripted(x):
    return swish(x, 2.0)


def batches(x):
    yield x


compiled = torch.compile(halved, backend="eager")


def main():
    torch.manual_seed(0)
    with torch.no_grad():
        for step in range(3):
            x = torch.randn(8, 16)
            gated(x, gate=x + 1)
            halved(x, depth=3)
            through(x, torch.nn.ReLU())
            scripted(x)
            compiled(x, depth=0)
            for batch in batches(x):
                swish(batch, beta=2.0)
    assert [one + SCALE for one in times] == [1.5, 2.5]


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "script.py").write_text(SCRIPT)
    words = ["--json", "--min-share", "0.0001", str(folder / "script.py")]
    parts = json.loads(capture(folder, *words))["parts"]
    return folder, {one["name"]: one for one in parts}


def test_functions_of_the_user_become_tasks(functions):
    folder, parts = functions
    for name, calls in (("helpers.gated", 3), ("__main__.halved", 3)):
        assert parts[name]["fault"] == ""
        assert parts[name]["calls"] == calls
    x, gate = load_task(find_task(parts["helpers.gated"]["task"])).cases[0].own_inputs(1)
    model = load_task(find_task(parts["helpers.gated"]["task"])).cases[0].constructed(1)
    torch.testing.assert_close(model(x, gate), 2 * x * torch.sigmoid(x) * gate)
    x, depth = load_task(find_task(parts["__main__.halved"]["task"])).cases[0].own_inputs(1)
    assert (x.shape, depth) == ((8, 16), 3)
    assert not {"__main__.through", "__main__.batches", "__main__.main"} & parts.keys()
    assert (folder / "halved.py").exists()


@pytest.mark.slow  # those of a module are in test_apply
def test_a_winner_makes_the_calls_of_a_function_of_the_user(functions):
    folder, parts = functions
    task = parts["helpers.gated"]["task"]
    right = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, gate):\n"
        "        return 2 * torch.nn.functional.silu(x) * gate\n"
    )
    with started(Script(name=str(folder / "script.py"))) as run:
        winners = [Chosen(task=captured(find_task(task)), source=right)]
        ((_, tally),) = check(run, winners)
    assert (tally.made, tally.agreed, tally.fallbacks) == (3, 3, {})


TRAINING = """\
import torch
from torch import nn


class Config:
    def __init__(self):
        self.width, self.gain, self.unused, self.path = 16, 3.0, [1, 2], "/home/someone"


class Scaled(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.rand(config.width))

    def forward(self, x):
        return torch.tanh(x * self.weight) * self.config.gain


class Pair(nn.Module):
    def forward(self, x):
        return x.sin(), x.cos()


def squared(x):
    return (x * x).mean(1)


torch.manual_seed(0)
model, pair = Scaled(Config()), Pair()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    first, second = pair(model(torch.randn(8, 16)))
    squared(first + second).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    (folder / "script.py").write_text(TRAINING)
    words = ["--json", "--min-share", "0.0001", str(folder / "script.py")]
    parts = json.loads(capture(folder, *words))["parts"]
    return folder, {one["name"].rpartition(".")[2]: one for one in parts}


def test_a_backward_pass_is_a_task_with_the_recorded_gradient(training):
    _, parts = training
    case = load_task(find_task(parts["Scaled"]["backward_task"])).cases[0]
    gradient, x = case.own_inputs(1)
    model = case.constructed(1)
    of_x, of_weight = model(gradient, x)
    leaves = [x.clone().requires_grad_(), model.weight.detach().clone().requires_grad_()]
    own = torch.tanh(leaves[0] * leaves[1]) * 3.0
    torch.testing.assert_close((of_x, of_weight), torch.autograd.grad(own, leaves, gradient))
    assert case.mode == "train"
    (task,) = load_task(find_task(parts["squared"]["backward_task"])).cases
    gradient, x = task.own_inputs(1)
    assert (gradient == 1).all()  # of a sum: kept, not drawn
    (of_x,) = task.constructed(1)(gradient, x)
    torch.testing.assert_close(of_x, x / 8)


def test_a_backward_pass_that_no_task_can_stand_for_says_why(training):
    _, parts = training
    assert parts["Pair"]["task"]
    assert parts["Pair"]["backward_task"] is None
    assert "gives several tensors" in parts["Pair"]["backward_fault"]


def test_a_configuration_is_written_with_what_is_read_alone(training):
    _, parts = training
    text = find_task(parts["Scaled"]["task"]).source
    assert "'width': 16" in text
    assert "'gain': 3.0" in text  # read by forward alone
    assert "unused'" not in text
    assert "'path'" not in text


ODD = """\
import enum
import math
import sys

import torch

loop = []
loop.append(loop)
rings = {}
rings["ring"] = rings


class Kind(enum.Enum):
    A = 1


class Constants:
    half = math.pi / 2


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def odd(x, one, other):
    return x + 1


def shared(x, one, other):
    return x.sin() + one[0] + other[0]


def silent(x):
    x.sum()


def by_enum(x):
    return x * Kind.A.value


def by_class(x):
    return x * Constants.half


assert depth(900) == 900
x = torch.rand(64, 64)
same = [2.0]
for _ in range(3):
    odd(x, loop, rings)
    shared(x, same, same)
    silent(x)
    by_enum(x)
    by_class(x)
assert (globals() | locals()).keys() == globals().keys() == (locals() | globals()).keys()
assert (locals() | {"new": 1})["new"] == locals().copy()["same"][0] - 1
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    (folder / "script.py").write_text(ODD)
    words = ["--json", "--min-share", "0.0000001", str(folder / "script.py")]
    parts = json.loads(capture(folder, *words))["parts"]
    return {one["name"].rpartition(".")[2]: one for one in parts}


def test_deep_recursion_and_containers_that_hold_themselves_are_no_fault(odd):
    assert "odd" not in odd  # no text can stand for its arguments
    assert (odd["shared"]["calls"], odd["shared"]["fault"]) == (3, "")


def test_a_function_without_a_tensor_in_its_outcome_is_no_task(odd):
    assert "it gives no tensor" in odd["silent"]["fault"]
    assert odd["silent"]["task"] is None


def test_classes_that_use_modules_in_their_bodies_are_a_part_of_tasks(odd):
    for name in ("by_enum", "by_class"):
        assert odd[name]["fault"] == ""
        load_task(find_task(odd[name]["task"])).cases[0].constructed(1)


AS_PYTHON = """\
\'\'\'Words of its own.\'\'\'
from __future__ import annotations
import inspect, json, pickle, sys, torch

@torch.no_grad()
def first(x: Nowhere):  # its own line
    \'\'\'Its own words.\'\'\'
    return x + 1

if __name__ == "__main__":
    try:
        def second(x):
            return first(x) * 2
    finally:
        third = torch.no_grad()(second)
for number in range(2):
    outer = lambda x: x
x = torch.rand(4, 8)
exec("later = 3; third(x)")
third(x)
del number
count: int = 1
assert locals() is globals() is vars(sys.modules["__main__"]) and type(globals()) is dict
assert pickle.loads(pickle.dumps(first)) is first and __import__("__main__").third is third
assert eval("later") == 3 and vars() is locals()
with open(sys.argv[1], "w") as file:
    json.dump({
        "names": {k: v if isinstance(v, str) else type(v).__name__ for k, v in globals().items()},
        "first": [inspect.getsource(first), first.__doc__, first.__annotations__],
        "lines": [inspect.unwrap(one).__code__.co_firstlineno for one in (first, second, third)],
        "path": [sys.path[0], sys.argv, __annotations__, inspect.currentframe().f_code.co_filename],
    }, file, default=str)
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["script", "link", "module"])
def test_a_script_has_the_names_that_python_gives_it(tmp_path, monkeypatch, capfd, way):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "script.py").write_text(AS_PYTHON)
    (tmp_path / "link.py").symlink_to(tmp_path / "inner" / "script.py")
    words = {
        "script": ["inner/../inner/script.py"],
        "link": ["link.py"],
        "module": ["-m", "inner.script"],
    }[way]
    subprocess.run([sys.executable, *words, "out"], check=True)
    plain = json.loads(Path("out").read_text())
    options = ["--json", "--min-share", "0.0001"]
    found = json.loads(capture(tmp_path, *options, *words, "--", "out"))["parts"]
    observed = json.loads(Path("out").read_text())
    assert observed == plain
    titles = {one["name"].rpartition(".")[2]: one["calls"] for one in found}
    assert titles == {"first": 2, "second": 2}
    assert "Warning" not in capfd.readouterr().err


WRITING = """\
import torch
from torch import nn


class Config:
    def __init__(self):
        self.factor = 2.0


class Counted(nn.Module):
    def forward(self, x, count):
        assert not count.any()
        count += 1
        return x * 2.0


class ByConfig(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x, count):
        assert not count.any()
        count += 1
        return x * self.config.factor


torch.manual_seed(0)
for model in (Counted(), ByConfig(Config())):
    for _ in range(3):
        x, count = torch.rand(8, 16, requires_grad=True), torch.zeros(4, dtype=torch.int64)
        model(x, count).sum().backward()
"""


def test_a_part_that_writes_to_its_arguments_is_tried_on_those_it_got(tmp_path):
    (tmp_path / "script.py").write_text(WRITING)
    words = ["--json", "--min-share", "0.0001", str(tmp_path / "script.py")]
    parts = json.loads(capture(tmp_path, *words))["parts"]
    assert len(parts) == 2
    for part in parts:
        assert part["fault"] == "", part["name"]
        assert part["task"]
        assert part["backward_fault"].startswith("it writes to an argument, and")


IN_PLACE = """\
import torch
from torch import nn


class Added(nn.Module):
    def forward(self, x):
        x.add_(1.0)
        return x * 2.0


class Averaged(nn.Module):
    def forward(self, x, average):
        average.mul_(0.9).add_(x.detach().mean())
        return x * 2.0


def squared(x, out=None):
    return x.relu_() * 3.0


def cleared(x):
    return x.zero_()


x, average = torch.rand(8, 16, requires_grad=True), torch.zeros(8)
cleared(torch.ones(4))
for _ in range(3):
    (Added()(x * 2) + Averaged()(x, average) + squared(x * 2)).sum().backward()
"""


def test_a_part_that_writes_to_its_arguments_says_why_it_has_no_backward_task(tmp_path):
    (tmp_path / "script.py").write_text(IN_PLACE)
    words = ["--json", "--min-share", "0.0001", str(tmp_path / "script.py")]
    parts = {one["name"]: one for one in json.loads(capture(tmp_path, *words))["parts"]}
    cleared = parts.pop("__main__.cleared")
    assert (cleared["fault"], cleared["backward_fault"]) == ("", "")  # no gradient flows there
    assert len(parts) == 3
    for part in parts.values():
        assert part["task"]
        assert part["backward_task"] is None
        assert part["backward_fault"].startswith("it writes to an argument, and")
