"""Suites whose tasks are modules with settings: shapes, configurations, lines of inputs.

Invariants, on checkouts of our own text in the suites' form:
- each setting is a case; what the suite times is timed, the rest is checked;
- inputs are drawn anew for each seed, whatever the files seed, and where the judge says;
- the suite's own rule decides the suite's verdict, and a rule about properties the strict one too;
- the reference of a backward task gives the gradients;
- what is no such task is named with the reason.
"""

import json
from pathlib import Path

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.tasks import find_task
from evolve.tasks.suites import suite_problems
from evolve.worker.correctness.cases import LoadedCase, load_task
from evolve.worker.correctness.compare import judge, judge_by_suite
from evolve.worker.ipc.pytree import flatten

RELU = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_init_inputs():
    return []
"""
GROUPS = (
    RELU
    + """
import json, os

def get_input_groups():
    with open(os.path.join(os.path.dirname(__file__), "scale.json")) as file:
        cases = [json.loads(line) for line in file if line.strip()]
    return [[torch.randn(case["inputs"][0]["shape"])] for case in cases]
"""
)
LINES = [{"inputs": [{"name": "x", "type": "tensor", "shape": [rows, 4]}]} for rows in (2, 3, 5)]
SCALED = """
from __future__ import annotations
import torch

ROWS, DEPTH = 8, 4
scale = 1.5

class Model(torch.nn.Module):
    def __init__(self, rows: int, depth: int):
        super().__init__()
        self.register_buffer("_empty", torch.zeros(1))

    def forward(self, x):
        return x * scale

def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(ROWS, DEPTH, device="cuda")]

def get_init_inputs():
    return [ROWS, DEPTH]
"""
SHAPES = """
WIDE = 16
SHAPES = [
    {"rows": 2, "depth": WIDE},
    {"rows": 3, "depth": 7, "scale": 0.5},
]
"""
ROWS_OF = """
import torch

def _make_inputs(rows: int, kinds: list[int]) -> dict[str, torch.Tensor]:
    x = torch.randn(rows, len(kinds), device="cuda")
    return {"bias": torch.ones(len(kinds), device="cuda"), "x": x}
"""
BIASED = """
import torch

class Model(torch.nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x, bias):
        return {"out": x * self.factor + bias}
"""
LINEAR = """
import torch
import torch.nn as nn

class AutogradFunction(torch.autograd.Function):
    backward_fn = None

def forward_fn(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)

class Model(nn.Module):
    def __init__(self, features: int, init_method: str = "standard"):
        super(Model, self).__init__()
        self.linear = nn.Linear(features, 3)
        nn.init.normal_(self.linear.weight)

    def forward(self, x, places, fn=forward_fn):
        return fn(x, self.linear.weight, self.linear.bias)[places]

def get_inputs(features: int, rows: int = 2):
    return [torch.randn(rows, features, requires_grad=True), torch.tensor([1, 0])]

