"""Programs of the compiler in other languages: Gluon, CUDA C++ for NVRTC, and three packages'.

Invariants:
- such a program is in that language alone, and computes what its reference does, whatever its
  tunables are set to;
- it compiles for an NVIDIA H100, which need not be there;
- what cannot be rewritten is refused with a reason, never written wrongly.

The fixtures are output code of torch 2.13, and some that is written by hand
(`handwritten_code.py`). What CuTe DSL, cuTile and TileLang compile to is in `test_port_gates.py`;
here functions of torch stand in the place of theirs. What tensor cores of Hopper compute, only a
GPU can tell (`tests/gpu/test_ports.py`).
"""

import ast
import random
import re

import pytest
import torch

from evolve.core.source import tunables
from evolve.languages.registry import languages_in
from operators.local.inductor import NotConvertible
from operators.local.ports import PORTS
from operators.local.ports.library import with_library
from operators.local.tuning.resources import allocated
from tests.operators import cuda_emulation, nvrtc_library, port_cases, ports_running
from tests.operators.compiling import compiled, compiled_kernel, launches
from tests.operators.differences import collected, differences_by
from tests.operators.emulated import EMULATED
from tests.operators.inductor_running import imported
from tests.operators.output_code import matrix
from tests.operators.port_cases import products
from tests.operators.templates_cases import tolerance
from tests.operators.templates_running import answers

REDUCTIONS = ("rmsnorm", "softmax", "layernorm", "softmax_online", "layernorm_looped", "gelu_bias")
BY_HAND = ("cut_sum", "cut_moments", "large_integers")
OTHERS = ("cross_entropy", "softmax_split", "pooled_batch_norm", *BY_HAND)
WITH_PRODUCTS = ("nested_arguments", "matmul_gelu", "attention")
ONLY_GLUON = ("argmax", "odd_columns", "cumsum")


def differences(request, language: str, **environment: str) -> dict[str, float]:
    names = sorted(collected(request, "name"))
    return differences_by("ports_running", language, "cpu", *names, **environment)


@pytest.fixture(scope="module")
def gluon(request):
    return differences(request, "gluon", TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def nvrtc(request):
    return differences(request, "nvrtc")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *ONLY_GLUON))
def test_a_program_in_gluon_computes_what_its_reference_does(gluon, name):
    assert gluon[name] < 2e-6


@pytest.mark.slow  # a thread for each of a GPU's; moments of many threads are quicker
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *WITH_PRODUCTS))
def test_a_program_in_cuda_computes_what_its_reference_does(nvrtc, name):
    assert nvrtc[name] < 2e-6


@pytest.fixture(scope="module")
def emulated(request):
    known: dict[str, dict[str, float]] = {}

    def of(language: str) -> dict[str, float]:
        if language not in known:
            known[language] = differences(request, language)
        return known[language]

    return of


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *WITH_PRODUCTS))
@pytest.mark.parametrize("language", EMULATED)
def test_a_program_in_a_packages_language_computes_what_its_reference_does(
    emulated, language, name
):
    assert emulated(language)[name] < 2e-6


@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *WITH_PRODUCTS))
@pytest.mark.parametrize("language", PORTS)
def test_a_program_is_in_its_language_alone(language, name):
    source = port_cases.ported(name, language)
    assert [each.name for each in languages_in(source)] == [language]
    assert "triton.jit" not in source


def instance(source: str, seed: object) -> str:
    """With tunables drawn at random."""
    rng = random.Random(str(seed))
    return tunables.render(source, tunables.parse(source).sample(rng))


def ptx_of(source: str, name: str) -> str:
    task, _ = port_cases.read(name)
    reference: dict = {}
    exec(task, reference)
    arguments = reference["get_init_inputs"]()
    bound = f"{source}\nProgram = ModelNew\nModelNew = lambda: Program(*{arguments!r})\n"
    inputs = ports_running.moved(reference["get_inputs"](), "meta")
    return "\n".join(compiled(each)["ptx"] for each in launches(bound, inputs))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *ONLY_GLUON))
