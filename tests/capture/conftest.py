"""The scripted judge of the library's tests; processes for scripts that have torch already."""

import pytest

from evolve.capture import processes
from tests import forked_torch
from tests.library.conftest import judge

__all__ = ["judge"]


@pytest.fixture(scope="package", autouse=True)
def quick_start():
    """Real starts of the same process are in `test_faults`, by commands that are processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "subprocess", forked_torch)
        yield