input_names = ["x", "places"]
"""
CONFIG = {
    "single_input_configs": [{"rows": 2}],
    "single_init_configs": [{}],
    "single_shared_configs": [{"features": 4}],
    "multi_input_configs": [{"rows": 2}, {"rows": 3}],
    "multi_init_configs": [{"init_method": "standard"}],
    "multi_shared_configs": [{"features": 4}, {"features": 6}],
}
TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"size": 9, "seed": 1}
benchmarks:
  - {"size": 33, "seed": 2}
"""
SUM = """
from utils import close
from task import input_t, output_t
import torch

def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    return torch.randn(size, device="cuda", generator=gen), torch.empty(1, device="cuda")

def ref_kernel(data: input_t) -> output_t:
    x, out = data
    out[0] = x.sum()
    return out
"""
BY_REFERENCE = (
    SUM
    + """
def check_implementation(data, output):
    return close(ref_kernel(data), output)
"""
)
BY_PROPERTY = (
    SUM.replace("out[0] = x.sum()\n    return out", "return x.sum().reshape(1)")
    + """
def check_implementation(data, output):
    return (bool((output > 1e3).all()), "not large")
"""
)
UTILS = """
def close(own, some):
    return "" if abs(float(own - some)) < 0.5 else "too far"
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """One folder with the checkouts of all suites in it: their places differ."""
    root = tmp_path_factory.mktemp("checkouts")
    inputs = "\ndef get_inputs():\n    return [torch.randn(4, 4)]\n"
    write(root / "reference/activation/relu.py", RELU + inputs)
    write(root / "reference/npukernelbench_level1/scale.py", GROUPS)
    write(
        root / "reference/npukernelbench_level1/scale.json",
        "".join(json.dumps(line) + "\n" for line in LINES),
    )
    by_its_own_name = GROUPS.replace(
        'os.path.join(os.path.dirname(__file__), "scale.json")',
        'os.path.splitext(os.path.abspath(__file__))[0] + ".json"',
    )
    write(root / "reference/npukernelbench_level1/named.py", by_its_own_name)
    write(root / "reference/npukernelbench_level1/named.json", json.dumps(LINES[0]))
    write(root / "reference/index/_broken.py", "no python at all")
    write(root / "reference/index/torn.py", RELU)
    hard = root / "benchmarks/hard/problems-h100"
    write(hard / "01_scaled/reference.py", SCALED)
    write(hard / "01_scaled/shapes.py", SHAPES)
    write(hard / "01_scaled/problem.yaml", "tolerance:\n  float32: 0.5\n")
    write(hard / "02_loop/reference.py", "class Model:\n    pass\n")
    write(root / "benchmarks/mega/problems/03_other/reference.py", SCALED)
    write(root / "benchmarks/mega/problems/03_other/shapes.py", "SHAPES = [{'heads': 2}]\n")
    operator = root / "data/rms_norm"
    write(operator / "reference.py", BIASED)
    write(operator / "input.py", ROWS_OF)
    shapes = {
        str(rows): {"init_kwargs": None, "input_kwargs": {"rows": rows, "kinds": [1, 2]}}
        for rows in range(2, 10)
    }
    shapes["9"]["init_kwargs"] = {"factor": 3.0}
    write(operator / "shapes.json", json.dumps(shapes))
    for direction in ("forward", "backward"):
        text = LINEAR if direction == "backward" else LINEAR.replace(", requires_grad=True", "")
        write(root / f"tasks/linear/func_{direction}.py", text)
        write(root / f"tasks/linear/config_{direction}.json", json.dumps(CONFIG))
    for task in (2, 10):
        write(root / f"tasks/kernelbench/level_1/task_{task}/func_forward.py", LINEAR)
    write(root / "tasks/kernelbench/level_1/task_2/config_forward.json", "{}")
    problems = root / "problems/pmpp_v2"
    far = TASK.replace("../utils.py", "../../../secret.py")
    for name, text, task in (
        ("sum_py", BY_REFERENCE, TASK),
        ("large_py", BY_PROPERTY, TASK),
        ("far_py", BY_REFERENCE, far),
    ):
        write(problems / name / "task.yml", task)
        write(problems / name / "task.py", "input_t = output_t = object\n")
        write(problems / name / "reference.py", text)
    write(problems / "utils.py", UTILS)
    write(problems / "many_py/task.yml", TASK + "multi_gpu: true\n")
    return root


def cases_of(spec: str, root: Path) -> dict[str, LoadedCase]:
    return {case.name: case for case in load_task(find_task(spec, checkout=root)).cases}


def timed(cases: dict[str, LoadedCase]) -> list[str]:
    return [name for name, case in cases.items() if case.timed]


def labels(suite: str, root: Path) -> list[tuple[str, str]]:
    return [(one.label, one.level) for one in suite_problems(suite, path=str(root))]


def verdicts(case: LoadedCase, outcome) -> tuple[Status, bool]:
    """The strict one, and the suite's, of a function of the inputs."""
    inputs = case.inputs(1)
    expected = case.expected(case.model(1), inputs)
    outputs, spec = flatten(outcome(*case.inputs(1)))
    strict = judge(case, outputs, spec, expected, inputs).status
    return strict, judge_by_suite(case, outputs, expected, inputs)


