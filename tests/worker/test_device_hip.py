"""An AMD GPU as the device, over a simulated driver and a simulated torch.

Invariants:
- what the judge stages is what a runner reads, through memory that both map; a write to it or just
  behind it is seen;
- an output is read from the pool that was lent to its runner, and from nowhere else;
- the next runner finds none of the last one's data;
- a judge and its runners see one GPU: by its number and its render node if it has a number of its
  own, else by its index among all render nodes;
- a runtime that does not do what the clock needs is named with the call, when the device is opened;
- another vendor's torch is refused in one line with the remedy;
- every verdict says that the device is untested on hardware.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evolve.core.devices import CPU, HIP, device_kind_of
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.worker.__main__ import see_one_gpu
from evolve.worker.base.driver_calls import CUDA_CALLS, HIP_CALLS, driver_calls
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.devices.hip import topology
from evolve.worker.devices.hip.device import HipDevice
from evolve.worker.judge.judge import Judge
from tests import forked_torch
from tests.worker.fake_driver import build_driver
from tests.worker.serving import RELU_TASK, ROOT, forward

RIGHT = "return torch.relu(x) * 2 + x"


class UntestedDevice(CpuDevice):
    kind = replace(CPU, is_untested=True)


GPU = {"simd_count": 1216, "drm_render_minor": 129, "location_id": 0xC100, "unique_id": 0xBEEF1}
OTHER = GPU | {"drm_render_minor": 128, "location_id": 0x0500, "unique_id": 0xBEEF0}
CPU_NODE = {"cpu_cores_count": 96, "simd_count": 0, "unique_id": 0}


def with_gpus(folder: Path, *nodes: dict) -> Path:
    """The kernel's list of these, and all render nodes."""
    (folder / "dri").mkdir(parents=True)
    for number, properties in enumerate(nodes):
        lines = [f"{name} {value}" for name, value in properties.items()]
        (folder / "nodes" / str(number)).mkdir(parents=True)
        (folder / "nodes" / str(number) / "properties").write_text("\n".join([*lines, "name x"]))
    for minor in (128, 129):
        (folder / "dri" / f"renderD{minor}").touch()
    return folder


