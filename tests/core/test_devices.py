"""Kinds of devices.

Invariants:
1. A verdict's device class begins with the name of its kind; an unknown one is taken for a CPU.
2. A kind that another package adds replaces none.
3. A package that cannot be loaded is named, with the remedy.
"""

import pytest

from evolve.core.behaviour import known_descriptors
from evolve.core.devices import (
    CPU,
    CUDA,
    GROUP,
    HIP,
    DeviceKind,
    device_kind,
    device_kind_of,
    device_kinds,
    kind_of_class,
)
from evolve.core.errors import UsageError
from evolve.core.registered import instance_of, loaded


def test_a_kind_is_found_by_its_name():
    assert [device_kind(name) for name in ("cpu", "cuda", "hip")] == [CPU, CUDA, HIP]
    with pytest.raises(UsageError, match="device=tpu: choose one of auto, cpu, cuda, hip"):
        device_kind("tpu")


@pytest.mark.parametrize(
    ("device_class", "kind"),
    [
        ("cuda:NVIDIA H100 80GB HBM3", CUDA),
        ("hip:gfx942", HIP),
        ("cpu:x86", CPU),
        ("", CPU),
        ("abacus", CPU),
    ],
)
def test_a_device_class_begins_with_the_name_of_its_kind(device_class, kind):
    assert (kind_of_class(device_class), device_kind_of(device_class)) == (kind.name, kind)


def test_only_the_gpus_are_gpus_and_only_the_untested_is_untested():
    assert {kind.name: (kind.is_gpu, kind.is_untested) for kind in (CPU, CUDA, HIP)} == {
        "cpu": (False, False),
        "cuda": (True, False),
        "hip": (True, True),
    }


def test_programs_are_told_apart_by_what_verdicts_of_their_device_have():
    assert {"registers", "worst_case"} <= known_descriptors("cuda")
    assert "registers" not in known_descriptors("cpu")
    assert known_descriptors("cpu") - known_descriptors("cuda") == {"memory_bytes"}


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Another package, `mine`, with an entry point: its name, and `module:attribute`."""

    def registered(name: str, value: str) -> None:
        info = tmp_path / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        device_kinds.cache_clear()

    yield registered
    device_kinds.cache_clear()


def test_a_kind_of_another_package_replaces_none(register):
    register("cpu", "evolve.core.devices:CPU")
    assert list(device_kinds()) == ["cpu", "cuda", "hip"]
    assert device_kinds()["cpu"] is CPU


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("evolve.core.devices:UNTESTED", "TypeError: it is no DeviceKind, but str"),
        ("no_such_module:KIND", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("evolve.core.devices:MISSING", "AttributeError: "),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named_with_the_remedy(register, value, reason):
    register("tpu", value)
    with pytest.raises(UsageError) as told:
        device_kinds()
    place = f"evolve.devices: tpu ({value} of mine) cannot be loaded ({reason}"
    assert str(told.value).startswith(place)
    assert str(told.value).endswith("). Mend or uninstall that package.")


def test_only_the_part_that_is_named_is_loaded(register):
    register("tpu", "no_such_module:KIND")
    assert loaded(GROUP, instance_of(DeviceKind), "npu") == []
    with pytest.raises(UsageError, match="no_such_module"):
        loaded(GROUP, instance_of(DeviceKind), "tpu")
