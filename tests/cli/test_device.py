"""Which device a run is judged on, and what is said where a GPU is not to be had.

Invariants:
1. `auto` takes a GPU where the worker's interpreter sees one, and asks nobody where no driver is.
2. A task is of the device's size and starts from seeds in languages that are timed there.
3. What is wrong with a GPU, or with a program's language for it, is said in one line with a
   remedy, exit status 2, and no traceback.

A machine with a GPU is simulated by an interpreter that reports one: a program of its own, asked as
the real one is.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from evolve.app import device
from evolve.app.device import as_judged, kind_here, kind_of, require_runnable
from evolve.app.doctor.nvidia import findings, why_no_gpu, why_not_these
from evolve.app.finding import MISSING, NOTE, OK
from evolve.app.inputs import load_task
from evolve.cli.commands.judge.doctor import packages
from evolve.cli.console.logs import show_warnings
from evolve.core.errors import UsageError
from evolve.languages.base import Package
from evolve.languages.cpp import CPP
from evolve.languages.helion import HELION
from evolve.languages.registry import detect_language
from evolve.languages.triton import TRITON
from evolve.store import Store
from tests.cli.recording import settings
from tests.languages.programs import honest

GPU = {"index": 0, "name": "NVIDIA H200", "uuid": "a-b", "capability": "9.0", "memory_mib": 143771}
ROW = {
    "index": "0",
    "name": "NVIDIA H200",
    "uuid": "GPU-a-b",
    "driver": "570.1",
    "memory_mib": "143771",
    "used_mib": "4",
    "busy_percent": "0",
    "mig": "Disabled",
    "capability": "9.0",
}
NO_HEADERS = "torch finds no CUDA headers; install the CUDA toolkit, or set CUDA_HOME"
HEALTHY: dict[str, Any] = {
    "python": "3.12.3",
    "torch": {
        "version": "2.11.0+cu128",
        "cuda": "12.8",
        "hip": "",
        "problem": "",
        "gpus": [GPU],
        "architectures": ["sm_80", "sm_90"],
    },
    "driver": {"gpus": [ROW], "cuda": "12.8", "slices": []},
    "visible": None,
    "tools": {
        "nvcc": "/usr/local/cuda/bin/nvcc, 12.8",
        "ncu": "/usr/bin/ncu, 2025.1",
        "compute-sanitizer": "/usr/bin/compute-sanitizer, 2025.1",
        "c compiler": "/usr/bin/cc",
    },
    "languages": {"triton": "", "gluon": "", "nvrtc": "", "cuda": ""},
}


def but(**changes: Any) -> dict[str, Any]:
    """The healthy machine with changes: `torch__cuda=""`."""
    facts = deepcopy(HEALTHY)
    for path, value in changes.items():
        *above, name = path.split("__")
        inner = facts
        for key in above:
            inner = inner[key]
        inner[name] = value
    return facts


NO_GPU = {
    "torch is missing": (
        but(torch__version="", torch__gpus=[], torch__problem="No module named 'torch'"),
        ["cannot be imported", "No module"],
    ),
    "no driver": (
        but(torch__gpus=[], driver={"gpus": [], "cuda": "", "slices": []}),
        ["no NVIDIA driver", "--gpus all", "device=cpu"],
    ),
    "a torch without CUDA": (
        but(torch__gpus=[], torch__cuda="", torch__version="2.13.0+cpu"),
        ["2.13.0+cpu", "built without CUDA", "device.python"],
    ),
    "a torch for AMD": (but(torch__hip="6.4", torch__cuda=""), ["AMD"]),
    "a torch for MetaX": (
        but(torch__version="2.8.0+metax3.5.3.9"),
        ["metax3.5.3.9", "use device=cpu"],
    ),
    "a hidden GPU": (but(torch__gpus=[], visible=""), ["CUDA_VISIBLE_DEVICES=''", "unset"]),
    "a driver that is too old": (
        but(torch__gpus=[], torch__cuda="13.0", torch__version="2.13.0+cu130"),
        ["driver 570.1", "CUDA 12.8", "13.0", "update the driver"],
    ),
    "a GPU that fell off": (
        but(torch__gpus=[], torch__problem="CUDA unknown error"),
        ["no usable GPU", "CUDA unknown error", "nvidia-smi"],
    ),
}


@pytest.mark.parametrize(("facts", "named"), NO_GPU.values(), ids=NO_GPU.keys())
def test_why_no_gpu_can_be_used_is_said_with_the_remedy(facts, named):
    why = why_no_gpu(facts)
    for word in named:
        assert word in why
    wanted = {finding.what: finding.state for finding in findings(facts, wanted=True)}
    assert wanted["gpu"] == MISSING
    unwanted = [finding.state for finding in findings(facts, wanted=False)]
    assert MISSING not in unwanted


def test_a_healthy_machine_lacks_nothing():
    assert why_no_gpu(HEALTHY) == ""
    found = [*findings(HEALTHY, wanted=True)]
    assert {finding.state for finding in found} == {OK}
    assert found[0].detail == "NVIDIA H200, capability 9.0, 140 GiB"


def test_an_older_minor_version_of_the_drivers_cuda_is_no_fault():
    assert why_no_gpu(but(driver__cuda="12.2")) == ""


def row(**changes: str) -> list[dict[str, str]]:
    return [ROW | changes]


IMPAIRED = {
    "a busy GPU": (
        but(driver__gpus=row(used_mib="40960", busy_percent="97")),
        NOTE,
        "gpu 0",
        ["40 GiB", "97 %", "device.ids"],
    ),
    "MIG slices": (
        but(driver__gpus=row(mig="Enabled"), driver__slices=["1g.18gb", "1g.18gb"]),
        NOTE,
        "MIG",
        ["1g.18gb", "-mig 0"],
    ),
    "a GPU that torch has no kernels for": (
        but(torch__architectures=["sm_80", "sm_90"], torch__gpus=[GPU | {"capability": "12.0"}]),
        MISSING,
        "gpu 0",
        ["12.0", "sm_90"],
    ),
    "no triton": (
        but(languages__triton="triton is not installed; pip install triton"),
        MISSING,
        "triton",
        ["pip install triton"],
    ),
    "no headers": (but(languages__nvrtc=NO_HEADERS), NOTE, "nvrtc", ["CUDA_HOME"]),
    "no C compiler": (but(**{"tools__c compiler": ""}), MISSING, "c compiler", ["gcc", "CC"]),
    "no nvcc": (but(tools__nvcc=""), NOTE, "nvcc", ["CUDA C++", "CUDA_HOME"]),
    "another nvcc": (but(tools__nvcc="/usr/bin/nvcc, 13.0"), NOTE, "nvcc", ["13.0", "12.8"]),
    "no ncu": (but(tools__ncu=""), NOTE, "ncu", ["Nsight"]),
    "no sanitizer": (but(**{"tools__compute-sanitizer": ""}), NOTE, "compute-sanitizer", ["CUDA"]),
}


@pytest.mark.parametrize(
    ("facts", "state", "what", "named"), IMPAIRED.values(), ids=IMPAIRED.keys()
)
def test_what_a_gpu_lacks_is_one_finding(facts, state, what, named):
    (found,) = [finding for finding in findings(facts, wanted=True) if finding.state != OK]
    assert (found.state, found.what) == (state, what)
    for word in named:
        assert word in found.detail


def test_what_the_driver_does_not_tell_is_no_fault():
    facts = but(driver__gpus=row(used_mib="[N/A]", busy_percent="[N/A]", mig="[N/A]"))
    assert {finding.state for finding in findings(facts, wanted=True)} == {OK}


def test_unknown_numbers_of_gpus_are_named_beside_those_there_are():
    assert why_not_these(HEALTHY, [0]) == ""
    why = why_not_these(HEALTHY, [0, 7])
    assert "no GPU 7" in why
    assert "0 (NVIDIA H200)" in why


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch) -> Iterator[Any]:
    """Makes a program that answers as the worker's interpreter on a machine with these facts."""
    monkeypatch.setattr(device, "DRIVER_NODES", (str(tmp_path),))
    kind_here.cache_clear()

    def make(facts: dict[str, Any]) -> str:
        (tmp_path / "facts.json").write_text(
            json.dumps(facts | {"gpu": bool(facts["torch"]["gpus"])})
        )
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\necho $3 $4 >> {tmp_path}/asked\ncat {tmp_path}/facts.json\n")
        python.chmod(0o755)
        return str(python)

    yield make
    kind_here.cache_clear()


