"""Labels: what a source says of itself, and what two probes say about what made an outcome.

Invariants: labels carry the line they come from and never raise; all that torch computes is
counted, whatever asks for it and whatever a candidate has replaced, or named where it cannot be;
probes leave no trace.
"""

import json
import threading
import time
from types import SimpleNamespace

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.base.operation_cost import Work
from evolve.worker.evidence.static_checks import static_labels
from evolve.worker.runner import probes
from evolve.worker.runner.probes import count_aten, prepare, stub_custom

imported_before = numpy.from_dlpack  # as a candidate has it by `from numpy import from_dlpack`
CANDIDATE = """
import torch
from torch import nn

kernel = load_inline("softmax", cpp_sources=SOURCE)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.softmax(x, out)
        return out.view(x.shape)
"""


def labels(source):
    return {(label.name, label.evidence.split(":")[0]) for label in static_labels(source)}


def test_the_time_for_a_long_name_is_in_proportion_to_it():
    began = time.process_time()
    static_labels('SOURCE = """#include <x>\n' + "at::" * 50_000 + '"""')
    assert time.process_time() - began < 5


def test_an_extension_of_torch_does_nothing_while_kernels_are_stubbed():
    from torch.utils import cpp_extension

    load = cpp_extension._import_module_from_library
    with stub_custom() as skipped:
        module = cpp_extension._import_module_from_library("gate", "/nowhere", True)
        assert module.gate(torch.ones(2)) is None
    assert skipped == ["gate"]
    assert cpp_extension._import_module_from_library is load


def test_an_honest_custom_kernel_has_no_labels():
    assert labels(CANDIDATE) == set()
    assert labels(CANDIDATE + "C = 'auto y = torch::empty_like(x);'") == set()


@pytest.mark.parametrize(
    ("old", "new", "label"),
    [
        ("out.view(x.shape)", "torch.softmax(x, -1)", ("torch_compute", "line 11")),
        ("out.view(x.shape)", "nn.functional.relu(x)", ("torch_compute", "line 11")),
        ("out.view(x.shape)", "x.softmax(-1)", ("torch_compute", "line 11")),
        ("out.view(x.shape)", "out @ x", ("torch_compute", "line 11")),
        ("ModelNew(nn.Module)", "ModelNew(Model)", ("subclasses_reference", "line 7")),
        ("        kernel.", "        try: run(x)\n        except OSError: pass\n        kernel.",
         ("try_except", "line 10")),
        ("import torch\n", "import torch, gc\n", ("unusual_import", "line 2")),
        ("kernel =", "eval('1')\nkernel =", ("dynamic_code", "line 5")),
        ("kernel =", "f = torch.compile(abs)\nkernel =", ("torch_compile", "line 5")),
        ("kernel =", "torch._C._x()\nkernel =", ("torch_internals", "line 5")),
        ("kernel =", "C = 'cblas_sgemm(a, b)'\nkernel =", ("library_call", "line 5")),
    ],
)  # fmt: skip
def test_what_the_source_shows_is_labelled_with_its_line(old, new, label):
    assert label in labels(CANDIDATE.replace(old, new, 1))


@given(st.text())
def test_any_text_can_be_labelled(text):
    assert isinstance(static_labels(text), tuple)


X = torch.randn(4, 6)
FLOATS = 4  # bytes of each


