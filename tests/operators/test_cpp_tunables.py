"""Constants in C++ of Inductor that the tuner may change.

Invariants: whatever they are set to, a program computes the same (a sum within rounding); by
default it does what Inductor wrote; only lines that are known word for word are rewritten.
"""

import textwrap

import pytest
import torch

from evolve.core.source import tunables
from operators.local.inductor.cpp import library
from operators.local.inductor.cpp_tunables import declaration
from operators.local.inductor.reading import RawCpp

VECTOR = "at::vec::Vectorized<float>"
WIDTH = {"AVX512": 16, "AVX2": 8}.get(torch.backends.cpu.get_cpu_capability(), 4)
ROWS, WHOLE, TAIL = 5, 6 * WIDTH, 3  # more vectors than lanes, and no multiple of them
COLUMNS = WHOLE + TAIL
JOIN = f"[]({VECTOR}& x, {VECTOR}& y) {{ return JOINED; }}"


def number(value: object) -> str:
    return f"static_cast<int64_t>({value}L)"


def loop(whole: str, tail: str) -> str:
    """Over a row as Inductor writes it: vectors, and what is left of one."""
    cases = [("LIKELY", 0, WHOLE, whole), ("UNLIKELY", WHOLE, COLUMNS, tail)]
    guarded = "".join(
        f"if(C10_{word}(x1 >= {number(first)} && x1 < {number(end)}))\n{{\n{body}}}\n"
        for word, first, end, body in cases
    )
    start, end, step = number(0), number(COLUMNS), number(WIDTH)
    return f"for(int64_t x1={start}; x1<{end}; x1+={step})\n{{\n{guarded}}}\n"


def loaded(size: int) -> str:
    at = f"in_ptr0 + static_cast<int64_t>(x1 + {COLUMNS}L*x0)"
    return f"auto tmp0 = {VECTOR}::loadu({at}, static_cast<int64_t>({size}));\n"


def stored(pointer: str, size: str = "") -> str:
    at = f"{pointer} + static_cast<int64_t>(x1 + {COLUMNS}L*x0)"
    return f"auto tmp1 = tmp0 + tmp0;\ntmp1.store({at}{size});\n"


def kernel(body: str) -> RawCpp:
    """What is done for each row, of `in_ptr0` into `out_ptr0`."""
    rows = f"for(int64_t x0={number(0)}; x0<{number(ROWS)}; x0+={number(1)})\n{{\n{body}}}\n"
    region = f"#pragma omp parallel\n{{\n#pragma omp for\n{rows}}}\n"
    head = 'extern "C" void kernel(const float* in_ptr0, float* out_ptr0)'
    return RawCpp(f"{head}\n{{\n{region}}}\n", ())


def reducing(first: str, add: str, add_tail: str, joined: str, final: str) -> RawCpp:
    start = f"float tmp_acc0 = {first};\n{VECTOR} tmp_acc0_vec = {VECTOR}({first});\n"
    whole = f"{loaded(WIDTH)}tmp_acc0_vec = {add};\n"
    tail = f"{loaded(TAIL)}tmp_acc0_vec = {add_tail};\n"
    of_all = f"at::vec::vec_reduce_all<float, 1>({JOIN.replace('JOINED', joined)}, tmp_acc0_vec)"
    end = f"tmp_acc0 = {final.format(of_all)};\nout_ptr0[x0] = tmp_acc0;\n"
    return kernel(start + loop(whole, tail) + end)


def moments() -> RawCpp:
    """The sum of squares about the mean, by Welford's method, the tail by itself."""
    kind = f"Welford<{VECTOR}>"
    start = f"{kind} tmp_acc0_vec = {kind}();\n{kind} masked_tmp_acc0_vec = {kind}();\n"
    for name, size in ("welford_helper0", 6), ("masked_welford_helper0", 1):
        start += f"static WelfordHelper<{VECTOR}, 4096> {name}({number(size)});\n"
    more = "welford_combine(tmp_acc0_vec, tmp0, &welford_helper0);\n"
    masked = (
        f"welford_combine(masked_tmp_acc0_vec, tmp0, {number(TAIL)}, &masked_welford_helper0);\n"
    )
    whole = f"{loaded(WIDTH)}tmp_acc0_vec = {more}"
    tail = f"{loaded(TAIL)}masked_tmp_acc0_vec = {masked}"
    parts = [f"welford_vec_reduce_all({name}tmp_acc0_vec)" for name in ("masked_", "")]
    end = f"Welford<float> all = welford_combine({', '.join(parts)});\nout_ptr0[x0] = all.m2;\n"
    return kernel(start + loop(whole, tail) + end)


