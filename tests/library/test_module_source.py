"""The text of a task from a class and functions.

Invariants:
1. The text alone, executed elsewhere, gives what the class and functions give: with constants,
   helpers, base classes, imports, closures and decorators that they use.
2. What no text can stand for, or whose text cannot be had, is refused in one line.
3. A class of a notebook's cell is found.
4. A function is a task like a class.
"""

import functools
import importlib
import linecache
import math
import re
import types
from enum import Enum
from math import sqrt as root

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evolve.core.errors import UsageError
from evolve.tasks.functions import with_model
from evolve.tasks.module_source import task_source
from tests.library import helpers
from tests.library.helpers import double as twice

ROWS, COLUMNS = 3, 4
DTYPE = torch.float64
FLOOR = float("-inf")
TABLE = {"scale": [1.5, 2.0], "names": ("a", None)}
TENSOR = torch.ones(3)
x = torch.ones(2)  # a variable of the file that is no more than a local name of what is tested
smaller = lambda value: value / 2  # noqa: E731


class Kind(Enum):
    PLAIN = 1
    ODD = 2


class Base(nn.Module):
    def scaled(self, x):
        return x * TABLE["scale"][1]


def seeded(function):
    @functools.wraps(function)
    def call(*args):
        torch.manual_seed(7)
        return function(*args)

    return call


class Everything(Base):
    kind = Kind.ODD

    def __init__(self, columns: int, bias: "torch.dtype | None" = None) -> None:
        super(Everything, self).__init__()  # noqa: UP008
        self.columns = columns

    def forward(self, x):
        floor = torch.full_like(x, FLOOR)
        bent = torch.maximum(F.relu(x), floor) + root(4.0) + math.pi
        return [helpers_sum(y) for y in (self.scaled(bent), twice(bent))]


def helpers_sum(y):
    return y.sum() if Everything.kind is Kind.ODD else recurse(y, 3)


def recurse(y, depth):
    return y if depth == 0 else recurse(y, depth - 1)


@seeded
def make_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=DTYPE)]


def make_init_inputs():
    return [COLUMNS]


def outcome(module: types.ModuleType | dict) -> list:
    scope = module if isinstance(module, dict) else vars(module)
    model = scope["Model"](*scope["get_init_inputs"]())
    return model(*scope["get_inputs"]())


def executed(text: str) -> dict:
    scope: dict = {"__name__": "task"}
    exec(compile(text, "task.py", "exec"), scope)
    return scope


def test_the_text_alone_gives_what_the_class_gives():
    scope = executed(task_source(Everything, make_inputs, make_init_inputs))
    expected = Everything(COLUMNS)(*make_inputs())
    assert [float(each) for each in outcome(scope)] == [float(each) for each in expected]
    assert scope["get_inputs"]()[0].dtype is torch.float64
    assert "TENSOR" not in scope
    assert "x" not in scope


def test_a_class_that_closes_over_values_is_a_task():
    factor, make = 3.0, torch.ones

    class Local(nn.Module):
        def forward(self, x):
            return make(2) * x * factor

    def inputs():
        return [torch.ones(2) * factor]

    assert outcome(executed(task_source(Local, inputs))).tolist() == [9.0, 9.0]


def spread(x, *rest, scale=2.0, **options):
    """A function whose name is not that of a task's function."""
    return {"sum": sum(rest, twice(x)) * scale, "last": helpers_sum(options["last"])}


def make_arguments():
    return {"x": torch.full((2,), math.pi), "last": torch.ones(3), "scale": 0.5}


def test_the_text_alone_gives_what_the_function_gives():
    scope = executed(with_model(task_source(spread, make_arguments)))
    expected = spread(**make_arguments())
    found = outcome(scope)
    assert found["sum"].equal(expected["sum"])
    assert found["last"] == expected["last"]


def test_a_list_gives_a_functions_arguments_by_place():
    def inputs():
        return [torch.ones(2), torch.ones(2)]

    def added(x, y, alpha=3):
        return x + alpha * y

    scope = executed(with_model(task_source(added, inputs)))
    assert outcome(scope).tolist() == [4.0, 4.0]


def Model(x):
    return x


ODD_FUNCTIONS = {
    "a lambda": (smaller, {}, ["task=", "lambda", "with def"]),
    "of a package": (F.layer_norm, {}, ["torch.nn.functional.layer_norm", "write a function"]),
    "without inputs": (spread, {"inputs": None}, ["inputs is not given", "spread is a function"]),
    "with init_inputs": (spread, {"init_inputs": make_init_inputs}, ["init_inputs", "leave"]),
    "of a model's name": (Model, {}, ["two different things that are called Model", "rename"]),
}


@pytest.mark.parametrize("kind", ODD_FUNCTIONS)
def test_a_function_that_cannot_be_a_task_is_refused_with_the_remedy(kind):
    function, given, said = ODD_FUNCTIONS[kind]
    with pytest.raises(UsageError) as error:
        task_source(function, **{"inputs": make_arguments, **given})
    for words in said:
        assert words in str(error.value)


def cell(text: str) -> dict:
    """Execute a text as a notebook executes a cell."""
    name = f"/tmp/ipykernel_1/{abs(hash(text))}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict = {"__name__": "__main__"}
    exec(compile(text.replace("%timeit 1\n", "\n"), name, "exec"), scope)
    return scope


