"""What holds for all tests: those marked `gpu` are skipped where there is no GPU to be seen."""

from functools import cache

import pytest


@cache
def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.hookimpl(trylast=True)  # after the hooks that mark
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
