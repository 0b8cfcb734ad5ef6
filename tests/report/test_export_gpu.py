"""A Triton winner as an operator on CUDA: graph capture, streams, and all that the CPU has, too.

Needs torch, triton, jinja2 and pytest, and nothing of the store or the command line:
`pytest --noconftest -m gpu tests/report/test_export_gpu.py`.
"""

from pathlib import Path

import pytest
import torch

from evolve.report.export.check import run_tests
from evolve.report.export.torch_op import Facts, export_torch_op
from tests.report.kernels import HEADER, elementwise, example, shipped

pytestmark = pytest.mark.gpu

ON_ANOTHER_STREAM = (
    HEADER
    + """\
class ModelNew(nn.Module):
    def forward(self, x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            return x.relu()
"""
)


def facts() -> Facts:
    major, minor = torch.cuda.get_device_capability()
    return Facts(device="cuda", architecture=f"sm_{major}{minor}", gain="not measured")


@pytest.mark.parametrize(
    ("task", "seed", "odd"),
    [
        ("rmsnorm", "seed_triton.py", {"TOKENS": 3, "FEATURES": 7}),
        ("softmax", "seed_triton.py", {"ROWS": 3, "COLUMNS": 7}),
    ],
)
def test_a_triton_winner_passes_every_check(task: str, seed: str, odd: dict, tmp_path: Path):
    found, source = shipped(task, seed, odd)
    checks = run_tests(export_torch_op(tmp_path / f"{task}_kernel", source, {}, found, facts()))
    assert checks.passed, (checks.fault, [f"{test.name}: {test.reason}" for test in checks.failed])
    assert not checks.skipped, checks.skipped


def test_a_winner_that_leaves_the_current_stream_is_found_out(tmp_path: Path):
    task = example(elementwise("return x.relu()", inputs="torch.randn(1 << 20)"))
    folder = export_torch_op(tmp_path / "streaming", ON_ANOTHER_STREAM, {}, task, facts())
    failed = {test.name.partition("[")[0] for test in run_tests(folder).failed}
    assert "test_it_works_on_a_stream_of_its_own" in failed
