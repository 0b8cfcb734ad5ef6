"""A task that has nothing to start from starts from what PyTorch's compiler makes of it.

Invariants: with neither a seed nor a model a run finds a correct program of its own; what was
compiled is stored with the run; where the compiler makes nothing of the reference the run is
refused before it begins, with the reason and the remedies; an operator is known by its class.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app.compiler_seeds import usable, variants
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.store import Store
from evolve.testing.synthetic import synthetic_task
from tests.cli.conftest import evolve_in
from tests.cli.recording import settings
from tests.operators.output_code import TASK as REFERENCE
from tests.operators.output_code import compiled, matrix, relu, room

ROOT = Path(__file__).parents[2]
TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.relu(x) * self.scale

def get_inputs():
    return [torch.randn(64, 96)]

def get_init_inputs():
    return [96]
"""
GPU_PRODUCT = (
    {"a": matrix(8, 7), "b": matrix(7, 9)},
    [
        "with torch.cuda._DeviceGuard(0):",
        f"    {room('buf0', matrix(8, 9))}",
        "    extern_kernels.mm(a, b, out=buf0)",
    ],
    "buf0",
)
POINTWISE = {"a": matrix(8, 9)}, ["triton_poi_fused_relu_0.run(a, 72)"], "a", relu(72)
PRODUCT = TASK.replace("torch.relu(x) * self.scale", "x @ x.T")


def run(folder: Path, task: str) -> "subprocess.CompletedProcess[str]":
    (folder / "mine.py").write_text(task)
    words = ("termination.evaluations=1", "operators.tune=null", "operators.recombine=null")
    return evolve_in(folder)("run", "task=./mine.py", "name=mine", *words, timeout=240)


def named(**classes: str) -> dict:
    """A search on a GPU with operators of these classes, under these names."""
    words = [f"+operators.{name}._target_=operators.local.{path}" for name, path in classes.items()]
    return settings("device=cuda", "operators=[seed]", *words)


def test_the_compiler_is_asked_for_operators_of_its_class_whatever_they_are_called():
    config = named(mine="compiler_seed.CompilerSeed", more="compiler_seed.CompilerSeed")
    config["operators"]["mine"]["variants"] = ["looped", "default"]
    config["operators"]["more"]["variants"] = ["default", "tiled"]
    assert variants(synthetic_task(), config) == ("looped", "default", "tiled")
    assert variants(synthetic_task(), named(inductor="tune.Tune")) == ()
    assert variants(synthetic_task(), named(inductor="tune.Tune", own="compiler_seed.CompilerSeed"))


def test_on_a_cpu_the_compiler_is_asked_where_nobody_proposes_the_tasks_own_programs():
    task = replace(synthetic_task(), seeds=("class ModelNew: ...",))
    usual = settings("device=cpu")
    assert variants(task, usual) == ()
    assert variants(task, settings("device=cpu", "operators.seed=null")) == ("default", "unfused")
    assert variants(replace(task, seeds=()), usual) == ("default", "unfused")


def test_templates_have_their_variants_compiled_whatever_other_operators_take():
    config = named(mine="compiler_seed.CompilerSeed", own="template_seed.TemplateSeed")
    config["operators"]["mine"]["variants"] = ["default"]
    config["operators"]["own"]["variants"] = ["same_layout"]
    assert variants(synthetic_task(), config) == ("default", "same_layout")
    only = named(own="template_seed.TemplateSeed")
    only["operators"]["own"]["variants"] = ["same_layout"]
    assert variants(synthetic_task(), only) == ("same_layout",)


def test_templates_alone_are_no_start_where_there_is_nothing_for_them():
    config = named(own="template_seed.TemplateSeed")
    config["operators"]["own"]["variants"] = ["default"]
    task = Task(name="t", source=REFERENCE.format(names="a"))
    found, reasons = usable(task, config, {"default": compiled(*POINTWISE)})
    assert found == ()
    assert reasons == ["default: it calls no library, so there is nothing to replace"]
    on_cpu = config | {"device": settings("device=cpu")["device"]}
    assert variants(synthetic_task(), on_cpu) == ()