def simulated(folder: Path, *nodes: dict, **driver: str) -> dict:
    library, gpus = build_driver(folder, "hip", **driver), with_gpus(folder / "kernel", *nodes)
    done = forked_torch.run(
        [sys.executable, "-m", "tests.worker.hip_judge", str(library), str(gpus)],
        env={**os.environ, "HIP_VISIBLE_DEVICES": "3"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


VISIBLE = {
    "no variable": ({}, 1, {"CUDA_VISIBLE_DEVICES": "1"}),
    "CUDA's": ({"CUDA_VISIBLE_DEVICES": "4,6"}, 1, {"CUDA_VISIBLE_DEVICES": "6"}),
    "HIP's, which goes first there": (
        {"HIP_VISIBLE_DEVICES": "2,3"},
        1,
        {"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "1"},
    ),
    "HIP's of one": (
        {"HIP_VISIBLE_DEVICES": "2"},
        0,
        {"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "0"},
    ),
}


@pytest.mark.parametrize(("given", "index", "expected"), VISIBLE.values(), ids=VISIBLE)
def test_each_judge_of_a_host_sees_another_gpu(monkeypatch, given, index, expected):
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    see_one_gpu(index)
    assert {name: os.environ[name] for name in expected} == expected


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return simulated(tmp_path_factory.mktemp("driver"), CPU_NODE, OTHER, GPU, waits="queued")


def test_inputs_reach_a_runner_through_memory_that_both_map(judged):
    assert judged["reads"]
    assert judged["unchanged"]


def test_a_write_to_inputs_or_just_behind_them_is_seen(judged):
    assert judged["changed"]
    assert judged["behind"]


def test_an_output_is_read_from_the_runners_pool_and_from_nowhere_else(judged):
    assert judged["output"]
    assert judged["refused_places"] == 3


def test_an_output_is_read_from_the_inputs_only_if_it_may_lie_there(judged):
    assert judged["as_an_output"]


def test_a_runner_finds_nothing_of_the_last_one(judged):
    assert not judged["left"]


def test_the_devices_facts_are_those_of_the_gpu(judged):
    facts = judged["describe"]
    assert facts["architecture"] == "gfx942"
    assert facts["warp_size"] == "64"
    assert facts["hip"] == "7.1.0"
    assert facts["driver"] == "6.14 of 0000:C1:00.0"
    assert "capability" not in facts
    assert judged["capability"] == 0
    assert judged["class"] == "hip: AMD Instinct MI300X"
    assert device_kind_of(judged["class"]) is HIP
    assert judged["flush"] == 2 * (256 << 20)  # past the cache behind the L2
    assert judged["others"] == [[1, 7 << 30]]
    assert judged["idle"]


def test_runners_see_the_judges_gpu_alone_and_compile_for_it(judged):
    variables = judged["variables"]
    assert variables["ROCR_VISIBLE_DEVICES"] == "GPU-00000000000beef1"
    assert not {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & {*variables}
    assert [Path(node).name for node in judged["nodes"]] == ["renderD129"]  # there is no /dev/kfd
    assert [Path(node).name for node in judged["other_nodes"]] == ["renderD128"]
    assert variables["TVM_FFI_ROCM_ARCH_LIST"] == variables["PYTORCH_ROCM_ARCH"] == "gfx942"


BY_INDEX = {
    "that the kernel does not list": [CPU_NODE, OTHER],
    "without a number": [CPU_NODE, OTHER, GPU | {"unique_id": 0}],
    "that shares its number": [GPU | {"location_id": 0xC101, "drm_render_minor": 128}, GPU],
}


# No quick test passes a GPU's index to a runner: each needs a judge and a compiler. The next test
# has the place of a GPU alone.
@pytest.mark.slow
@pytest.mark.parametrize("nodes", BY_INDEX.values(), ids=BY_INDEX)
def test_a_gpu_is_chosen_by_its_index_only_among_all_that_the_judge_sees(tmp_path, nodes):
    judged = simulated(tmp_path, *nodes, waits="queued")
    assert judged["variables"]["HIP_VISIBLE_DEVICES"] == "3"
    assert "ROCR_VISIBLE_DEVICES" not in judged["variables"]
    assert [Path(node).name for node in judged["nodes"]] == ["renderD128", "renderD129"]
    assert judged["other_nodes"] == []


LISTED = {
    "it alone": ([GPU], (129, "GPU-00000000000beef1")),
    "with a processor and another": ([CPU_NODE, OTHER, GPU], (129, "GPU-00000000000beef1")),
    "in another domain": ([OTHER, GPU | {"domain": 1}], None),
    "nothing": ([], None),
    "parts of it, with one number": (
        [GPU, GPU | {"location_id": 0xC101, "drm_render_minor": 130}],
        (129, ""),
    ),
    "parts of it, at one address": ([GPU, GPU | {"drm_render_minor": 130}], None),
    "it without a number": ([GPU | {"unique_id": 0}], (129, "")),
}


@pytest.mark.parametrize(("nodes", "expected"), LISTED.values(), ids=LISTED)
def test_a_gpus_render_node_and_number_are_those_of_its_address(
    tmp_path, monkeypatch, nodes, expected
):
    folder = with_gpus(tmp_path / "kernel", *nodes)
    monkeypatch.setattr(topology, "NODES", folder / "nodes")
    found = topology.place_of("0000:c1:00.0")
    assert found == (expected and topology.Place(f"/dev/dri/renderD{expected[0]}", expected[1]))


def test_it_conforms(judged):
    assert judged["conformance"] == [
        "test_it_has_all_that_the_judge_reads",
        "test_its_device_class_names_the_kind",
        "test_its_facts_are_text",
        "test_paths_that_runners_need_are_there",
        "test_nodes_of_other_devices_are_there_and_are_not_its_own",
        "test_a_buffer_has_the_tensors_that_it_was_made_of",
        "test_it_is_well_and_this_process_is_no_stranger_to_it",
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("body", [RIGHT, "return x * 3"], ids=["right", "wrong"])
def test_verdicts_say_that_the_device_is_untested(tmp_path, body):
    judge = Judge(UntestedDevice(), tmp_path)
    try:
        verdict = judge.evaluate(RELU_TASK, forward(body), Fidelity.CHECK, {})
    finally:
        judge.close()
    assert verdict.status is (Status.CORRECT if body == RIGHT else Status.WRONG_VALUE)
    said = {label.name: label.evidence for label in verdict.labels}
    assert said["untested_device"] == "device=cpu is untested on hardware"


@pytest.mark.sample(1)
@pytest.mark.parametrize("waits", ["refused", "lost"])
def test_a_runtime_that_cannot_wait_is_named_with_the_call(tmp_path, waits):
    refused = simulated(tmp_path, waits=waits)["refused"]
    assert "hipStreamWaitValue32" in refused
    assert "gfx942" in refused
    assert "evolve doctor --device hip --report" in refused
    assert "\n" not in refused
    assert ("still waits" in refused) is (waits == "lost")


TORCHES = {
    "a torch for the CPU": (HipDevice, "2.13.0+cpu", None, None, "Install a ROCm build of torch"),
    "a torch for CUDA": (HipDevice, "2.13.0+cu130", "13.0", None, "use device=cuda"),
    "MetaX's torch": (HipDevice, "2.8.0+metax3.5.3.9", "11.6", None, "built for MetaX MACA"),
    "ROCm's torch": (CudaDevice, "2.13.0+rocm7.1", None, "7.1", "use device=hip"),
    "MetaX's torch, which looks like CUDA": (
        CudaDevice, "2.8.0+metax3.5.3.9", "11.6", None, "Install a CUDA build of torch",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("opened", "version", "cuda", "hip", "remedy"), TORCHES.values(), ids=TORCHES
)
def test_another_vendors_torch_is_refused_in_a_line(
    monkeypatch, opened, version, cuda, hip, remedy
):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda or hip))
    with pytest.raises(UsageError) as caught:
        opened()
    assert remedy in str(caught.value)
    assert version in str(caught.value)
    assert str(caught.value).startswith(f"device={opened.platform}: ")
    assert "\n" not in str(caught.value)


def test_the_driver_is_that_of_the_torch(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.1")
    assert driver_calls() is HIP_CALLS
    monkeypatch.setattr(torch.version, "hip", None)
    assert driver_calls() is CUDA_CALLS