def test_auto_takes_a_gpu_that_the_workers_interpreter_sees(interpreter, tmp_path: Path):
    config = settings("device=auto", f"device.python={interpreter(HEALTHY)}")
    assert kind_of(config) == kind_of(config) == "cuda"
    assert (tmp_path / "asked").read_text() == "host --quick\n"  # once is enough


def test_auto_says_why_it_takes_the_cpu_beside_a_driver(interpreter, capsys):
    show_warnings()
    facts = but(torch__gpus=[], torch__cuda="")
    assert kind_of(settings("device=auto", f"device.python={interpreter(facts)}")) == "cpu"
    assert "device=auto takes the CPU: this torch" in capsys.readouterr().err


def test_auto_asks_nobody_where_there_is_no_driver(interpreter, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(device, "DRIVER_NODES", (str(tmp_path / "none"),))
    assert kind_of(settings("device=auto", f"device.python={interpreter(HEALTHY)}")) == "cpu"
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("kind", "size", "languages"),
    [("cpu", "cpu", {CPP}), ("cuda", "gpu", {TRITON})],
)
def test_a_task_is_of_the_devices_size_with_seeds_that_run_there(kind, size, languages):
    config = settings(f"device={kind}") | {"task": "softmax"}
    task = load_task(config)
    assert task.size == size
    assert {detect_language(seed) for seed in task.seeds} == languages