def test_lines_of_inputs_are_groups_of_which_the_first_is_timed(root: Path):
    found = labels("multikernelbench", root)
    assert [label for label, _ in found][:1] == ["activation/relu"]
    assert ("npukernelbench_level1/scale", "npukernelbench_level1") in found
    assert "index/_broken" not in dict(found)
    cases = cases_of("multikernelbench:npukernelbench_level1/scale", root)
    assert list(cases) == ["first/group0", "others/group0", "others/group1"]
    assert timed(cases) == ["first/group0"]
    assert [len(case.inputs(1)[0]) for case in cases.values()] == [2, 3, 5]
    (single,) = cases_of("multikernelbench:npukernelbench_level1/named", root).values()
    assert (single.timed, len(single.inputs(1)[0])) == (True, 2)
    (plain,) = cases_of("multikernelbench:activation/relu", root).values()
    assert verdicts(plain, lambda x: x.relu() + 5e-5) == (Status.WRONG_VALUE, True)
    assert verdicts(plain, torch.relu) == (Status.CORRECT, True)


def test_a_shape_sets_the_constants_of_a_module(root: Path):
    assert labels("kernelbench_hard", root) == [
        ("hard-h100/01_scaled", "hard-h100"), ("hard-h100/02_loop", "hard-h100"),
    ]  # fmt: skip
    cases = cases_of("kernelbench_hard:hard-h100/01_scaled", root)
    first, second = cases.values()
    assert (first.inputs(1)[0].shape, second.inputs(1)[0].shape) == ((2, 16), (3, 7))
    assert first.init_inputs(1) == [2, 16]
    assert not first.inputs(1)[0].equal(first.inputs(2)[0])  # though the file seeds
    assert verdicts(second, lambda x: x * 0.5) == (Status.CORRECT, True)
    assert verdicts(second, lambda x: x * 0.5 + 0.4) == (Status.WRONG_VALUE, True)
    assert verdicts(second, lambda x: x / 0)[1] is False


def test_a_shape_of_an_operator_gives_arguments_by_name(root: Path):
    cases = cases_of("atrex:rms_norm", root)
    assert (len(cases), len(timed(cases))) == (8, 6)
    assert sum(cases[name].weight for name in timed(cases)) == pytest.approx(8)
    x, bias = cases["2"].inputs(1)
    assert (x.shape, bias.shape) == ((2, 2), (2,))
    assert (cases["2"].init_inputs(1), cases["9"].init_inputs(1)) == ([2.0], [3.0])
    assert verdicts(cases["9"], lambda x, b: {"out": x * 3.0 + b}) == (Status.CORRECT, True)
    assert verdicts(cases["9"], lambda x, b: {"out": x * 3.0 + b + 5e-3})[1]
    assert not verdicts(cases["9"], lambda x, b: {"out": x * 2.0 + b})[1]


def test_settings_of_a_module_are_cases(root: Path):
    assert labels("robust_kbench", root) == [
        ("linear", "forward"), ("linear/backward", "backward"),
        ("level_1/task_2", "level_1"), ("level_1/task_10", "level_1"),
    ]  # fmt: skip
    cases = cases_of("robust_kbench:linear", root)
    assert timed(cases) == ["single0"]
    assert [case.inputs(1)[0].shape for case in cases.values()] == [
        (2, 4), (2, 4), (2, 6), (3, 4), (3, 6),
    ]  # fmt: skip
    assert cases["multi3"].init_inputs(1) == [6, "standard"]


def test_a_backward_task_is_judged_by_the_gradients(root: Path):
    case = cases_of("robust_kbench:linear/backward", root)["single0"]
    grad, x, _ = case.inputs(1)
    assert (grad.shape, x.shape, x.requires_grad) == ((2, 3), (2, 4), False)
    weight = case.model(1).state_dict()["linear.weight"]

    def by_hand(grad, x, places):
        own = torch.zeros_like(grad).index_copy(0, places, grad)
        return own @ weight, own.T @ x, own.sum(0)

    assert verdicts(case, by_hand) == (Status.CORRECT, True)
    wrong = lambda *given: [2 * one for one in by_hand(*given)]  # noqa: E731
    assert verdicts(case, lambda *given: tuple(wrong(*given))) == (Status.WRONG_VALUE, False)


