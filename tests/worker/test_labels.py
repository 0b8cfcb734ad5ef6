"""Labels: what a source says of itself, and what two probes say about what made an outcome.

Invariants: labels carry the line they come from and never raise; only work that is right without
torch computing, and wrong without the custom kernels, counts as custom; probes leave no trace.
"""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.labels import static_labels
from evolve.worker.probes import AtenComputeTrapped, custom_label, stub_custom, trap_aten

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


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + 1,
        lambda x: torch.softmax(x, -1),
        lambda x: x @ x.T,
        lambda x: x.sum(),
        lambda x: x.relu_(),
        lambda x: torch.sort(x),
        lambda x: x[x > 0],
        lambda x: torch.einsum("ij,kj->ik", x, x),
        lambda x: torch.nn.functional.layer_norm(x, (4,)),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
        lambda x: torch.randn(4),
    ],
)
def test_torch_compute_is_trapped_and_named(compute):
    with pytest.raises(AtenComputeTrapped), trap_aten() as trap:
        compute(torch.ones(4, 4))
    assert trap.first.startswith("aten::")
    assert (torch.ones(2) + 1).sum() == 4


def test_allocation_views_metadata_and_movement_pass_the_trap():
    x = torch.randn(4, 6)
    with trap_aten() as trap:
        moved = torch.empty_like(x).copy_(x)
        views = (x.T.contiguous(), x.view(-1)[3:], x.reshape(2, 12), x.unsqueeze(0).expand(3, 4, 6))
        made = (torch.zeros(3), torch.empty((2, 2), dtype=torch.float16), x.new_empty(4), x.half())
        whole = torch.cat([x.clone(), x.detach()]), torch.stack([x, x]), x.permute(1, 0)
        facts = x.shape, x.stride(), x.numel(), x.data_ptr(), x.is_contiguous(), x[0, 0].item()
    assert trap.first is None
    assert torch.equal(moved, x)

    assert (len(views), len(made), len(whole), len(facts)) == (4, 4, 3, 6)


def test_swallowing_the_exception_and_going_another_way_gains_nothing():
    with pytest.raises(AtenComputeTrapped, match="aten::_softmax"), trap_aten() as trap:
        try:
            torch.softmax(torch.ones(3), -1)
        except RuntimeError:
            torch.zeros(3)
    assert trap.first == "aten::_softmax"


def test_a_thread_of_the_candidate_is_trapped_too():
    outcomes = []

    def in_a_thread():
        worker = threading.Thread(target=lambda: outcomes.append(torch.ones(3).exp()))
        worker.start()
        worker.join()

    with pytest.raises(AtenComputeTrapped, match="aten::exp"), trap_aten():
        in_a_thread()
    assert not outcomes
    in_a_thread()
    assert len(outcomes) == 1


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


def test_a_custom_kernel_runs_under_the_trap(library):
    x, y = torch.randn(8), torch.zeros(8)
    with trap_aten() as trap:
        loaded(library).twice(x, y)
    assert torch.equal(y, 2 * x)
    assert trap.first is None


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


@pytest.mark.parametrize(
    ("trap_ok", "trapped_op", "stub_ok", "custom", "names"),
    [
        (True, None, False, True, set()),
        (False, "aten::mm", True, False, {"aten_compute", "decoy_kernel"}),
        (False, "aten::relu", False, False, {"aten_compute"}),
        (True, None, True, False, {"decoy_kernel"}),
        (False, None, False, False, set()),
    ],
)
def test_custom_means_right_without_torch_and_wrong_without_the_kernels(
    trap_ok, trapped_op, stub_ok, custom, names
):
    verdict, found = custom_label(trap_ok, trapped_op, stub_ok)
    assert verdict is custom
    assert {label.name for label in found} == names
    assert all(label.evidence for label in found)
