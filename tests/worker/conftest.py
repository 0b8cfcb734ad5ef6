"""Fixtures of the worker's tests."""

import pytest

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher
from tests.worker.serving import WIDE, Worker


@pytest.fixture(scope="session")
def readable(tmp_path_factory):
    """A folder that candidates may read on purpose."""
    folder = tmp_path_factory.mktemp("readable")
    folder.chmod(0o755)
    (folder / "table").write_text("opened")
    return folder


@pytest.fixture(scope="session")
def worker(tmp_path_factory, readable):
    """One worker for all tests that leave it as it was, with a secret in its environment.

    Its intervals are wide.
    """
    folder = tmp_path_factory.mktemp("worker")
    options = ("--call-timeout", "5", "--half-width", str(WIDE), "--read", str(readable))
    serving = Worker(folder, *options, EVOLVE_TEST_API_KEY="sk-secret-of-the-user")
    yield serving
    serving.close()


@pytest.fixture(scope="session")
def launcher():
    """Starts runners without a worker around them."""
    launcher = Launcher(CpuDevice(), "none", ())
    launcher.probe()
    yield launcher
    launcher.close()
