"""Marks of all tests: `gpu` is skipped without a GPU; all but a `sample` of parameters is slow.

Properties are tried with a quarter of the examples where slow tests are left out.
"""

import gc
import os
from collections import defaultdict
from functools import cache

import pytest

# As in a worker's process, before torch is imported: threads that spin while they wait for others
# take the processor from all that runs beside them, a multiple of what they compute.
os.environ["OMP_WAIT_POLICY"] = "passive"

# Modules and tests are collected by the thousand and all of them stay: a quarter of that time would
# go into looking for garbage among them.
gc.disable()

EXAMPLES = 25


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # That examples are slow to make says only that the machine is busy with other tests.
        busy = {"suppress_health_check": [HealthCheck.too_slow], "deadline": None}
        settings.register_profile("whole", **busy)
        settings.register_profile("quick", max_examples=EXAMPLES, **busy)
        settings.load_profile("quick" if "not slow" in config.option.markexpr else "whole")


@cache
def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _slow_but_for_samples(items: list[pytest.Item]) -> None:
    """Of a test marked `sample(n)`, n parameter sets evenly apart stay as they are."""
    groups = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sample"):
            groups[item.nodeid.split("[")[0], mark.args[0]].append(item)
    for (_, size), group in groups.items():
        kept = {index * len(group) // size for index in range(size)}
        for index, item in enumerate(group):
            if index not in kept:
                item.add_marker("slow")


def pytest_collection_modifyitems(items):
    _slow_but_for_samples(items)
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


def pytest_collection_finish():
    """Thousands of collected tests stay to the end: no collection of garbage has to visit them."""
    gc.freeze()
    gc.enable()