def test_a_competitions_inputs_are_those_of_its_generator_with_hidden_seeds(root: Path):
    cases = cases_of("gpu_mode:pmpp_v2/sum_py", root)
    assert (list(cases), timed(cases)) == (["tests0", "benchmarks0"], ["benchmarks0"])
    case = cases["tests0"]
    ((x, out),) = case.inputs(1)
    assert (x.shape, out.shape) == ((9,), (1,))
    assert x.equal(case.inputs(1)[0][0])
    assert not x.equal(case.inputs(2)[0][0])


def test_a_checker_that_asks_the_reference_gives_the_suites_verdict_only(root: Path):
    case = cases_of("gpu_mode:pmpp_v2/sum_py", root)["tests0"]

    def outcome(off: float):
        def call(data):
            x, _ = data
            total = x.sum().reshape(1) + off
            return total, total  # what is returned, and the argument that is written

        return call

    (inputs,) = case.inputs(1)
    expected = case.expected(case.model(1), [inputs])
    for off, status, suite in (
        (0.0, Status.CORRECT, True),
        (0.1, Status.WRONG_VALUE, True),
        (0.7, Status.WRONG_VALUE, False),
    ):
        outputs = list(outcome(off)(case.inputs(1)[0]))
        assert judge(case, outputs, expected.spec, expected, case.inputs(1)).status is status
        assert judge_by_suite(case, outputs, expected, case.inputs(1)) is suite


def test_an_argument_that_nothing_writes_is_no_output(root: Path):
    case = cases_of("gpu_mode:pmpp_v2/large_py", root)["tests0"]
    assert not case.effects.changed  # an empty tensor has the same values each time


def test_a_checker_of_properties_gives_both_verdicts(root: Path):
    case = cases_of("gpu_mode:pmpp_v2/large_py", root)["tests0"]
    assert verdicts(case, lambda data: torch.full((1,), 2e3)) == (Status.CORRECT, True)
    assert verdicts(case, lambda data: data[0].sum().reshape(1))[0] is Status.WRONG_VALUE


