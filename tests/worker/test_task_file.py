"""Task files: any KernelBench file runs unmodified, and what is wrong with one is said plainly.

Invariants: everything drawn is a function of its seed; the global random state is never disturbed;
stored inputs are never changed; integers stay integers; every mistake in a file is one `UsageError`
that names what, where and the remedy.
"""

import json
import random

import numpy
import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.task import Case, Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.output_sizes import Alive
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.reference import torch_settings
from evolve.worker.reference.seeding import seeded
from evolve.worker.runner import models
from evolve.worker.session.memory_model import weights_bytes
from evolve.worker.session.prepared_task import PreparedTasks
from tests.worker.judging import loaded_case, one_case, task_source

KERNELBENCH = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """
    Model that performs Layer Normalization.
    """
    def __init__(self, normalized_shape: tuple):
        super(Model, self).__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ln(x)

batch_size = 4
features = 8
dim1 = 16

def get_inputs():
    x = torch.rand(batch_size, features, dim1)
    return [x]

def get_init_inputs():
    return [(features, dim1)]
'''


def test_a_kernelbench_file_runs_unmodified():
    case = loaded_case(KERNELBENCH)
    model, inputs = case.model(1), case.inputs(2)
    outputs = case.reference(model, inputs)
    assert [tuple(output.shape) for output in outputs] == [(4, 8, 16)]
    assert model.training  # as the file leaves it
    assert not outputs[0].requires_grad


def test_the_same_seed_gives_the_same_and_another_seed_other_inputs_and_weights():
    case = loaded_case(KERNELBENCH)
    assert torch.equal(case.inputs(5)[0], case.inputs(5)[0])
    assert not torch.equal(case.inputs(5)[0], case.inputs(6)[0])
    assert torch.equal(case.model(5).ln.weight, case.model(5).ln.weight)
    assert not torch.equal(case.model(5).ln.weight, case.model(6).ln.weight)


def test_draws_are_those_of_torchs_own_seed_without_its_stack_traces(monkeypatch):
    torch.manual_seed(7)
    drawn = torch.rand(4)
    monkeypatch.setattr("traceback.format_stack", None)
    with seeded(7):
        assert torch.equal(torch.rand(4), drawn)


def test_a_file_that_fills_its_own_containers_anew_gives_other_inputs_for_each_call():
    extra = """
KEPT = [{"a": [None]}]

def filled():
    KEPT[0]["a"][0] = torch.randn(3)
    return KEPT
"""
    source = task_source("x['a'][0] * 2", "filled()", extra=extra)
    first, second = (sets[0]["a"][0] for sets in loaded_case(source).argument_sets(1, 2))
    assert not torch.equal(first, second)


def test_no_call_disturbs_the_global_random_state():
    source = task_source(
        "self.norm(x)",
        "[torch.randn(4, 16) * random.random() + float(numpy.random.rand())]",
        setup="self.norm = nn.BatchNorm1d(16)",
        extra="import random\nimport numpy",
    )
    states = torch.get_rng_state(), numpy.random.get_state()[1].copy(), random.getstate()
    case = loaded_case(source)
    model = case.model(1)
    for family in case.families():
        case.expected(model, case.inputs(2, family), family)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (numpy.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
    assert torch.equal(case.inputs(3)[0], case.inputs(3)[0])


def test_zero_biases_unit_gains_and_running_statistics_are_randomised():
    source = task_source(
        "self.norm(x)", "[torch.randn(4, 16)]", setup="self.norm = nn.BatchNorm1d(16)"
    )
    norm = loaded_case(source).model(1).norm
    assert norm.bias.abs().min() > 0
    assert (norm.weight - 1).abs().min() > 0
    assert norm.running_mean.abs().min() > 0
    assert norm.running_var.min() > 0
    assert (norm.running_var - 1).abs().min() > 0
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("precision", ["task", "fp16"])
def test_a_model_is_made_within_the_memory_that_is_planned_for_it(dtype, precision):
    layer = f"nn.Linear(256, 256, dtype=torch.{dtype})"
    source = task_source(
        "self.layer(x)", f"[torch.randn(4, 256).to(torch.{dtype})]", setup=f"self.layer = {layer}"
    )
    task = Task(name="t", source=source, precision=precision)
    (warm,) = PreparedTasks(CpuDevice()).get(task).cases
    with Alive(()) as alive:
        warm.case.model(1)
    assert alive.most < 1.02 * weights_bytes([warm])


def test_structure_of_parameters_and_buffers_survives_randomising():
    source = task_source(
        "x @ self.lower + self.mask",
        "[torch.randn(4, 8)]",
        setup="self.lower = nn.Parameter(torch.randn(8, 8).tril()); "
        "self.register_buffer('mask', torch.zeros(8)); "
        "self.register_buffer('steps', torch.arange(8))",
    )
    model = loaded_case(source).model(1)
    assert torch.equal(model.lower, model.lower.tril())
    assert not model.mask.any()
    assert torch.equal(model.steps, torch.arange(8))


def test_sizes_and_case_constants_set_module_constants_and_what_is_computed_from_them():
    extra = 'ROWS = 2\nCOLUMNS = ROWS * 4\nSIZES = {"tiny": {"ROWS": 3}, "cpu": {"ROWS": 5}}'
    source = task_source("x", "[torch.randn(ROWS, COLUMNS)]", extra=extra)
    assert loaded_case(source, size="tiny").inputs(1)[0].shape == (3, 12)
    assert loaded_case(source).inputs(1)[0].shape == (5, 20)
    assert loaded_case(source, cases=one_case(COLUMNS=7)).inputs(1)[0].shape == (5, 7)


def test_a_file_without_sizes_runs_at_any_size():
    assert loaded_case(KERNELBENCH, size="gpu").inputs(1)[0].shape == (4, 8, 16)


def test_cases_keep_their_name_weight_and_whether_they_are_timed():
    cases = (Case(name="a", constants={"dim1": 3}, weight=2.0), Case(name="b", timed=False))
    loaded = load_task(Task(name="ln", source=KERNELBENCH, cases=cases))
    assert [(case.name, case.weight, case.timed) for case in loaded.cases] == [
        ("a", 2.0, True),
        ("b", 1.0, False),
    ]
    assert loaded.cases[0].inputs(1)[0].shape[-1] == 3
    assert loaded.cases[1].inputs(1)[0].shape[-1] == 16


def test_input_groups_become_cases():
    extra = "def get_input_groups():\n    return [[torch.randn(n, 4)] for n in (2, 3)]"
    loaded = load_task(Task(name="g", source=task_source("x", "[]", extra=extra)))
    assert [case.inputs(1)[0].shape[0] for case in loaded.cases] == [2, 3]
    assert len({case.name for case in loaded.cases}) == 2


def test_input_groups_are_counted_where_inputs_are_made():
    """A file may call a kernel to see which calls there are, and it runs on its device only."""
    there = '(2 if torch.get_default_device().type == "meta" else 1)'
    extra = f"def get_input_groups():\n    return [[torch.randn(3, 4)]] * {there}"
    task = Task(name="g", source=task_source("x", "[]", extra=extra))
    assert len(load_task(task, torch.device("meta")).cases) == 2
    assert len(load_task(task).cases) == 1


def test_precision_casts_floating_tensors_and_leaves_integers_and_booleans():
    source = task_source(
        "F.cross_entropy(x, y)",
        "[torch.randn(4, 8), torch.randint(0, 8, (4,)), torch.rand(4) > 0.5]",
        arguments="x, y, z",
    )
    dtypes = [value.dtype for value in loaded_case(source, precision="bf16").inputs(1)]
    assert dtypes == [torch.bfloat16, torch.int64, torch.bool]


def test_precision_reaches_parameters_and_plain_tensor_attributes():
    source = task_source(
        "self.linear(x) * self.scale",
        "[torch.randn(4, 8)]",
        setup="self.linear = nn.Linear(8, 8); self.scale = torch.ones(8)",
    )
    case = loaded_case(source, precision="fp16")
    model = case.model(1)
    assert {model.linear.weight.dtype, model.scale.dtype} == {torch.float16}
    assert case.reference(model, case.inputs(1))[0].dtype == torch.float16


def test_the_files_own_rules_apply_where_the_task_says_nothing():
    source = task_source("x", "[torch.randn(9)]", extra='PRECISION = "fp16"\nACCUMULATION = "tf32"')
    loaded = load_task(Task(name="t", source=source))
    assert (loaded.precision, loaded.accumulation) == ("fp16", "tf32")
    loaded = load_task(Task(name="t", source=source, precision="fp32", accumulation="half"))
    assert (loaded.precision, loaded.accumulation) == ("fp32", "half")


def test_a_reference_that_writes_to_its_inputs_leaves_the_stored_ones_alone():
    case = loaded_case(task_source("x.add_(1)", "[torch.zeros(16)]"))
    inputs = case.inputs(1)
    case.expected(case.model(1), inputs)
    assert not inputs[0].any()


def test_truth_is_computed_in_fp64_with_tensors_made_in_forward_too():
    case = loaded_case(task_source("x + torch.ones(16) / 3", "[torch.randn(16)]"))
    model, inputs = case.model(1), case.inputs(1)
    truth = case.truth(model, inputs, case.reference(model, inputs))
    assert not truth.note
    assert torch.equal(truth.outputs[0], inputs[0].double() + torch.ones(16).double() / 3)
    assert torch.get_default_dtype() == torch.float32


def test_a_reference_that_cannot_run_in_fp64_says_so():
    source = task_source("x * self.only_fp32(x)", "[torch.randn(16)]")
    source = source.replace(
        "    def forward",
        "    def only_fp32(self, x):\n"
        "        if x.dtype == torch.float64:\n"
        "            raise NotImplementedError('no double')\n"
        "        return x\n\n    def forward",
    )
    case = loaded_case(source)
    expected = case.expected(case.model(1), case.inputs(1))
    assert "no double" in expected.note
    assert expected.truth[0].dtype == torch.float64


def test_an_outcome_that_stays_fp32_in_the_fp64_run_is_noted():
    case = loaded_case(task_source("x.float() * 2", "[torch.randn(16)]"))
    assert "output 0" in case.expected(case.model(1), case.inputs(1)).note


def test_outputs_may_be_nested():
    case = loaded_case(task_source("{'b': (x, None), 'a': [x + 1]}", "[torch.randn(4)]"))
    expected = case.expected(case.model(1), case.inputs(1))
    assert expected.spec == "{a:[T],b:(T,None)}"
    assert len(expected.reference) == len(expected.truth) == 2


@pytest.mark.parametrize(
    ("source", "fields", "said"),
    [
        ("import torch\nimport no_such_thing", {}, ["ModuleNotFoundError", "line 2"]),
        ("def get_inputs(:", {}, ["SyntaxError", "line 1"]),
        ("x = 1\n\nraise RuntimeError('boom')", {}, ["RuntimeError", "line 3", "boom"]),
        ("raise SystemExit(3)", {}, ["SystemExit"]),
        ("def get_inputs(): return []", {}, ["class Model"]),
        ("class Model: pass\ndef get_init_inputs(): return []", {}, ["function get_inputs"]),
        (KERNELBENCH + "\nSIZES = [1]", {}, ["SIZES", "dict of dicts"]),
        (KERNELBENCH + "\nSIZES = {'cpu': {'dim1': [2]}}", {}, ["SIZES", "dim1", "list"]),
        (KERNELBENCH + "\nSIZES = {'tiny': {}}", {}, ["size 'cpu'", "tiny"]),
        (KERNELBENCH + "\nSIZES = {'cpu': {'dim2': 2}}", {}, ["'dim2'", "dim1"]),
        (KERNELBENCH, {"cases": one_case(typo=3)}, ["'typo'", "batch_size"]),
        (KERNELBENCH + "\nPRECISION = 'fp8'", {}, ["precision", "fp8", "bf16"]),
    ],
)
def test_a_bad_file_is_refused_with_what_where_and_remedy(source, fields, said):
    with pytest.raises(UsageError) as refusal:
        load_task(Task(name="mine", source=source, **fields))
    for words in ["task mine", *said]:
        assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (task_source("float(x.sum())", "[torch.randn(4)]"), ["depends on values", "tensor"]),
        (task_source("(x, b'3')", "[torch.randn(4)]"), ["output[1]", "bytes"]),
        (task_source("None", "[torch.randn(4)]"), ["no tensor"]),
        (task_source("x @ x", "[torch.randn(4, 3)]"), ["Model.forward", "RuntimeError", "line 14"]),
        (task_source("x", "torch.randn(4)"), ["get_inputs()", "Tensor", "list"]),
        (task_source("x", "[1 / 0]"), ["get_inputs()", "ZeroDivisionError"]),
        (task_source("x", "[torch.randn(4)]", init="3"), ["get_init_inputs()", "int"]),
        (task_source("x", "[]", setup="raise KeyError('k')"), ["Model(", "KeyError"]),
    ],
)
def test_a_file_that_fails_when_it_runs_is_refused_in_the_same_way(source, said):
    case = loaded_case(source)
    with pytest.raises(UsageError) as refusal:
        case.reference(case.model(1), case.inputs(1))
    for words in said:
        assert words in str(refusal.value)


BACKENDS, PRODUCTS = "torch.backends.", "torch.set_float32_matmul_precision"
SDP = f"{BACKENDS}cuda."
SETTINGS = {  # a statement, and an expression that it changes
    "type": ("torch.set_default_dtype(torch.float64)", "torch.get_default_dtype()"),
    "device": ("torch.set_default_device('meta')", "torch.empty(0).device.type"),
    "threads": ("torch.set_num_threads(3)", "torch.get_num_threads()"),
    "products": (
        f"{PRODUCTS}('high')", f"{BACKENDS}cuda.matmul.allow_tf32"
    ),
    "products in TF32": (f"{BACKENDS}cuda.matmul.allow_tf32 = True",) * 2,
    "precision of products": (f"{BACKENDS}cuda.matmul.fp32_precision = 'tf32'",) * 2,
    "precision of all": (f"{BACKENDS}fp32_precision = 'tf32'",) * 2,
    "precision on a CPU": (f"{BACKENDS}mkldnn.matmul.fp32_precision = 'bf16'",) * 2,
    "precision of convolutions": (f"{BACKENDS}cudnn.conv.fp32_precision = 'ieee'",) * 2,
    "both ways to say a precision": (
        f"{PRODUCTS}('medium'); {BACKENDS}mkldnn.matmul.fp32_precision = 'tf32'",
        f"{BACKENDS}cuda.matmul.fp32_precision, {BACKENDS}mkldnn.matmul.fp32_precision",
    ),
    "convolutions": (f"{BACKENDS}cudnn.allow_tf32 = False",) * 2,
    "half sums": (f"{BACKENDS}cuda.matmul.allow_fp16_reduced_precision_reduction = False",) * 2,
    "bf16 sums": (f"{BACKENDS}cuda.matmul.allow_bf16_reduced_precision_reduction = False",) * 2,
    "half sums in parts": (
        f"{BACKENDS}cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)",
        f"{BACKENDS}cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    ),
    "half accumulation": (f"{BACKENDS}cuda.matmul.allow_fp16_accumulation = True",) * 2,
    "flash": (f"{SDP}enable_flash_sdp(False)", f"{SDP}flash_sdp_enabled()"),
    "efficient": (f"{SDP}enable_mem_efficient_sdp(False)", f"{SDP}mem_efficient_sdp_enabled()"),
    "math": (f"{SDP}enable_math_sdp(False)", f"{SDP}math_sdp_enabled()"),
    "cudnn's": (f"{SDP}enable_cudnn_sdp(False)", f"{SDP}cudnn_sdp_enabled()"),
    "math in halves": (
        f"{SDP}allow_fp16_bf16_reduction_math_sdp(True)",
        f"{SDP}fp16_bf16_reduction_math_sdp_allowed()",
    ),
    "cudnn": (f"{BACKENDS}cudnn.enabled = False",) * 2,
    "search": (f"{BACKENDS}cudnn.benchmark = True",) * 2,
    "repeatable convolutions": (f"{BACKENDS}cudnn.deterministic = True",) * 2,
    "mkldnn": (f"{BACKENDS}mkldnn.enabled = False",) * 2,
    "repeatable mkldnn": (f"{BACKENDS}mkldnn.deterministic = True",) * 2,
    "einsum": (f"{BACKENDS}opt_einsum.enabled = not {BACKENDS}opt_einsum.enabled",) * 2,
    "fast path": (f"{BACKENDS}mha.set_fastpath_enabled(False)",
                  f"{BACKENDS}mha.get_fastpath_enabled()"),
    "determinism": (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.get_deterministic_debug_mode()",
    ),
    "filling": ("torch.utils.deterministic.fill_uninitialized_memory = False",) * 2,
    "autocast": ("torch.set_autocast_enabled('cpu', True)", "torch.is_autocast_enabled('cpu')"),
    "autocast's type": (
        "torch.set_autocast_dtype('cuda', torch.bfloat16)", "torch.get_autocast_dtype('cuda')"
    ),
    "anomalies": ("torch.autograd.set_detect_anomaly(True)", "torch.is_anomaly_enabled()"),
    "denormals": (
        "torch.set_flush_denormal(True)", "(torch.full((1,), 1e-310, dtype=torch.double) * 1)[0]"
    ),
    "warnings": ("torch.set_warn_always(True)", "torch.is_warn_always_enabled()"),
    "frozen flags": (
        f"{BACKENDS}cudnn.enabled = False; {BACKENDS}disable_global_flags()",
        f"{BACKENDS}flags_frozen(), {BACKENDS}cudnn.enabled",
    ),
}  # fmt: skip


def kept(expression):
    """What an expression, or the left side of an assignment, is worth now."""
    return eval(expression.split(" = ")[0], {"torch": torch})


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_of_the_whole_process_hold_for_the_file_that_makes_them_alone(kind):
    statement, setting = SETTINGS[kind]
    before = kept(setting)
    seen = f"{statement}\nSEEN = []"
    init = f"[[], SEEN.append(({setting.split(' = ')[0]}))][:0]"
    case = loaded_case(task_source("x", "[torch.ones(4)]", init=init, extra=seen))
    assert kept(setting) == before
    case.init_inputs(1)
    (own,) = case.module.SEEN
    assert own != before
    assert kept(setting) == before
    innocent = load_task(Task(name="innocent", source=task_source("x @ x", "[torch.ones(4, 4)]")))
    (other,) = innocent.cases
    assert other.reference(other.model(1), other.inputs(1))[0].tolist() == [[4.0] * 4] * 4
    assert kept(setting) == before


def test_a_reference_is_timed_with_as_many_threads_as_a_candidate():
    before = torch.get_num_threads()
    source = task_source("x", "[torch.ones(4)]", extra=f"torch.set_num_threads({before + 2})")
    models.reference(json.dumps(Task(name="probe", source=source).to_json()), torch.device("cpu"))
    assert torch.get_num_threads() == before


def test_gradients_are_recorded_or_not_as_the_judge_has_them():
    loaded_case(task_source("x", "[torch.ones(4)]", extra="torch.set_grad_enabled(False)"))
    assert torch.is_grad_enabled()


def test_a_setting_that_cannot_be_taken_back_refuses_its_file_and_keeps_no_other(monkeypatch):
    def put(_):
        raise RuntimeError("no way back")

    stuck = (torch.is_warn_always_enabled, put)
    settings = [stuck if one[0] is stuck[0] else one for one in torch_settings._SETTINGS]
    monkeypatch.setattr(torch_settings, "_SETTINGS", settings)
    extra = "torch.set_warn_always(True)\ntorch.set_default_dtype(torch.float64)"
    try:
        with pytest.raises(UsageError, match=r"task probe: .*no way back"):
            loaded_case(task_source("x", "[torch.ones(4)]", extra=extra))
        assert torch.get_default_dtype() is torch.float32
        innocent = Task(name="innocent", source=task_source("x", "[torch.ones(4)]"))
        assert load_task(innocent).cases[0].inputs(1)[0].dtype is torch.float32
    finally:
        torch.set_warn_always(False)


def test_a_files_own_settings_hold_whenever_its_code_runs():
    case = loaded_case(
        task_source(
            "x + torch.ones(4)", "[torch.randn(4)]", extra="torch.set_default_dtype(torch.float64)"
        )
    )
    other = load_task(Task(name="other", source=task_source("x", "[torch.randn(4)]"))).cases[0]
    for _ in range(2):
        assert other.inputs(1)[0].dtype is torch.float32
        assert case.inputs(1)[0].dtype is torch.float64
        assert case.reference(case.model(1), case.inputs(1))[0].dtype is torch.float64


def test_two_files_of_one_name_have_settings_of_their_own():
    sources = [
        task_source("x", "[torch.ones(4)]", extra=f"torch.set_default_dtype(torch.{dtype})")
        for dtype in ("float64", "bfloat16")
    ]
    first, second = (load_task(Task(name="same", source=source)).cases[0] for source in sources)
    for _ in range(2):
        assert first.inputs(1)[0].dtype is torch.float64
        assert second.inputs(1)[0].dtype is torch.bfloat16


def test_a_files_own_settings_hold_in_fp64_too():
    extra = """
torch.set_float32_matmul_precision("high")

def own(x):
    assert torch.get_float32_matmul_precision() == "high"
    return x * 2
"""
    case = loaded_case(task_source("own(x)", "[torch.randn(4)]", extra=extra))
    model, inputs = case.model(1), case.inputs(1)
    assert case.expected(model, inputs).note == ""
    assert case.truth(model, inputs, case.reference(model, inputs)).note == ""


@pytest.mark.parametrize(
    ("inputs", "init", "said"),
    [
        ("[torch.ones(4), lambda: 0]", "[]", "input 1, of type function, cannot be handed"),
        ("[torch.ones(4), 0]", "[lambda: 0]", "init input 0, of type function, cannot be handed"),
    ],
)
def test_an_argument_that_another_process_cannot_get_is_refused(inputs, init, said):
    case = loaded_case(task_source("x * 2", inputs, "x, y", init=init))
    with pytest.raises(UsageError, match=said):
        assert case.effects


def test_tensors_of_an_object_that_are_not_seen_are_said():
    hidden = "class Hidden:\n    def __init__(self):\n        self.x = torch.ones(1)"
    inputs = "[torch.ones(4), Hidden(), [torch.ones(2)]]"
    case = loaded_case(task_source("x * y.x", inputs, "x, y, z", extra=hidden))
    (note,) = case.effects.notes
    assert note.startswith("input 1, of type Hidden, holds tensors")
