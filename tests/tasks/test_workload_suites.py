"""flashinfer-bench and SOL-ExecBench: a definition in JSON, and workloads of several kinds.

Invariants, on checkouts of our own text in the suites' form:
- a workload is a case with its own shapes, inputs, tolerance and weight;
- inputs are random, scalars, stored tensors, or made by the definition's own function;
- data that are not there are named, and so is what is no definition.
"""

import json
import struct
from pathlib import Path

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.tasks import find_task
from evolve.tasks.suites import suite_problems
from evolve.testing.suite_tasks.workloads import axes_of
from evolve.worker.correctness.cases import LoadedCase, load_task

GATHER = {
    "name": "gather",
    "op_type": "gather",
    "axes": {"N": {"type": "var"}, "D": {"type": "const", "value": 4}, "M": {"type": "var"}},
    "inputs": {
        "table": {"shape": ["N", "D"], "dtype": "float16"},
        "rows": {"shape": ["M"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["M", "D"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(table, rows, scale):\n    return table[rows] * scale\n",
}
MADE = {
    "name": "made",
    "axes": {
        "N": {"type": "var"},
        "H": {"type": "expr", "expression": "(N + 2) // 2 * 3 - -1"},
    },
    "custom_inputs_entrypoint": "make",
    "inputs": {
        "x": {"shape": ["N", "H"], "dtype": "float32"},
        "layernorm_weight": {"shape": ["H"], "dtype": "float32"},
        "mask": {"shape": ["N"], "dtype": "bool"},
    },
    "outputs": {"y": {"shape": ["N", "H"], "dtype": "float32"}},
    "reference": "import torch\n\ndef make(sizes, device):\n"
    "    return {'x': torch.rand(sizes['N'], sizes['H'], device=device) + 10}\n\n"
    "def run(x, layernorm_weight, mask):\n"
    "    return x * layernorm_weight * mask[:, None]\n",
}
WIDE = {"max_atol": 0.5, "max_rtol": 0.0, "required_matched_ratio": 0.5}


def safetensors(**tensors: torch.Tensor) -> bytes:
    """The content of a file with int64 tensors."""
    about, data = {}, b""
    for name, tensor in tensors.items():
        values = struct.pack(f"<{tensor.numel()}q", *tensor.flatten().tolist())
        places = [len(data), len(data) + len(values)]
        about[name] = {"dtype": "I64", "shape": list(tensor.shape), "data_offsets": places}
        data += values
    text = json.dumps(about).encode()
    return len(text).to_bytes(8, "little") + text + data


def write(path: Path, content: bytes | str | dict | list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        content = "".join(json.dumps(line) + "\n" for line in content)
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def gather_workload(rows: int, file: str) -> dict:
    source = {"type": "safetensors", "path": f"blob/workloads/{file}", "tensor_key": "rows"}
    inputs = {"table": {"type": "random"}, "rows": source, "scale": {"type": "scalar", "value": 3}}
    return {"uuid": f"{file}-0000", "axes": {"N": 8, "M": rows}, "inputs": inputs}


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("traces")
    write(root / "definitions/gather/gather.json", GATHER)
    lines = [{"definition": "gather", "workload": gather_workload(3, "three"), "solution": None}]
    write(root / "workloads/gather/gather.jsonl", lines)
    write(root / "blob/workloads/three", safetensors(rows=torch.tensor([5, 0, 7])))
    write(root / "definitions/lost.json", {**GATHER, "name": "lost"})
    write(root / "workloads/lost.jsonl", [gather_workload(2, "pointer")])
    write(root / "blob/workloads/pointer", "version https://git-lfs.github.com/spec/v1\nsize 9\n")
    write(root / "definitions/empty.json", {**GATHER, "name": "empty"})
    write(root / "workloads/empty.jsonl", "\n")
    write(root / "definitions/other.json", {"name": "other"})
    write(root / "workloads/other.jsonl", [gather_workload(2, "three")])
    return root


@pytest.fixture(scope="module")
def problems(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sol")
    folder = root / "data/benchmark/L1/made"
    write(folder / "definition.json", MADE)
    custom = {"x": {"type": "custom"}}
    lines = [{"axes": {"N": n}, "inputs": custom, "uuid": f"w{n}"} for n in range(4, 14)]
    lines[0]["tolerance"] = WIDE
    write(folder / "workload.jsonl", lines)
    return root


def cases_of(spec: str, root: Path) -> tuple[LoadedCase, ...]:
    return load_task(find_task(spec, checkout=root)).cases


def test_stored_tensors_scalars_and_random_ones_are_inputs(traces: Path):
    (case,) = cases_of("flashinfer_bench:gather", traces)
    table, rows, scale = case.inputs(1)
    assert (table.shape, table.dtype, scale) == ((8, 4), torch.float16, 3)
    assert rows.tolist() == [5, 0, 7]
    assert not table.equal(case.inputs(2)[0])
    (outcome,) = case.reference(case.model(1), [table, rows, scale])
    assert outcome.equal(table[rows] * 3)


def test_what_a_definition_makes_by_itself_is_an_input(problems: Path):
    case = cases_of("sol_execbench:L1/made", problems)[0]
    x, weight, mask = case.inputs(1)
    assert (x.shape, mask.dtype) == ((4, 10), torch.bool)
    assert float(x.min()) >= 10
    assert 0 < float((weight - 1).abs().max()) < 1  # near 1 as in a model, and not to be left out


def test_every_workload_is_checked_and_a_few_are_timed_for_all(problems: Path):
    cases = cases_of("sol_execbench:L1/made", problems)
    timed = [case for case in cases if case.timed]
    assert (len(cases), len(timed)) == (10, 6)
    assert sum(case.weight for case in timed) == pytest.approx(10)
    assert [case.inputs(1)[0].shape[0] for case in cases] == list(range(4, 14))


def test_each_workload_has_the_suites_tolerance_of_its_own(problems: Path, traces: Path):
    wide, usual, *_ = cases_of("sol_execbench:L1/made", problems)
    own = torch.full((10,), 10.0)
    off = own.clone()
    off[:5] += 0.4
    assert wide.suite_check(off, own, [])[0]
    assert not usual.suite_check(off, own, [])[0]
    assert usual.suite_check(own + 0.1, own, [])[0]  # the sum of both tolerances
    (either,) = cases_of("flashinfer_bench:gather", traces)
    assert either.suite_check(own * 1.009, own, [])[0]  # by one of the two
    assert not either.suite_check(own * 1.011, own, [])[0]
    assert not either.suite_check(own * float("nan"), own, [])[0]


def test_what_is_not_there_is_named(traces: Path):
    with pytest.raises(UsageError, match=r"pointer is a pointer of Git LFS.*git lfs pull"):
        find_task("flashinfer_bench:lost", checkout=traces)
    with pytest.raises(UsageError, match=r"other\.json has no reference"):
        find_task("flashinfer_bench:other", checkout=traces)
    with pytest.raises(UsageError, match=r"empty\.jsonl"):
        find_task("flashinfer_bench:empty", checkout=traces)
    found = [(p.label, p.level) for p in suite_problems("flashinfer_bench", path=str(traces))]
    assert found == [("empty", ""), ("gather", "gather"), ("lost", ""), ("other", "")]


NO_WORKLOADS = [
    {"axes": [], "inputs": {}},
    {"axes": {"N": "8"}, "inputs": {}},
    {"axes": {}, "inputs": {"rows": {"type": "safetensors"}}},
    {"axes": {}, "inputs": {"x": 1}},
]


@pytest.mark.parametrize("bad", NO_WORKLOADS)
def test_a_workload_of_another_form_is_named(tmp_path: Path, bad):
    write(tmp_path / "definitions/gather.json", GATHER)
    write(tmp_path / "workloads/gather.jsonl", [gather_workload(2, "three"), bad])
    with pytest.raises(UsageError, match=r"gather\.jsonl: workload 1- has no axes or inputs"):
        find_task("flashinfer_bench:gather", checkout=tmp_path)


def test_a_workload_names_no_file_outside_of_the_data_set(traces: Path, tmp_path: Path):
    write(tmp_path / "definitions/gather.json", GATHER)
    line = gather_workload(2, "../../../../secret")
    write(tmp_path / "workloads/gather.jsonl", [line])
    with pytest.raises(UsageError, match="which is not in the data set"):
        find_task("flashinfer_bench:gather", checkout=tmp_path)


def test_an_axis_is_arithmetic_of_others_and_nothing_else():
    axes = {"A": {"type": "var"}, "B": {"type": "expr", "expression": "2 * A ** 2 % 7"}}
    assert axes_of(axes, {"A": 5})["B"] == 1
    axes["B"]["expression"] = "__import__('os').getpid()"
    with pytest.raises(ValueError, match="no arithmetic"):
        axes_of(axes, {"A": 5})