DOUBLED = kernel(
    loop(
        loaded(WIDTH) + stored("out_ptr0"),
        loaded(TAIL) + stored("out_ptr0", f", static_cast<int64_t>({TAIL}L)"),
    )
)
SUM = reducing(
    "0",
    "tmp_acc0_vec + tmp0",
    f"sum_masked_reduce(tmp_acc0_vec, tmp0, {number(TAIL)})",
    "x + y",
    "tmp_acc0 + {}",
)
LARGEST = reducing(
    "-std::numeric_limits<float>::infinity()",
    "at::vec::maximum(tmp_acc0_vec, tmp0)",
    f"max_masked_reduce(tmp_acc0_vec, tmp0, {number(TAIL)})",
    "at::vec::maximum(x, y)",
    "max_propagate_nan(tmp_acc0, {})",
)
KERNELS = {"doubled": DOUBLED, "total": SUM, "largest": LARGEST, "moments": moments()}


def text(raw: RawCpp) -> str:
    return library("kernels", "t", {"f": raw}, {})


def test_a_program_opens_only_what_it_can_change():
    assert declaration(text(DOUBLED)).count("(") == 3
    assert '"LANES"' not in declaration(text(DOUBLED))
    assert '"STREAM"' not in declaration(text(SUM))
    assert '"LANES": (1, 4)' in declaration(text(SUM))
    nothing = kernel("out_ptr0[x0] = in_ptr0[x0];\n")
    assert declaration(text(nothing)) == 'TUNABLE = {"CHUNK": (1, 4, 16, 64)}'


def test_by_default_everything_is_as_the_compiler_wrote_it():
    built = library("kernels", "t", KERNELS, {})
    space = tunables.parse(f"{declaration(built)}\n{built}")
    assert space.defaults == {"CHUNK": 16, "STREAM": 0, "PREFETCH": 0, "LANES": 1}


def test_only_whole_vectors_go_past_the_caches_and_each_thread_waits_for_its_own():
    lines = [line.strip() for line in text(DOUBLED).splitlines()]
    assert sum(line.startswith("stream_store(") for line in lines) == 1
    assert sum(line.startswith("tmp1.store(") for line in lines) == 1
    assert lines.count("finish_stores();") == 2  # of the parallel region, and of what is beside it


@pytest.mark.parametrize(
    "more",
    [
        "auto tmp2 = out_ptr0[x0];\n",
        loaded(WIDTH).replace("in_ptr0", "out_ptr0").replace("tmp0", "tmp2"),
        "auto out_ptr1 = out_ptr0;\n",
    ],
)
def test_what_a_function_reads_again_stays_in_the_caches(more):
    raw = kernel(loop(loaded(WIDTH) + stored("out_ptr0") + more, loaded(TAIL)))
    assert "stream_store" not in text(raw)


@pytest.mark.parametrize(
    ("written", "otherwise"),
    [
        ("C10_LIKELY(x1 >= ", "(x1 + 1 > "),  # not known to stop at the last
        (f"x1 < {number(WHOLE)}", f"x1 < {number(COLUMNS + 1)}"),
        ("tmp_acc0_vec + tmp0;", "tmp_acc0_vec + tmp0 * tmp_acc0_vec;"),
        (f"tmp_acc0_vec = {VECTOR}(0)", f"tmp_acc0_vec = {VECTOR}(1)"),
    ],
)
def test_a_reduction_of_any_other_kind_has_one_accumulator(written, otherwise):
    assert "LANES" in text(SUM)
    assert written in SUM.code
    assert "LANES" not in text(RawCpp(SUM.code.replace(written, otherwise), ()))


