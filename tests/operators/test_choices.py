"""Choices of tunables that templates write down.

Invariants:
1. Numbers rise, and the first one to be tried is among them.
2. They are powers of two, as Triton's blocks and warps are, but for stages of a pipeline.
"""

import ast
from pathlib import Path

import pytest

import operators.local

FOLDER = Path(operators.local.__file__).parent


def written_choices():
    """File, line, name and literal choices of every `NAME: one_of(1, 2, first=1)`."""
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            pairs = []
            if isinstance(node, ast.Dict):
                entries = zip(node.keys, node.values, strict=True)
                pairs = [(ast.unparse(key), one) for key, one in entries if key]
            if isinstance(node, ast.Call):
                pairs = [(word.arg or "", word.value) for word in node.keywords]
            for name, value in pairs:
                if isinstance(value, ast.Call) and ast.unparse(value.func) == "one_of":
                    yield path.name, value.lineno, name.strip("'"), value


def numbers(nodes) -> list[int]:
    return [node.value for node in nodes if isinstance(node, ast.Constant)]


@pytest.mark.parametrize(
    ("name", "call"),
    [pytest.param(name, call, id=f"{file}:{line}") for file, line, name, call in written_choices()],
)
def test_choices_are_rising_powers_of_two_but_for_stages(name, call):
    found = numbers(call.args)
    assert found == sorted(set(found))
    assert all(0 < one <= 16 for one in found)
    if "stages" not in name.lower():
        assert all(one & (one - 1) == 0 for one in found)
    if len(found) == len(call.args):
        assert set(numbers([word.value for word in call.keywords])) <= set(found)


def test_choices_of_many_templates_are_looked_at():
    assert len(list(written_choices())) > 30