@pytest.mark.parametrize(
    ("mine", "own", "kept"),
    [
        (["default"], ["same_layout"], ["default", "same_layout"]),
        (["default", "looped"], ["default", "same_layout"], ["default"]),
        (["looped", "default"], ["default"], ["default"]),
        (["looped"], ["default"], ["looped", "default"]),
    ],
)
def test_of_equal_variants_each_operator_has_one_that_it_takes(mine, own, kept):
    config = named(mine="compiler_seed.CompilerSeed", own="template_seed.TemplateSeed")
    config["operators"]["mine"]["variants"] = mine
    config["operators"]["own"]["variants"] = own
    tensors, lines, out = GPU_PRODUCT
    lines = [*lines, "    triton_poi_fused_relu_0.run(buf0, 72, stream=s)"]
    same = compiled(tensors, lines, out, relu(72))
    task = Task(name="t", source=REFERENCE.format(names="a, b"))
    asked = variants(task, config)
    found, _ = usable(task, config, {name: replace(same, variant=name) for name in asked})
    assert [each.variant for each in found] == kept


@pytest.mark.parametrize(
    ("mine", "own", "output"),
    [
        (["default"], ["default", "same_layout"], POINTWISE),  # which templates can do nothing with
        (["default", "looped"], ["default"], GPU_PRODUCT),  # which they alone can do
    ],
)
def test_nothing_is_said_of_a_variant_whose_operators_have_an_equal_one(mine, own, output):
    config = named(mine="compiler_seed.CompilerSeed", own="template_seed.TemplateSeed")
    config["operators"]["mine"]["variants"] = mine
    config["operators"]["own"]["variants"] = own
    same, names = compiled(*output), ", ".join(output[0])
    task = Task(name="t", source=REFERENCE.format(names=names))
    answers = {name: replace(same, variant=name) for name in variants(task, config)}
    found, reasons = usable(task, config, answers)
    assert [each.variant for each in found] == ["default"]
    assert reasons == []


def test_an_unknown_variant_is_refused_by_the_name_that_the_operator_has():
    config = named(mine="compiler_seed.CompilerSeed")
    config["operators"]["mine"]["variants"] = ["fast"]
    with pytest.raises(UsageError, match=r"operators\.mine\.variants is 'fast'"):
        variants(synthetic_task(), config)


def test_templates_are_counted_on_where_an_operator_of_theirs_is_whatever_it_is_called():
    answers = {"default": compiled(*GPU_PRODUCT)}
    task = Task(name="t", source=REFERENCE.format(names="a, b"))
    without, _ = usable(task, named(template_seed="tune.Tune"), answers)
    found, reasons = usable(task, named(mine="template_seed.TemplateSeed"), answers)
    assert without == ()
    assert found == (answers["default"],)
    assert reasons == []


@pytest.mark.parametrize("output", [GPU_PRODUCT, POINTWISE], ids=["product", "pointwise"])
def test_what_a_ported_seed_can_rewrite_is_kept_for_it(output):
    config = named(own="ported_seed.PortedSeed")
    answers = {"default": compiled(*output)}
    task = Task(name="t", source=REFERENCE.format(names=", ".join(output[0])))
    assert variants(task, config) == ("default", "looped", "unsplit")
    assert usable(task, config, answers) == ((answers["default"],), [])


@pytest.mark.slow
def test_a_task_of_one_file_is_searched_without_a_seed_and_without_a_model(tmp_path):
    done = run(tmp_path, TASK)
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "runs" / "evolve.db", read_only=True) as store:
        stored = store.run("mine")
        (ticket, *_) = store.steps(stored.id)
        assert ticket.operator == "inductor"
        assert stored.task.compiled[0].variant == "default"
        assert store.progress(stored.id).best is not None


@pytest.mark.slow
def test_a_reference_that_is_one_call_of_a_library_is_refused_with_the_remedies(tmp_path):
    done = run(tmp_path, PRODUCT)
    assert done.returncode == 2
    assert "the compiler wrote no kernel" in done.stderr
    assert "initial=[mine.py]" in done.stderr
    assert not (tmp_path / "runs").exists()
