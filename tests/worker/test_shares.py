"""What share of the work torch does, by a candidate's own account.

Invariants:
- little of the bytes and of the operations is little of the work, and all else is the main work;
- the label has the numbers and the names;
- nothing that a process may send as an account raises, and none that is none speaks for it.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.evidence.torch_share import read, share_of
from evolve.worker.runner.probes import count_aten
from evolve.worker.timing.reference_cost import count_cost
from tests.worker.judging import loaded_case, task_source

F = torch.nn.functional
TOTAL = task_source("x.sum()", "[torch.randn(512, 512)]")
PRODUCT = task_source("F.relu(a @ b + 1)", "[torch.randn(64, 512), torch.randn(512, 64)]", "a, b")
# A reference that goes through memory eight times for what one operation of torch does.
GELU = task_source(
    "0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))",
    "[torch.randn(64, 64)]",
)


def share(source, compute):
    """Of `compute` on the task's inputs."""
    case = loaded_case(source)
    inputs = case.inputs(2)
    with torch.no_grad(), count_aten() as account:
        compute(*inputs)
    return share_of(read(account.to_json()), count_cost("probe", case.model(1), inputs))


@pytest.mark.parametrize(
    ("source", "compute"),
    [
        (TOTAL, lambda x: x.view(-1)[:4096].sum()),  # of partial results
        (PRODUCT, lambda a, b: a[:8].amax(1)),
        (PRODUCT, lambda a, b: torch.ones(8, 8) @ torch.ones(8, 8)),
    ],
)
def test_a_last_step_over_a_few_numbers_is_a_small_share(source, compute):
    found = share(source, compute)
    assert found.is_small, found
    label = found.label("main")
    assert label.name == "torch_share"


@pytest.mark.parametrize(
    ("source", "compute"),
    [
        (TOTAL, lambda x: x.sum()),
        (TOTAL, lambda x: x[:64].sum()),
        (PRODUCT, lambda a, b: a @ b),
        (PRODUCT, lambda a, b: a[:, :64] @ b[:64]),  # an eighth of the product
        (PRODUCT, lambda a, b: a * 2),
        (GELU, lambda x: F.gelu(x, approximate="tanh")),
        (GELU, lambda x: torch.linalg.svdvals(x[:2, :2])),
        (GELU, lambda x: x.numpy()),
    ],
)
def test_a_good_part_of_bytes_or_operations_is_the_main_work(source, compute):
    found = share(source, compute)
    assert not found.is_small, found
    assert found.label("main").name == "aten_compute"


def test_the_label_has_the_numbers_and_the_names():
    label = share(TOTAL, lambda x: x.view(-1)[:4096].sum()).label("main")
    assert label.evidence == (
        "case main: torch does 1.6 % of the bytes, 1.6 % of the operations: aten::sum"
    )
    whole = share(PRODUCT, lambda a, b: F.relu(a @ b)).label("main").evidence
    assert whole.endswith("100 % of the operations: aten::mm, aten::relu")
    unknown = share(TOTAL, lambda x: torch.fft.fft(x[0])).label("main").evidence
    assert unknown.startswith("case main: aten::_fft_r2c was called")
    assert share(TOTAL, lambda x: x.view(-1)).label("main") is None


@pytest.mark.parametrize(
    "text",
    ["", "7", "{}", "null", "[7]", '[["aten::sum", 1]]', '[["aten::sum", -1, 1]]', "[" * 9999,
     '[["aten::sum", null, 1]]', '[["aten::sum", 1e9, 1]]', '[["aten::sum", true, 1]]',
     '[["a b::c", 1, 1]]', json.dumps([["aten::sum", 1 << 70, 1]]),
     json.dumps([["aten::sum", 1, 1]] * 100)],
)  # fmt: skip
def test_what_is_no_account_is_none(text):
    assert read(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just("aten::sum") | st.text(),
    st.lists,
)


@pytest.mark.slow
@given(JSON)
def test_whatever_a_process_sends_is_read_or_dropped(data):
    account = read(json.dumps(data))
    case = loaded_case(TOTAL)
    if account is not None:
        found = share_of(account, count_cost("probe", case.model(1), case.inputs(2)))
        assert found.nbytes >= 0


def test_an_account_of_many_operations_is_told_whole():
    x = torch.ones(3)
    names = (
        "abs acos asin atan ceil cos cosh deg2rad digamma erf erfc exp exp2 expm1 floor frac i0 "
        "lgamma log log10 log1p log2 neg rad2deg relu round rsqrt sgn sigmoid sign sin sinc sinh "
        "sqrt tan tanh trunc"
    )
    with count_aten() as account:
        for name in names.split():
            getattr(torch, name)(x)
    found = read(account.to_json())
    assert len(found) < len(names.split())
    assert sum(work.operations for work in found.values()) >= 3 * len(names.split())