TRACE = """
Operator: aten.add.Tensor
cnt: 12, ((T([2, 3], f16), T([3], f16)), {'alpha': 2})
cnt: 1, ((T([4, 4], f32, [1, 4]), -inf), {})
cnt: 0, ((T([9], f32), 1), {})
Operator: aten.sum.SymInt
cnt: 3, ((T([2, 5], bf16), [1]), {'dtype': torch.float32})
Operator: aten.gather.default
cnt: 1, ((T([2], f32), 0, T([2], i64)), {})
Operator: aten.relu.default
cnt: 1, ((__import__('os').getpid(),), {})
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("traces")
    write(root / "calls.txt", TRACE)
    return root


def test_calls_of_an_operator_in_a_trace_are_cases(traces: Path):
    assert [label for label, _ in labels("backendbench", traces)] == [
        "add.Tensor", "gather.default", "relu.default", "sum.dim_IntList",
    ]  # fmt: skip
    half, strided = cases_of("backendbench:add.Tensor", traces).values()
    (x, y), options = half.inputs(1)
    assert (x.dtype, x.shape, options) == (torch.float16, (2, 3), {"alpha": 2})
    (outcome,) = half.reference(half.model(1), [(x, y), options])
    assert outcome.equal(x + 2 * y)
    assert strided.inputs(1)[0][0].stride() == (1, 4)
    assert not x.equal(half.inputs(2)[0][0])
    (total,) = cases_of("backendbench:sum.dim_IntList", traces).values()
    assert verdicts(total, lambda args, _: args[0].float().sum(1)) == (Status.CORRECT, True)
    assert verdicts(total, lambda args, _: args[0].float().sum(1) + 0.005)[1]


def test_the_data_set_itself_is_read_without_its_synthetic_calls(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {
        "op_name": ["aten.neg.default"] * 3,
        "args": ["((T([4], f32),), {})", "((T([9], f32),), {})", "((T([4], f32),), {})"],
        "is_synthetic": [False, True, False],
    }
    parquet.write_table(arrow.table(rows), tmp_path / "problems.parquet")
    parquet.write_table(arrow.table({"model": ["a"]}), tmp_path / "a_file_of_models.parquet")
    (case,) = cases_of("backendbench:neg.default", tmp_path).values()
    assert verdicts(case, lambda args, _: -args[0]) == (Status.CORRECT, True)


def test_a_call_in_a_trace_is_read_and_not_executed(traces: Path):
    (case,) = cases_of("backendbench:relu.default", traces).values()
    with pytest.raises(UsageError, match="ValueError"):
        case.inputs(1)
    with pytest.raises(UsageError, match="indices"):
        find_task("backendbench:gather.default", checkout=traces)


def test_a_folder_without_the_data_set_says_what_to_download(tmp_path: Path, monkeypatch):
    address = "Download .*huggingface.co/datasets/GPUMODE/backendbench_tests"
    monkeypatch.delenv("BACKENDBENCH_PATH", raising=False)
    with pytest.raises(UsageError, match=rf"no checkout is named\. {address}"):
        suite_problems("backendbench")
    with pytest.raises(UsageError, match=rf"has no \*\.parquet or \*\.txt.*{address}"):
        suite_problems("backendbench", path=str(tmp_path))
    write(tmp_path / "README.txt", "no trace")
    with pytest.raises(UsageError, match=rf"has operators\. {address}"):
        suite_problems("backendbench", path=str(tmp_path))


NO_TASKS = {
    "multikernelbench:index/torn": r"torn\.py defines no get_inputs",
    "multikernelbench:index/none": "no such problem.*evolve tasks list --suite multikernelbench",
    "kernelbench_hard:hard-h100/02_loop": "defines no get_inputs and no get_init_inputs",
    "kernelbench_hard:mega/03_other": "heads, which is no constant",
    "robust_kbench:level_1/task_2": r"config_forward\.json has no settings",
    "robust_kbench:level_1/task_10": r"config_forward\.json cannot be read",
    "gpu_mode:pmpp_v2/many_py": "several GPUs",
    "gpu_mode:pmpp_v2/far_py": "which is not in the checkout",
}


@pytest.mark.parametrize("spec", NO_TASKS)
def test_what_is_no_task_is_named_with_the_reason(root: Path, spec: str):
    with pytest.raises(UsageError, match=NO_TASKS[spec]):
        find_task(spec, checkout=root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version https://git-lfs.github.com/spec/v1\nsize 9\n", "^[^(]* is a pointer of Git LFS"),
        ("{", r"shapes\.json is no JSON \("),
        ('{"a": 3}', r"shape a is no object"),
    ],
)
def test_data_that_cannot_be_read_are_named_with_the_one_reason(
    root: Path, tmp_path: Path, text: str, said: str
):
    operator = tmp_path / "data" / "rms_norm"
    for name in ("reference.py", "input.py"):
        write(operator / name, (root / "data" / "rms_norm" / name).read_text())
    write(operator / "shapes.json", text)
    with pytest.raises(UsageError, match=said):
        find_task("atrex:rms_norm", checkout=tmp_path)


SUITES = ("multikernelbench", "kernelbench_hard", "atrex", "robust_kbench", "gpu_mode")


@pytest.mark.parametrize("suite", SUITES)
def test_a_folder_that_is_no_checkout_is_refused_with_the_address(tmp_path: Path, suite: str):
    with pytest.raises(UsageError, match=r"has no .*https://github\.com/"):
        suite_problems(suite, path=str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no folder .*/absent\. .*https://github\.com/"):
        suite_problems(suite, path=str(tmp_path / "absent"))
