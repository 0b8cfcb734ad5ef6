"""One judge on the GPU for all tests here: python -m pytest tests/gpu, on a GPU host."""

import pytest

from tests.worker.serving import Worker


def pytest_ignore_collect(config):
    """Reading files takes seconds in each process, also where nothing in them is wanted."""
    return "not gpu" in config.getoption("markexpr") or None


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu/" in item.nodeid or item.nodeid.startswith("tests/gpu"):
            item.add_marker("gpu")


@pytest.fixture(scope="session")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worker")
    serving = Worker(folder, "--device", "cuda", "--call-timeout", "8")
    yield serving
    serving.close()
