"""HIP C++ without a GPU: told apart from CUDA C++, and hipcc is named where it is missing.

Invariants:
- a source that names HIP, by the backend or by its header, is HIP C++ and no CUDA C++, and the
  other way round;
- hipcc is looked for where the inline compilers do, `ROCM_HOME` before `PATH`.
"""

from pathlib import Path

import pytest

from evolve.languages import hip
from evolve.languages.hip import HIP
from evolve.languages.registry import languages_in
from tests.languages.programs import SCALE_IN_HIP, honest


@pytest.mark.parametrize(
    "source",
    [
        SCALE_IN_HIP,
        SCALE_IN_HIP.replace("#include <hip/hip_runtime.h>\n", ""),
        SCALE_IN_HIP.replace(', backend="hip"', ""),
    ],
    ids=["both marks", "the backend", "the header"],
)
def test_a_source_that_names_hip_is_hip(source):
    assert [one.name for one in languages_in(source)] == ["hip"]


def test_a_source_that_does_not_is_cuda():
    unmarked = SCALE_IN_HIP.replace("#include <hip/hip_runtime.h>\n", "")
    unmarked = unmarked.replace(', backend="hip"', ', backend="cuda"')
    for source in (unmarked, honest("gpu_cuda_inline")):
        assert [one.name for one in languages_in(source)] == ["cuda"]


def test_hipcc_is_found_where_the_inline_compilers_find_it(tmp_path: Path, monkeypatch):
    compiler = tmp_path / "rocm" / "bin" / "hipcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(hip, "DEFAULT_HOME", str(tmp_path / "absent"))
    assert HIP.missing() == "there is no hipcc; install ROCm's hipcc, or set ROCM_HOME"
    monkeypatch.setattr(hip, "DEFAULT_HOME", str(tmp_path / "rocm"))
    assert HIP.missing() == ""
    monkeypatch.setenv("ROCM_HOME", str(tmp_path / "absent"))
    assert HIP.missing().startswith(f"there is no hipcc in {tmp_path / 'absent' / 'bin'}; ")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path / "rocm"))
    assert HIP.missing() == ""
