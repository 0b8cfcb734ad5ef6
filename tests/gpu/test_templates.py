"""Templates as compiled for a GPU.

Invariant: in every precision that is offered for float32, a program with our kernels computes what
torch does in float32.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

for name in ("yaml", "jinja2"):
    pytest.importorskip(name, reason="the operators need it")

from operators.local.inductor import PRECISIONS  # noqa: E402
from tests.operators.even_cases import EVEN_CASES  # noqa: E402
from tests.operators.output_code import instance  # noqa: E402
from tests.operators.packed_cases import FEW_FILTERS, PACKED_CASES, two_products  # noqa: E402
from tests.operators.templates_cases import CASES, tolerance  # noqa: E402
from tests.operators.templates_running import answers  # noqa: E402
from tests.operators.whole_cases import WHOLE_CASES  # noqa: E402

PROCESSES = 8


@pytest.mark.parametrize("precision", PRECISIONS)
def test_programs_with_our_kernels_compute_what_torch_does(precision):
    known = [*CASES, *EVEN_CASES, *PACKED_CASES, *FEW_FILTERS]
    if precision == PRECISIONS[0]:
        known += WHOLE_CASES  # they multiply no matrices
    cases = [
        each | {"source": instance(each["source"], each["name"], [precision])} for each in known
    ]
    shares = [cases[at::PROCESSES] for at in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:  # to compile takes a second each
        parts = list(pool.map(lambda share: answers(share, "cuda"), shares))
    found = {name: off for part in parts for name, off in part.items()}
    assert len(found) == len(known)
    limit = 2e-5 if precision == "bf16x3" else 4e-6
    wrong = {name: off for name, off in found.items() if not off < tolerance(name, limit)}
    assert wrong == {}


def test_two_products_of_parts_compute_what_torch_does():
    cases = [
        each | {"source": instance(each["source"], each["name"], ["fp16x2"])}
        for each in two_products()
    ]
    found = answers(cases, "cuda")
    assert len(found) == len(cases)
    assert {name: off for name, off in found.items() if not off < 2e-5} == {}
