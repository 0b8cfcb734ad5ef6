"""The requirements for every kind of device, for pytest: subclass, and give it the kind.

Tests with a `device` need it opened; where the hardware is missing they are skipped, and the kind
has to say so with the remedy.
"""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from evolve.core.devices import DeviceKind, device_kind, kind_of_class
from evolve.core.errors import UsageError
from evolve.core.task import SIZES
from evolve.languages.registry import languages, refusal, timed_on
from evolve.worker.devices.base import Device, IncompleteDevice, open_device
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.ipc.tensor_buffer import unpack

_METHODS = tuple(
    name for name, member in vars(Device).items() if callable(member) and name[0] != "_"
)


class DeviceConformance:
    """The invariants of `evolve.worker.devices.base.Device` and of a kind's facts.

    Attributes:
        kind: the one to test.
    """

    kind: DeviceKind

    @pytest.fixture
    def device(self) -> Iterator[Device]:
        """One of the kind, open for a test."""
        cores = os.sched_getaffinity(0)  # an open device may leave some of them to its clock
        try:
            opened = open_device(self.kind.name)
        except IncompleteDevice:
            raise
        except UsageError as error:
            pytest.skip(str(error))
        yield opened
        opened.close()
        os.sched_setaffinity(0, cores)

    def test_it_is_known_by_its_name_and_by_its_device_class(self) -> None:
        assert device_kind(self.kind.name) is self.kind
        assert kind_of_class(f"{self.kind.name}: a model") == self.kind.name

    def test_its_facts_are_those_that_runs_need(self) -> None:
        assert self.kind.title
        assert self.kind.size in SIZES
        assert self.kind.baselines

    def test_its_class_has_what_the_judge_calls(self) -> None:
        module, _, name = self.kind.factory.partition(":")
        made = getattr(import_module(module), name)
        assert all(callable(getattr(made, method)) for method in _METHODS)

    def test_programs_in_some_language_run_on_it_and_others_are_told_which(self) -> None:
        assert timed_on(self.kind)
        for one in languages().values():
            why = refusal(one, self.kind)
            assert bool(why) is not one.runs_on(self.kind)
            assert all(each.title in why for each in timed_on(self.kind) if why)

    def test_without_the_hardware_a_line_names_the_remedy(self) -> None:
        cores = os.sched_getaffinity(0)
        try:
            open_device(self.kind.name).close()
        except UsageError as error:
            assert str(error).startswith(f"device={self.kind.name}: ")
            assert "\n" not in str(error)
            assert "use device=" in str(error)
        finally:
            os.sched_setaffinity(0, cores)

    def test_it_has_all_that_the_judge_reads(self, device: Device) -> None:
        assert all(hasattr(device, name) for name in Device.__annotations__)
        assert device.slots >= 1
        assert 0 < device.half_width < 1
        assert device.block_s > 0
        assert 0 < device.calls[0] <= device.calls[1]
        assert 0 < device.few_blocks <= device.blocks <= device.block_pool

    def test_its_device_class_names_the_kind(self, device: Device) -> None:
        assert device.device_class.startswith(f"{self.kind.name}: ")
        assert device.kind is self.kind

    def test_its_facts_are_text(self, device: Device) -> None:
        facts = device.describe()
        assert facts
        assert all(isinstance(name, str) and isinstance(facts[name], str) for name in facts)

    def test_paths_that_runners_need_are_there(self, device: Device) -> None:
        assert all(Path(path).exists() for path in (*device.nodes, *device.readable))

    def test_nodes_of_other_devices_are_there_and_are_not_its_own(self, device: Device) -> None:
        assert all(Path(path).exists() for path in device.other_nodes)
        assert not {*device.nodes} & {*device.other_nodes}

    def test_a_buffer_has_the_tensors_that_it_was_made_of(self, device: Device) -> None:
        values = torch.arange(1000, dtype=torch.float32, device=device.place)
        other = torch.arange(7, dtype=torch.int64, device=device.place)
        buffer = device.make_buffer([[values.clone(), other.clone()]])
        assert buffer.memory.device == values.device
        first, second = tensors_of(unpack(buffer.trees[0], buffer.memory))
        assert torch.equal(first, values)
        assert torch.equal(second, other)

    def test_it_is_well_and_this_process_is_no_stranger_to_it(self, device: Device) -> None:
        device.require_health()
        assert os.getpid() not in device.others()
        assert isinstance(device.is_idle(), bool)