def test_a_program_in_gluon_compiles_for_a_gpu_that_is_not_here(name):
    assert ".visible .entry" in ptx_of(instance(port_cases.ported(name, "gluon"), name), name)


GLUON_PRODUCTS = {case["name"]: case for case in port_cases.products("gluon", 9)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", GLUON_PRODUCTS)
def test_a_product_in_gluon_uses_the_tensor_cores_of_warp_groups(name):
    case = GLUON_PRODUCTS[name]
    dtypes = (getattr(torch, dtype.removeprefix("torch.")) for dtype in case["dtypes"])
    inputs = [
        torch.empty_strided(*view, dtype=dtype, device="meta")
        for (_, view), dtype in zip(case["tensors"], dtypes, strict=True)
    ]
    (launch,) = launches(instance(case["source"], name), inputs)
    ptx = compiled(launch)["ptx"]
    assert ptx.index("fence.proxy.async") < ptx.index("wgmma.mma_async.sync.aligned.m64")
    assert "f32.f16.f16" in ptx if "float16:" in name[:8] else "f32.bf16.bf16" in ptx
    assert ".local" not in ptx  # no registers are spilled


TILED_PRODUCTS = {case["name"]: case for case in port_cases.tiled_products(9)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TILED_PRODUCTS)
def test_tiles_of_half_precision_are_read_by_the_tensor_memory_accelerator(name):
    case = TILED_PRODUCTS[name]
    kind = getattr(torch, name.partition(":")[0])
    inputs = [torch.empty_strided(*view, dtype=kind, device="meta") for _, view in case["tensors"]]
    source = instance(case["source"], name)
    assert [each.name for each in languages_in(source)] == ["gluon"]
    (launch,) = launches(source, inputs)
    ptx = compiled(launch)["ptx"]
    assert ptx.index("cp.async.bulk.tensor.2d") < ptx.index("wgmma.mma_async.sync.aligned.m64")
    assert "mbarrier.try_wait" in ptx
    assert "ld.global" not in ptx.partition("wgmma.mma_async")[0]
    assert ".local" not in ptx  # no registers are spilled


PACKED_PRODUCTS = {
    case["name"]: case for case in (*port_cases.packed_products(), *port_cases.stretched_products())
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PACKED_PRODUCTS)
def test_large_products_of_float32_are_of_parts_that_the_accelerator_reads(name):
    case = PACKED_PRODUCTS[name]
    inputs = [torch.empty_strided(*view, device="meta") for _, view in case["tensors"]]
    (source,) = port_cases.with_room(case, 1)
    assert [each.name for each in languages_in(source)] == ["gluon"]
    *cuts, multiply = (compiled(each)["ptx"] for each in launches(source, inputs))
    assert len(cuts) == 2
    for ptx in cuts:
        assert ".f32" in ptx
        assert "wgmma" not in ptx
    assert multiply.index("cp.async.bulk.tensor.2d") < multiply.index("wgmma.mma_async")
    assert "ld.global" not in multiply.partition("wgmma.mma_async")[0]


def test_tensor_cores_add_as_many_products_of_parts_as_the_precision_says():
    found = {}
    case = PACKED_PRODUCTS["by rows, two products"]
    inputs = [torch.empty_strided(*view, device="meta") for _, view in case["tensors"]]
    for precision in ("fp16x2", "fp16x3", "bf16x6"):
        chosen = {"PACKED_PRODUCT_INPUT_PRECISION": precision, "PACKED_PRODUCT_SUM_STEPS": 1}
        sizes = {"PACKED_PRODUCT_BLOCK_N": 64, "PACKED_PRODUCT_BLOCK_K": 32}
        source = tunables.render(case["source"], chosen | sizes)
        *_, multiply = launches(source, inputs)
        found[precision] = compiled(multiply)["ptx"].count("wgmma.mma_async")
    assert found["fp16x3"] * 2 == found["fp16x2"] * 3
    assert found["bf16x6"] == found["fp16x2"] * 3


@pytest.mark.parametrize("case", [*port_cases.packed_products()[:1], *port_cases.tiled_products()])
def test_the_tuner_knows_to_the_byte_what_tiles_in_shared_memory_take(case):
    inputs = [
        torch.empty_strided(
            *view, dtype=getattr(torch, dtype.removeprefix("torch.")), device="meta"
        )
        for (_, view), dtype in zip(case["tensors"], case["dtypes"], strict=True)
    ]
    space, rng = tunables.parse(case["source"]), random.Random(3)
    for _ in range(2):
        chosen = space.sample(rng)
        *_, multiply = launches(tunables.render(case["source"], chosen), inputs)
        (held,) = allocated(case["source"])
        assert compiled_kernel(multiply).metadata.shared == held.size(chosen)


def test_operands_that_the_accelerator_cannot_read_are_read_by_threads():
    kind = torch.bfloat16
    for a, b in (
        (matrix(72, 50), matrix(50, 40)),  # rows of 100 bytes
        (matrix(3, 72, 56), matrix(3, 56, 40)),
    ):
        case = port_cases.product("one", "gluon", a.to(kind), b.to(kind), tiled=True)
        assert "tiled_product_kernel" not in case["source"]
        assert "product_kernel" in case["source"]


@pytest.mark.sample(5)
@pytest.mark.skipif(nvrtc_library.library() is None, reason="there is no NVRTC")
@pytest.mark.parametrize("name", (*REDUCTIONS, *OTHERS, *WITH_PRODUCTS))
def test_a_program_in_cuda_compiles_for_a_gpu_that_is_not_here(name, monkeypatch):
    made = nvrtc_library.use(monkeypatch)
    imported(instance(port_cases.ported(name, "nvrtc"), name))
    assert made
    assert all("_kernel" in mangled and code.startswith(b"\x7fELF") for mangled, code in made)


NVRTC_PRODUCTS = {case["name"]: case for case in port_cases.products("nvrtc")}


@pytest.mark.skipif(nvrtc_library.library() is None, reason="there is no NVRTC")
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NVRTC_PRODUCTS)
def test_a_product_in_cuda_compiles_for_a_gpu_that_is_not_here(name, monkeypatch):
    made = nvrtc_library.use(monkeypatch)
    imported(instance(NVRTC_PRODUCTS[name]["source"], name))
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NVRTC_PRODUCTS)
def test_a_product_in_cuda_computes_what_torch_does(name):
    case = NVRTC_PRODUCTS[name]
    few = {each.name: each.choices[0] for each in tunables.parse(case["source"])}
    exact = {} if ":" in name else {"PRODUCT_PARTS": 3}  # half precision is one part
    source = tunables.render(case["source"], few | exact)
    (off,) = answers([case | {"source": source}], "cpu", EMULATES="nvrtc").values()
    assert off < tolerance(name, 1e-6)