CELL = """\
import torch
from torch import nn
%timeit 1
SIZE = 4


class Net(nn.Module):
    def forward(self, x) -> "Net":
        return x + SIZE


def inputs(rows=2):
    return [torch.zeros(rows)]
"""


def test_a_class_of_a_notebooks_cell_is_a_task():
    scope = cell(CELL)
    text = task_source(scope["Net"], scope["inputs"])
    assert outcome(executed(text)).tolist() == [4.0, 4.0]


def test_annotations_that_are_not_evaluated_stay_so():
    scope = cell(
        "from __future__ import annotations\n"
        + CELL.replace('"Net"', "Unknown").replace("rows=2", "rows: Unknown = 2")
    )
    text = task_source(scope["Net"], scope["inputs"])
    assert outcome(executed(text)).tolist() == [4.0, 4.0]


class UsesTensor(nn.Module):
    def forward(self, x):
        return x + TENSOR


RING: list = [1]
RING.append({"again": RING})
DEEP: tuple = ()
for _ in range(3000):
    DEEP = (DEEP,)


class UsesRing(nn.Module):
    def forward(self, x):
        return doubled_first(x) + RING[0]


def doubled_first(x):
    return x * 2 * RING[0]


class UsesDeep(nn.Module):
    def forward(self, x):
        return x if DEEP else -x


class UsesLambda(nn.Module):
    def forward(self, x):
        return smaller(x)


class UsesOwnModule(nn.Module):
    def forward(self, x):
        return helpers.double(x)


class UsesUnknown(nn.Module):
    def forward(self, x):
        return x + nowhere  # noqa: F821


def needs_rows(rows):
    return [torch.ones(rows)]


def typed_at_a_prompt() -> type:
    scope: dict = {"nn": nn, "__name__": "__main__"}
    exec("class Prompt(nn.Module):\n    def forward(self, x):\n        return x\n", scope)
    return scope["Prompt"]


def clashing() -> type:
    double = 2.0

    class Clash(nn.Module):
        def forward(self, x):
            return twice(x) * double

    return Clash


BAD = {
    "a tensor": (UsesTensor, make_inputs, ["task=UsesTensor", "TENSOR, a Tensor", "constant"]),
    "a list that holds itself": (UsesRing, make_inputs, ["RING, a list that holds itself"]),
    "a deep tuple": (UsesDeep, make_inputs, ["DEEP, a tuple that is nested too deeply"]),
    "a lambda": (UsesLambda, make_inputs, ["smaller, a lambda", "with def"]),
    "a module of one's own": (
        UsesOwnModule,
        make_inputs,
        ["helpers, the module tests.library", "from tests.library.helpers import ..."],
    ),
    "a name that is not there": (UsesUnknown, make_inputs, ["nowhere, which is defined nowhere"]),
    "two things of one name": (clashing(), make_inputs, ["two different things", "double"]),
    "typed at a prompt": (typed_at_a_prompt(), make_inputs, ["Prompt", "source cannot be read"]),
    "no module": (Kind, make_inputs, ["task=Kind", "no torch.nn.Module"]),
    "no inputs": (Everything, None, ["inputs is not given"]),
    "inputs by lambda": (Everything, lambda: [x], ["inputs=<function <lambda>", "with def"]),
    "inputs that are a list": (Everything, [x], ["inputs=[tensor", "with def"]),
    "inputs with arguments": (Everything, needs_rows, ["inputs=needs_rows", "rows", "default"]),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("given", BAD)
def test_what_no_text_can_stand_for_is_refused_in_one_line(given):
    model, inputs, said = BAD[given]
    with pytest.raises(UsageError) as error:
        task_source(model, inputs)
    assert "\n" not in str(error.value)
    for words in said:
        assert words in str(error.value)


@pytest.mark.parametrize("marks", ["site-packages", "lib/norms-1.0.dist-info", "lib"])
def test_a_package_of_any_folder_with_packages_is_imported(marks, tmp_path, monkeypatch):
    """`pip install --target`, a cluster's modules and `.pth` files put packages on the path."""
    (tmp_path / marks).mkdir(parents=True)
    name = re.sub(r"\W", "_", f"norms_{marks}")
    folder = tmp_path / marks.partition("/")[0]
    (folder / f"{name}.py").write_text("def floor(x):\n    return x.clamp(min=0)\n")
    monkeypatch.syspath_prepend(folder)
    norms = importlib.import_module(name)

    def clamped(x):
        return norms.floor(x)

    if marks == "lib":  # a folder of the user's own, with no package installed in it
        with pytest.raises(UsageError, match="the module"):
            task_source(clamped, lambda: [torch.ones(2)])
    else:
        assert f"import {name} as norms" in task_source(clamped, make_inputs)


def test_a_text_that_has_changed_since_is_refused():
    scope = cell(CELL)
    name = scope["Net"].forward.__code__.co_filename
    linecache.cache[name] = (1, None, ["a = 1\n"], name)
    with pytest.raises(UsageError, match="has changed since"):
        task_source(scope["Net"], scope["inputs"])
