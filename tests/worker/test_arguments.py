"""Arguments and outcomes of a task's file, in every form in which files give them.

Invariants: kernels get arguments by position, as the file's own `forward` would; names are looked
up only where a file gives names; values that the judge cannot look through are refused in one line
with their place, never as a fault of the file's code.
"""

import pytest

from evolve.core.errors import UsageError
from tests.worker.judging import loaded_case, task_source
from tests.worker.serving import ROOT

FORMS = {
    "by name": ("{'dim': 4, 'gain': 2.0}", "{'y': torch.ones(4), 'x': torch.zeros(4)}"),
    "in two parts": ("[[4], {'gain': 2.0}]", "[[torch.zeros(4)], {'y': torch.ones(4)}]"),
    "with a gap": ("[[], {'dim': 4, 'gain': 2.0}]", "[torch.zeros(4), torch.ones(4)]"),
}  # fmt: skip
KEYWORDS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, dim, bias=True, gain=1.0):
        super().__init__()
        self.gain, self.dim = gain, dim

    def forward(self, x, y, scale=3.0):
        return (x + y) * self.gain * scale

def get_init_inputs():
    return {init}

def get_inputs():
    return {inputs}
"""


@pytest.mark.parametrize("form", FORMS)
def test_arguments_by_name_become_arguments_by_position(form):
    init, inputs = FORMS[form]
    case = loaded_case(KEYWORDS.format(init=init, inputs=inputs))
    assert case.init_inputs(1) == [4, True, 2.0]
    assert case.reference(case.model(1), case.inputs(1))[0].tolist() == [6.0] * 4
    assert len(case.inputs(1)) == 2


LISTS = task_source(
    "x * len(self.names) + len(self.options)", "[torch.randn(4)]",
    setup="self.names, self.options = values", init="[['a', 'b'], {'c': 1}]",
)  # fmt: skip


def test_a_list_and_a_dict_that_are_two_arguments_stay_so():
    assert loaded_case(LISTS).init_inputs(1) == [["a", "b"], {"c": 1}]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'gain': 2.0", "'again': 2.0", "get_init_inputs() does not fit Model"),
        ("'y': torch", "'z': torch", "get_inputs() does not fit Model.forward"),
        ("x, y,", "x, *, y,", "takes y by name only"),
        ("(self, x, y, scale=3.0)", "(self, *xs, **k)", "takes y and x by **k, and kernels are"),
        ("(self, x, y, scale=3.0)", "(self, *xs, **k)", "Declare y and x in the signature"),
        ("(self, dim, bias=True, gain=1.0)", "(self, **k)", "Model takes dim and gain by **k"),
    ],
)
def test_arguments_by_name_that_cannot_be_given_are_refused(old, new, said):
    text = KEYWORDS.format(init=FORMS["by name"][0], inputs=FORMS["by name"][1])
    case = loaded_case(text.replace(old, new))
    with pytest.raises(UsageError) as refusal:
        case.inputs(case.model(1) and 1)
    assert said in str(refusal.value)


METHODS = {
    "a static method": "    @staticmethod\n    def forward(x, y, scale=3.0):",
    "a method of the class": "    @classmethod\n    def forward(cls, x, y, scale=3.0):",
    "a decorated method": "    @torch.no_grad()\n    def forward(self, x, y, scale=3.0):",
    "parameters behind a star": "    def forward(self, x, y, scale=3.0, *rest, **options):",
}


@pytest.mark.parametrize("form", ["by name", "in two parts"])
@pytest.mark.parametrize("kind", METHODS)
def test_every_kind_of_forward_has_all_its_parameters(kind, form):
    init, inputs = FORMS[form]
    text = KEYWORDS.format(init=init, inputs=inputs).replace(" * self.gain", "")
    text = text.replace("    def forward(self, x, y, scale=3.0):", METHODS[kind])
    case = loaded_case(text)
    assert [value.tolist() for value in case.inputs(1)] == [[0.0] * 4, [1.0] * 4]
    assert case.reference(case.model(1), case.inputs(1))[0].tolist() == [3.0] * 4


BUILTIN = """
import torch
from torch import nn

class Model(nn.Module):
    forward = torch.{name}

def get_init_inputs():
    return []

def get_inputs():
    return {inputs}
"""


@pytest.mark.parametrize(
    ("inputs", "name"), [("[torch.zeros(4)]", "sin"), ("[[torch.zeros(4)], {}]", "cat")]
)
def test_a_list_of_arguments_needs_no_signature(inputs, name):
    case = loaded_case(BUILTIN.format(name=name, inputs=inputs))
    given = case.own_inputs(1)
    assert len(given) == inputs.count(",") + 1
    assert given[0][0].tolist() in (0.0, [0.0] * 4)


def test_arguments_by_name_without_a_signature_are_refused():
    case = loaded_case(BUILTIN.format(name="sin", inputs="{'input': torch.zeros(4)}"))
    with pytest.raises(UsageError, match=r"Model.forward has no signature .* Return a list"):
        case.own_inputs(1)


RECORDS = (
    (ROOT / "tests/worker/records.py").read_text()
    + """
from torch import nn

class Model(nn.Module):
    def __init__(self, *values):
        super().__init__()

    def forward(self, x, *rest):
        return {outcome}

def get_init_inputs():
    return {init}

def get_inputs():
    return {inputs}
"""
)
UNWALKED = {
    "Lacking(torch.ones(4))": ".y, a field of Lacking, has no value",
    "Node(torch.ones(4)).closed()": "holds itself",
    "Single(torch.ones(4))": ", of type Single, cannot be copied (RuntimeError: no copies)",
}
DOORS = {
    "init": ("get_init_inputs()", "arguments[1]"),
    "inputs": ("get_inputs()", "arguments[1]"),
    "outcome": ("task probe", "output[1]"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", UNWALKED)
def test_values_that_the_judge_cannot_look_through_are_no_fault_of_the_files_code(value, door):
    parts = {"init": "[]", "inputs": "[torch.ones(4)]", "outcome": "x"}
    parts[door] = f"[torch.ones(4), {value}]"
    text = RECORDS
    for name, expression in parts.items():
        text = text.replace("{" + name + "}", expression)
    case = loaded_case(text)
    with pytest.raises(UsageError) as refusal:
        case.expected(case.model(1), case.inputs(1), "task")
    for words in (*DOORS[door], UNWALKED[value]):
        assert words in str(refusal.value)
    assert "plain Python" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "value",
    [
        *("10**5000", "['a' * 190] * 400", "{'a' * 70000: x.sin()}"),
        *("[x.sin()] * 300", "x.sin()[(None,) * 20]"),
    ],
)
def test_an_outcome_that_no_message_holds_is_refused(value):
    case = loaded_case(task_source(f"(x.sin(), {value})", "[torch.randn(4)]"))
    with pytest.raises(UsageError, match=r"Model.forward .* more than \d+") as refusal:
        case.reference(case.model(1), case.inputs(1))
    assert "\n" not in str(refusal.value)


def test_a_forward_without_a_signature_is_a_reference_like_another():
    """A function of torch's own in the place of `forward` has none that Python can read."""
    source = task_source("x", "[torch.ones(4)]").replace(
        "def forward", "forward = staticmethod(torch.sin)\n\n    def other"
    )
    case = loaded_case(source)
    assert (
        case.reference(case.model(1), case.inputs(1))[0].tolist()
        == [pytest.approx(0.8414709848)] * 4
    )
    assert not case.effects.any