EMULATED_PRODUCTS = {(lang, case["name"]): case for lang in EMULATED for case in products(lang)}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("language", "name"), EMULATED_PRODUCTS)
def test_a_product_in_a_packages_language_computes_what_torch_does(language, name):
    case = EMULATED_PRODUCTS[language, name]
    few = {each.name: each.choices[0] for each in tunables.parse(case["source"])}
    exact = {} if ":" in name else {"PRODUCT_PARTS": 3}  # half precision is one part
    source = tunables.render(case["source"], few | exact)
    (off,) = answers([case | {"source": source}], "cpu", EMULATES=language).values()
    assert off < tolerance(name, 1e-6)


@pytest.mark.parametrize("a", [matrix(1, 40).expand(33, 40), matrix(33, 1).expand(33, 40)])
def test_an_operand_that_repeats_its_rows_or_columns_is_not_ported_to_tilelang(a):
    with pytest.raises(NotConvertible, match="repeats its rows or columns"):
        assert port_cases.product("repeated", "tilelang", a, matrix(40, 24))["source"]


def test_no_loop_in_tilelang_reads_again_what_it_has_changed():
    # TileLang's vectorizer keeps the value that it read before the change.
    program = ast.parse(products("tilelang")[0]["source"])
    loops = [each for each in ast.walk(program) if _is_parallel(each)]
    assert [_read_after_a_change(loop) for loop in loops] == [set()] * len(loops) != []