def test_a_size_that_is_named_wins_over_the_devices():
    config = settings("device=cuda", "task_config.size=tiny") | {"task": "softmax"}
    assert load_task(config).size == "tiny"


@pytest.mark.slow  # replays are in test_models
def test_a_replay_is_of_the_size_of_its_recording(recorded: Path, monkeypatch):
    monkeypatch.chdir(recorded.parents[1])
    config = settings("device=replay", "device.run=demo") | {"task": "softmax"}
    assert load_task(config).size == "cpu"  # the recorded judge was no GPU


def test_a_replay_without_a_run_is_refused():
    with pytest.raises(UsageError, match=r"device\.run"):
        kind_of(settings("device=replay"))


@pytest.fixture
def a_judged_run(recorded: Path):
    with Store.open(recorded, read_only=True) as store:
        yield store, store.run("demo")


def test_a_run_goes_on_where_it_was_judged_whatever_the_machine_has_by_now(a_judged_run):
    config = as_judged(settings("device=auto"), *a_judged_run)
    assert config["device"]["kind"] == "cpu"


def test_a_run_does_not_move_from_the_cpu_to_a_gpu(a_judged_run):
    with pytest.raises(UsageError, match=r"device=cuda: run demo has been judged on .*device=cpu"):
        as_judged(settings("device=cuda"), *a_judged_run)


HOPPER = honest("gpu_gluon_tensor_cores")
NVRTC = honest("gpu_nvrtc_gate")
CUDA_CPP = honest("gpu_cuda_inline")
NO_NVCC = "there is no nvcc; install the CUDA toolkit, or set CUDA_HOME"
AMPERE = but(torch__gpus=[GPU | {"capability": "8.0"}])
UNFIT = {
    "a GPU without the instructions": (
        HOPPER,
        AMPERE,
        r"Gluon: .*nvidia\.hopper.* capability 8.0; ",
    ),
    "a tool that is missing": (NVRTC, but(languages__nvrtc=NO_HEADERS), r"NVRTC: .*set CUDA_HOME"),
    "a compiler that is missing": (
        CUDA_CPP,
        but(languages__cuda=NO_NVCC),
        r"CUDA C\+\+: there is no nvcc; .*CUDA_HOME",
    ),
    "a package that is missing": (
        HOPPER,
        but(languages__gluon="triton 3.4.0 is too old; pip install 'triton>=3.6'"),
        r"Gluon: triton 3.4.0 is too old; pip install 'triton>=3.6'",
    ),
}


@pytest.mark.parametrize(("source", "facts", "words"), UNFIT.values(), ids=UNFIT.keys())
def test_a_language_that_does_not_fit_the_machine_is_named_with_the_remedy(
    interpreter, source, facts, words
):
    with pytest.raises(UsageError, match=rf"^mine is in {words}") as caught:
        require_runnable(source, "mine", "cuda", interpreter(facts))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [HOPPER, NVRTC], ids=["gluon", "nvrtc"])
def test_a_language_that_fits_the_machine_is_let_through(interpreter, source):
    require_runnable(source, "mine", "cuda", interpreter(HEALTHY))


def test_a_package_is_missing_too_old_or_there():
    def lacks(module: str, least: tuple[int, int] | None = None) -> str:
        return Package(module=module, distribution=module, least=least).missing

    assert lacks("no_such_module") == "no_such_module is not installed; pip install no_such_module"
    assert lacks("numpy", (99, 1)).endswith("is too old; pip install 'numpy>=99.1'")
    assert not lacks("numpy", (1, 0))


