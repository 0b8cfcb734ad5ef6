"""The examples of users' own parts pass the conformance suites that ship for them."""

import importlib.util
from pathlib import Path

from evolve.testing.archives import ArchiveConformance
from evolve.testing.operators import OperatorConformance

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, EXAMPLES / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestRecentArchive(ArchiveConformance):
    def make(self):
        return load("own_archive/recent.py").Recent(capacity=8)


class TestWidenOperator(OperatorConformance):
    def make(self):
        return load("own_operator/widen.py").Widen()

    def sources(self):
        folder = EXAMPLES / "tasks/rmsnorm/seeds"
        texts = (path.read_text() for path in sorted(folder.glob("*.py")))
        return tuple(text for text in texts if "omp simd" in text)