def _is_parallel(node):
    return isinstance(node, ast.For) and ast.unparse(node.iter).startswith("T.Parallel(")


def _read_after_a_change(loop):
    seen, changed, again = set(), set(), set()
    for statement in (each for each in ast.walk(loop) if isinstance(each, ast.Assign)):
        reads = {ast.unparse(each) for each in ast.walk(statement.value)}
        again |= reads & changed
        seen |= reads
        changed |= {ast.unparse(each) for each in statement.targets} & seen
    return again


@pytest.mark.parametrize(
    ("name", "language", "said"),
    [
        ("product_linear", "gluon", "tl.arange"),
        ("product_linear", "nvrtc", "has no blocks of its own"),
        ("cumsum", "nvrtc", "several values of tl.associative_scan"),
        ("argmax", "nvrtc", "is_exceeded"),
        ("argmax", "cute", "is_exceeded"),
        ("argmax", "cutile", "is_exceeded"),
        ("cumsum", "tilelang", "several values of tl.associative_scan"),
    ],
)
def test_what_cannot_be_rewritten_is_named(name, language, said):
    with pytest.raises(NotConvertible, match=re.escape(said)):
        port_cases.ported(name, language)


def test_bits_that_are_read_as_another_type_are_refused():
    task, found = port_cases.read("large_integers")
    (case,) = found.cases
    code = case.code.replace("tl_math.abs(tmp0)", "tmp0.to(tl.float32, bitcast=True)")
    renamed = port_cases.replace(found, cases=(port_cases.replace(case, code=code),))
    with pytest.raises(NotConvertible, match="bitcast"):
        port_cases.convert(task, "t", renamed, rewrite=PORTS["nvrtc"].rewrite)


def test_two_products_of_different_sizes_are_two_instances_of_one_kernel():
    source = port_cases.ported("attention", "nvrtc")
    made = re.findall(r"^(product_kernel\w*) = torch\.cuda\._compile_kernel\(", source, re.M)
    assert made == ["product_kernel", "product_kernel_2"]
    assert source.count("__global__ void __launch_bounds__(32 * WARPS)") == 1
    assert all(source.count(f"        {name}(\n") == 1 for name in made)


def test_a_name_that_has_a_meaning_in_cuda_is_refused():
    task, found = port_cases.read("softmax")
    (case,) = found.cases
    assert "XBLOCK" in case.code
    port = PORTS["nvrtc"]
    code = case.code.replace("tmp0", "double")
    renamed = port_cases.replace(found, cases=(port_cases.replace(case, code=code),))
    with pytest.raises(NotConvertible, match="has the name double"):
        port_cases.convert(task, "t", renamed, rewrite=port.rewrite)


MOMENTS = """
template <int LANES, int EACH>
__global__ void moments_of(const float* x, float* y, int columns) {
  constexpr Threads<1, LANES, true> threads;
  auto mean = each<EACH>([&](int) { return 0.0f; });
  auto squares = mean, weight = mean;
  for (int start = 0; start < columns; start += LANES * EACH)
    for (int i = 0; i < EACH; ++i) {
      const int at = start + i * LANES + threads.lane();
      if (at >= columns) continue;
      const auto next = welford_reduce(
          x[at], mean[i], squares[i], weight[i], start == 0);
      mean.at[i] = next.a, squares.at[i] = next.b, weight.at[i] = next.c;
    }
  const auto all = moments(threads, mean, squares, weight);
  if (threads.lane() == 0) y[0] = all.a, y[1] = all.b, y[2] = all.c;
}
"""


def test_moments_of_many_threads_are_those_of_all_values():
    torch.manual_seed(0)
    x, y = torch.randn(1000) + 30, torch.empty(3)
    kernel = cuda_emulation.Kernel(with_library(MOMENTS), "moments_of<64, 2>")
    kernel(grid=(1, 1, 1), block=(64, 1, 1), args=[x, y, 1000])
    truth = x.double()
    expected = torch.stack([truth.mean(), truth.var(correction=0) * 1000, torch.tensor(1000.0)])
    assert torch.allclose(y.double(), expected, rtol=1e-5)