INTEGERS = "at::vec::VectorizedN<int64_t,2>"


def test_an_accumulator_has_the_type_of_its_own_declaration():
    counted = kernel(
        f"{INTEGERS} tmp_acc0_vec = {INTEGERS}(0);\n"
        + loop("tmp_acc0_vec = tmp_acc0_vec + tmp4;\n", "tmp_acc0_vec = tmp_acc0_vec + tmp4;\n")
    ).code
    (head, sums), (_, counts) = (code.split("\n{\n", 1) for code in (SUM.code, counted))
    assert "LANES" not in text(RawCpp(counted, ()))
    for first, second in (sums, counts), (counts, sums):
        both = text(RawCpp(f"{head}\n{{\n{{\n{first}{{\n{second}}}\n", ()))
        assert both.count("_lanes[LANES]") == 1


def shared_out(count: int) -> RawCpp:
    """A sum as Inductor writes it where threads share the iterations of `count` loops."""
    heads = "".join(
        f"for(int64_t x{2 + n}=0; x{2 + n}<1; x{2 + n}+=1)\n{{\n" for n in range(count - 1)
    )
    collapse = f" collapse({count})" if count > 1 else ""
    add = "tmp_acc0_vec_local = tmp_acc0_vec_local + tmp0;\n"
    masked = f"sum_masked_reduce(tmp_acc0_vec_local, tmp0, {number(TAIL)})"
    inner = loop(loaded(WIDTH) + add, f"{loaded(TAIL)}tmp_acc0_vec_local = {masked};\n")
    body = (
        f"{VECTOR} tmp_acc0_vec_arr[64];\n"
        "#pragma omp parallel num_threads(2)\n{\n"
        f"int64_t x0 = {number(0)};\n"
        f"{VECTOR} tmp_acc0_vec_local = {VECTOR}(0);\n"
        f"#pragma omp for{collapse}\n{heads}{inner}{'}' * (count - 1)}\n"
        "tmp_acc0_vec_arr[omp_get_thread_num()] = tmp_acc0_vec_local;\n}\n"
        f"{VECTOR} tmp_acc0_vec = tmp_acc0_vec_arr[0] + tmp_acc0_vec_arr[1];\n"
        f"out_ptr0[0] = at::vec::vec_reduce_all<float, 1>({JOIN.replace('JOINED', 'x + y')}, "
        "tmp_acc0_vec);\n"
    )
    head = 'extern "C" void kernel(const float* in_ptr0, float* out_ptr0)'
    return RawCpp(f"{head}\n{{\n{body}}}\n", ())


SHARED = {"shared": shared_out(1), "collapsed": shared_out(2)}


@pytest.mark.parametrize("name", SHARED)
def test_nothing_comes_between_a_pragma_and_the_loops_that_threads_share(name):
    assert "LANES" not in text(SHARED[name])
    alone = SHARED[name].code.replace("#pragma omp for", "// for")
    assert "LANES" in text(RawCpp(alone, ()))


@pytest.mark.slow  # it compiles C++; its text is compared above
@pytest.mark.parametrize("values", [{}, {"STREAM": 1, "PREFETCH": 4096, "LANES": 4, "CHUNK": 1}])
def test_whatever_the_constants_are_the_results_are_the_same(values):
    built = library("kernels", "tuned", KERNELS | SHARED, {})
    source = f"from pathlib import Path\nimport torch, tvm_ffi.cpp\n{declaration(built)}\n{built}"
    module: dict = {}
    exec(tunables.render(textwrap.dedent(source), values), module)
    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) + 3
    x[1, COLUMNS - 1], x[2, WHOLE - 1] = 9, 9  # the largest are in the tail and in the last vector
    expected = {
        "doubled": x + x,
        "total": x.sum(1),
        "largest": x.amax(1),
        "moments": x.var(1, correction=0) * COLUMNS,
        "shared": x[0].sum(0, keepdim=True),
        "collapsed": x[0].sum(0, keepdim=True),
    }
    for name, right in expected.items():
        found = torch.full_like(right, torch.nan)
        getattr(module["kernels"], name)(x, found)
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