LACKING = {
    "too old for one of its languages": (
        {"triton": "3.4.0"},
        [
            (
                "Gluon kernels cannot be built, Helion kernels cannot be built: "
                "triton 3.4.0 is too old; pip install 'triton>=3.6'"
            )
        ],
    ),
    "newer than tested": (
        {"triton": "99.0"},
        ["99.0, newer than the versions tested", "install triton 3.9"],
    ),
    "for another torch": (
        {"helion": "1.5.1", "torch": "2.11.0"},
        [
            (
                "Helion kernels cannot be built: helion 1.5.1 is for torch 2.13, here is 2.11.0; "
                "pip install helion==1.5.0"
            )
        ],
    ),
}


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, versions: dict[str, str]) -> None:
    """As if these packages were there in these versions."""
    for name, version in versions.items():
        about = folder / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    (folder / f"{next(iter(versions))}.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(("versions", "words"), LACKING.values(), ids=LACKING.keys())
def test_doctor_names_a_package_once_with_all_that_is_asked_of_it(
    tmp_path: Path, monkeypatch, versions, words
):
    install(monkeypatch, tmp_path, versions)
    found = [*packages()]
    names = [finding.what for finding in found]
    assert len(names) == len({*names})
    wanted = next(iter(versions))
    (about,) = (finding for finding in found if finding.what == wanted)
    assert about.state == NOTE
    assert all(word in about.detail for word in words), about.detail
    assert not about.detail.lower().startswith("triton")


@pytest.mark.parametrize(
    ("helion", "torch", "is_fit"),
    [
        ("1.5.1", "2.11.0", False),
        ("1.5.1", "2.11.0+cu128", False),
        ("1.5.1", "2.13.0", True),
        ("1.5.0", "2.11.0", True),
        ("1.5.0", "2.13.0", True),
    ],
)
def test_a_helion_of_another_torch_is_refused_with_the_one_that_fits(
    tmp_path: Path, monkeypatch, helion, torch, is_fit
):
    install(monkeypatch, tmp_path, {"helion": helion, "torch": torch})
    (package,) = (one for one in HELION.packages if one.module == "helion")
    remedy = f"helion 1.5.1 is for torch 2.13, here is {torch}; pip install helion==1.5.0"
    assert package.missing == ("" if is_fit else remedy)


MIXED = HOPPER + 'kernels = load_inline("k", cpp_sources="void k();")\n'
REFUSED = {
    "gluon on the CPU": (HOPPER, "cpu", "Gluon runs on device=cuda; for device=cpu write C++"),
    "nvrtc on the CPU": (NVRTC, "cpu", "NVRTC runs on device=cuda; for device=cpu write C++"),
    "a mixed file": (MIXED, "cuda", "it has kernels in Gluon and C++, and C++ runs on device=cpu"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("source", "kind", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_program_that_the_device_does_not_run_is_refused_in_one_line(
    evolve, tmp_path: Path, source, kind, words
):
    (tmp_path / "mine.py").write_text(source)
    done = evolve("eval", "mine.py", "--task", "softmax", "--device", kind)
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("evolve: candidate mine.py: ")
    assert words in line


COMMANDS = {
    "run": ["run", "task=softmax", "device=cuda"],
    "dry run": ["run", "task=softmax", "device=cuda", "--dry-run"],
    "resume": ["resume", "demo", "device=cuda"],
    "eval": ["eval", "kernel.py", "--task", "softmax", "--device", "cuda"],
}
SLOW = ("dry run", "resume")  # they take the way of `run`


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, words in COMMANDS.items()
    ],
)
def test_without_a_gpu_every_verb_that_asks_for_one_says_so_in_one_line(
    evolve, recorded: Path, tmp_path: Path, monkeypatch, words
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as if none were there
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    done = evolve(*words)
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("evolve: device=cuda: ")


def test_doctor_names_what_a_gpu_lacks_with_status_2(evolve, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = evolve("doctor", "--device", "cuda", "--json")
    assert done.returncode == 2, done.stderr
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert found["gpu"]["state"] == "missing"
    assert found["evaluation worker"]["detail"].startswith("device=cuda: ")


@pytest.mark.gpu
def test_doctor_finds_the_gpu_and_its_judge(evolve):
    done = evolve("doctor", "--json")
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert found["gpu 0"]["state"] in ("ok", "note"), found["gpu 0"]  # others may hold memory there
    assert found["driver"]["state"] == "ok"
    assert "capability" in found["gpu 0"]["detail"]
