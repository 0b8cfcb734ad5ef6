"""Fixtures of the worker's tests."""

import pytest

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher
from tests.worker.serving import Worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory):
    """One worker for all tests that leave it as it was, with a secret in its environment."""
    folder = tmp_path_factory.mktemp("worker")
    serving = Worker(folder, "--call-timeout", "5", EVOLVE_TEST_API_KEY="sk-secret-of-the-user")
    yield serving
    serving.close()


@pytest.fixture(scope="session")
def launcher():
    """Starts runners without a worker around them."""
    launcher = Launcher(CpuDevice(), "none", ())
    launcher.probe()
    yield launcher
    launcher.close()
