"""The shipped tasks and their seeds.

Invariants:
- A reference runs at size tiny in every case, is finite, and follows its inputs; every size sets
  the same constants; inputs for a small CPU stay within 32 MB.
- No null candidate passes a shipped task at size tiny.
- Every seed declares tunables that can be read, and is judged correct in every case and input
  family, as written and with every single tunable at each of its choices.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from judging import faults, module_of

from evolve.core.source.tunables import parse, render
from evolve.core.task import SIZES
from evolve.languages.cpp import CPP
from evolve.languages.registry import detect_language
from evolve.languages.triton import TRITON
from evolve.tasks import find_task, list_tasks
from evolve.trajectories.decontamination.licences import licence_of
from evolve.worker.correctness.cases import load_task
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.judge.audit import audit

NAMES = [info.name for info in list_tasks()]
OWN = str(Path(__file__).parents[2] / "examples" / "own_task" / "my_task.py")


@pytest.fixture(scope="module", autouse=True)
def small_and_tidy(tmp_path_factory):
    """Builds stay out of the developer's own cache; threads do not pay at these sizes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("builds")))
        yield
    torch.set_num_threads(threads)


def cpp_seeds(names: list[str]) -> list:
    tasks = [find_task(name, size="tiny", languages=[CPP]) for name in names]
    return [
        pytest.param(task, seed, id=f"{task.name}-{number}")
        for task in tasks
        for number, seed in enumerate(task.seeds)
    ]


def test_every_shipped_task_names_the_licence_of_the_project():
    assert {licence_of(find_task(name).source) for name in NAMES} == {"Apache-2.0"}


@pytest.mark.parametrize("name", [*NAMES, OWN])
def test_a_reference_runs_at_size_tiny_is_finite_and_follows_its_inputs(name):
    for case in load_task(find_task(name, size="tiny")).cases:
        model = case.model(0)
        one, other = (case.reference(model, case.inputs(seed)) for seed in (1, 2))
        for first, second in zip(one, other, strict=True):
            assert first.isfinite().all()
            assert not torch.allclose(first, second, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_every_size_sets_the_same_constants_and_a_small_cpu_gets_small_inputs(name, tmp_path):
    module = module_of(find_task(name).source, tmp_path)
    assert tuple(module.SIZES) == SIZES
    assert len({tuple(constants) for constants in module.SIZES.values()}) == 1
    vars(module).update(module.SIZES["cpu"])
    with torch.device("meta"):  # shapes without memory
        assert sum(x.nbytes for x in tensors_of(module.get_inputs())) <= 32 * 2**20


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_no_null_candidate_passes_a_shipped_task(name):
    assert audit(load_task(find_task(name, size="tiny"))) == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_a_cpp_seed_with_tunables(name):
    seeds = find_task(name).seeds
    assert CPP in {detect_language(seed) for seed in seeds}
    assert all(len(parse(seed)) for seed in seeds)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("task", "seed"), cpp_seeds(["rmsnorm"]))
def test_the_default_tasks_seeds_are_correct(task, seed, tmp_path):
    assert faults(task, module_of(seed, tmp_path)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("task", "seed"), cpp_seeds([*NAMES, OWN]))
def test_every_seed_is_correct_at_each_choice_of_each_tunable(task, seed, tmp_path):
    choices = [{one.name: value} for one in parse(seed) for value in one.choices]
    found = {
        str(choice): faults(task, module_of(render(seed, choice), tmp_path)) for choice in choices
    }
    assert {choice: wrong for choice, wrong in found.items() if wrong} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rmsnorm", pytest.param("softmax", marks=pytest.mark.slow)])
def test_triton_seeds_are_correct_under_the_interpreter(name, tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    script = Path(__file__).with_name("judging.py")
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(script), name, TRITON, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert set(done.stdout.splitlines()) == {"[]"}, done.stdout + done.stderr
