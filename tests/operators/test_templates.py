"""Templates: kernels of ours for what the compiler leaves to vendors' libraries.

Invariants:
- a program with our kernels computes what torch does, whatever sizes, strides and tunables are;
- what a template cannot do stays a call of the library, and no other statement changes;
- launches of the same shape share their tunables, and so do all of a kernel where there are many.

Programs run under Triton's interpreter, which knows no precision but ieee.
"""

import pytest

from tests.operators.templates_cases import CASES, instance
from tests.operators.templates_running import answers

IEEE = ("ieee",)


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    cases = [each | {"source": instance(each["source"], each["name"], IEEE)} for each in CASES]
    return answers(cases, "cpu", TRITON_INTERPRET="1")


@pytest.mark.parametrize("name", [each["name"] for each in CASES])
def test_a_program_with_our_kernels_computes_what_torch_does(differences, name):
    assert differences[name] < 2e-6