@pytest.mark.parametrize(
    ("compute", "name", "elements_moved", "operations"),
    [
        (lambda: X + 1, "aten::add", 24 + 24 + 2, 24),  # the number as a tensor of eight bytes
        (lambda: X + X, "aten::add", 3 * 24, 24),
        (lambda: torch.softmax(X, -1), "aten::_softmax", 2 * 24, 24),
        (lambda: X @ X.T, "aten::mm", 2 * 24 + 16, 2 * 4 * 4 * 6),
        (lambda: X.sum(), "aten::sum", 24 + 1, 24),
        (lambda: X.clone().relu_(), "aten::relu_", 2 * 24, 24),
        (lambda: X.amax(1), "aten::amax", 24 + 4, 24),
        (lambda: torch.sort(X)[0], "aten::sort", 24 + 3 * 24, 24),
        (lambda: torch.einsum("ij,kj->ik", X, X), "aten::bmm", 2 * 24 + 16, 2 * 4 * 4 * 6),
        (lambda: X @ X[0], "aten::mv", 24 + 6 + 2 * 4, 2 * 24),  # what it calls adds to its outcome
        (lambda: torch.add(X, X, out=torch.empty(4, 6)), "aten::add", 4 * 24, 24),
        (
            lambda: torch.nn.functional.conv1d(X[None], X[None]),
            "aten::convolution",
            2 * 24 + 1,
            2 * 24,
        ),
        (
            lambda: torch.nn.functional.scaled_dot_product_attention(*[X[None, None]] * 3),
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            4 * 24 + 4,
            2 * 2 * 4 * 4 * 6,
        ),
    ],
)
def test_what_torch_computes_is_counted_and_done(compute, name, elements_moved, operations):
    expected = compute()
    with torch.no_grad(), count_aten() as account:
        outcome = compute()
    assert torch.equal(outcome, expected)
    assert account.totals() == {name: Work(FLOATS * elements_moved, operations)}
    assert (torch.ones(2) + 1).sum() == 4


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda: torch.linalg.svdvals(X), "aten::_linalg_svd"),
        (lambda: torch.fft.fft(X), "aten::_fft_r2c"),
        (lambda: torch.cdist(X, X), "aten::_cdist_forward"),
        (lambda: torch.nn.LSTM(6, 6)(X)[0], "aten::mkldnn_rnn_layer"),
        (lambda: X.numpy(), "numpy::numpy"),
        (lambda: numpy.from_dlpack(X), "numpy::from_dlpack"),
        (lambda: imported_before(X), "numpy::from_dlpack"),
        (lambda: X.to_sparse(), "aten::_to_sparse"),
        (lambda: torch.ops.prims.sum(X, [0]), "prims::sum"),
    ],
)
def test_what_cannot_be_counted_is_named(compute, name):
    with torch.no_grad(), count_aten() as account:
        compute()
    assert account.totals()[name] is None


@pytest.mark.sample(6)
@pytest.mark.parametrize("number", [2, 2.5, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_numbers_beside_tensors_give_the_same_while_counted(number, dtype, shape):
    x = torch.full(shape, 3, dtype=dtype)
    expected = [x * number, number - x, x / number, x.clone().mul_(2)]
    with count_aten():
        found = [x * number, number - x, x / number, x.clone().mul_(2)]
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        assert torch.allclose(left, right, rtol=2e-3)


def test_allocation_views_metadata_and_movement_are_no_work():
    x = torch.randn(4, 6)
    with count_aten() as account:
        moved = torch.empty_like(x).copy_(x)
        views = (x.T.contiguous(), x.view(-1)[3:], x.reshape(2, 12), x.unsqueeze(0).expand(3, 4, 6))
        made = (torch.zeros(3), torch.empty((2, 2), dtype=torch.float16), x.new_empty(4), x.half())
        whole = torch.cat([x.clone(), x.detach()]), torch.stack([x, x]), x.permute(1, 0)
        facts = x.shape, x.stride(), x.numel(), x.data_ptr(), x.is_contiguous(), x[0, 0].item()
    assert account.totals() == {}
    assert torch.equal(moved, x)

    assert (len(views), len(made), len(whole), len(facts)) == (4, 4, 3, 6)


def test_a_thread_of_the_candidate_is_counted_too():
    def in_a_thread():
        worker = threading.Thread(target=lambda: torch.ones(3).exp())
        worker.start()
        worker.join()

    with count_aten() as account:
        in_a_thread()
    assert account.totals() == {"aten::exp": Work(24, 3)}
    in_a_thread()
    assert account.totals() == {"aten::exp": Work(24, 3)}


def test_work_in_a_kernel_that_a_candidate_has_put_in_the_place_of_torchs_counts():
    library = torch.library.Library("aten", "IMPL")
    library.impl("abs", lambda x: (X @ X.T)[:1, :1] + x, "CPU")
    try:
        with count_aten() as account:
            torch.ones(1).abs()
    finally:
        library._destroy()
    assert account.totals()["aten::abs"].operations > 2 * 4 * 4 * 6


def test_a_kernel_where_torch_has_none_of_its_own_counts_though_operations_are_looked_up_early():
    prepare()
    library = torch.library.Library("aten", "IMPL")
    library.impl("square", lambda x: torch.mm(X, X.T)[:1, :1] + x, "CPU")  # torch: by `pow`
    try:
        with count_aten() as account:
            torch.ones(1).square()
    finally:
        library._destroy()
    assert account.totals()["aten::square"].operations >= 2 * 4 * 4 * 6


def test_operations_are_looked_up_without_a_question_to_the_driver(monkeypatch):
    """The zygote does it, and no process forked from one that asked could use the GPU."""

    def asked():
        raise AssertionError

    for name in ("is_available", "device_count", "init", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, asked)
    prepare()


NOTHING = SimpleNamespace(impl=lambda *_: None, reset=lambda: None)
REPLACEMENTS = {
    "registrations": (torch._C, "_dispatch_get_registrations_for_dispatch_key", lambda _: []),
    "libraries": (torch._C, "_dispatch_library", lambda *_: NOTHING),
    "implementations": (torch._C._DispatchModule, "impl", lambda *_: None),
    "kernels": (torch.library, "get_kernel", lambda *_: None),
    "elements": (torch.Tensor, "numel", lambda _: 0),
    "sizes": (torch.Tensor, "element_size", lambda _: 0),
    "texts": (json, "dumps", lambda _: "[]"),
    "encoders": (json.JSONEncoder, "encode", lambda *_: "[]"),
    "threads": (threading, "local", lambda: SimpleNamespace(within=[])),
}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_a_replaced_function_of_torch_or_of_the_library_hides_no_work(monkeypatch, name):
    prepare()
    monkeypatch.setattr(*REPLACEMENTS[name])
    with count_aten() as account:
        torch.mm(X, X.T)
    assert account.to_json() == f'[["aten::mm", {FLOATS * (2 * 24 + 16)}, {2 * 4 * 4 * 6}]]'


def test_a_changed_formula_of_torch_hides_no_work(monkeypatch):
    from torch.utils.flop_counter import flop_registry

    prepare()
    monkeypatch.setitem(flop_registry, torch.ops.aten.mm, lambda *_, **__: 0)
    with count_aten() as account:
        torch.mm(X, X.T)
    assert account.totals()["aten::mm"].operations == 2 * 4 * 4 * 6


def test_a_tensor_that_says_that_it_has_no_elements_hides_no_work():
    class Small(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), options=None):
            if function in (torch.Tensor.numel, torch.Tensor.element_size):
                return 0
            return super().__torch_function__(function, types, arguments, options or {})

    small = X.as_subclass(Small)
    assert small.numel() == 0
    with count_aten() as account:
        small.sum()
    assert account.totals() == {"aten::sum": Work(FLOATS * (24 + 1), 24)}


def test_a_replaced_question_for_a_gpu_hides_none_of_its_kernels(monkeypatch):
    replaced = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(probes, "get_kernel", lambda name, backend: replaced.append(backend))
    monkeypatch.setattr(probes, "_registered", lambda key: ["aten::mm"] * (key == "CUDA"))
    with count_aten(on_gpu=True):
        assert replaced == ["CUDA"]


def test_work_of_an_operation_that_fails_in_the_end_counts():
    def fails(x):
        torch.mm(X, X.T)
        raise RuntimeError("and nobody knows")

    library = torch.library.Library("aten", "IMPL")
    library.impl("abs", fails, "CPU")
    try:
        with count_aten() as account, pytest.raises(RuntimeError):
            torch.ones(1).abs()
    finally:
        library._destroy()
    assert account.totals()["aten::abs"].operations == 2 * 4 * 4 * 6


SOURCE = """
void twice(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = 2 * in[i];
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    cpp = pytest.importorskip("tvm_ffi.cpp")
    return cpp.build_inline(
        "test_twice",
        cpp_sources=SOURCE,
        functions=["twice"],
        build_directory=str(tmp_path_factory.mktemp("build")),
    )


def loaded(library):
    import tvm_ffi

    return tvm_ffi.load_module(library)


@pytest.mark.slow
def test_a_custom_kernel_is_no_work_of_torch(library):
    x, y = torch.randn(8), torch.zeros(8)
    with count_aten() as account:
        loaded(library).twice(x, y)
    assert torch.equal(y, 2 * x)
    assert account.totals() == {}


def test_a_stubbed_custom_kernel_leaves_its_output_unwritten(library):
    x, y = torch.randn(8), torch.zeros(8)
    with stub_custom() as skipped:
        module = loaded(library)
        module.twice(x, y)
        module["twice"](x, y)
        module.get_function("twice")(x, y)
    assert skipped == ["twice"] * 3
    assert not y.any()
    loaded(library).twice(x, y)
    assert torch.equal(y, 2 * x)
