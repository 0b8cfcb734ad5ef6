"""Headers that every C++ build needs are compiled once; builds are the same with them as without.

Invariants:
- a build takes the headers where its flags are the usual ones, and gives the same library;
- with other flags, and where there is no such folder, it is built all the same.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm_ffi")

MAKES = "from evolve.worker.build import headers; headers.precompile(); print(headers.folder())"
BUILDS = """
import sys
from tvm_ffi.cpp import extension
from evolve.worker.build.cache import install

install("", sys.argv[1], may_build=True)
import tvm_ffi.cpp
kernel = tvm_ffi.cpp.load_inline(
    "twice", cpp_sources="int64_t twice(int64_t x) { return 2 * x; }", functions=["twice"],
    extra_cflags=sys.argv[2:],
)
print(kernel.twice(21))
"""
USUAL = ["-O3", "-march=native", "-fopenmp"]


def run(script: str, cache: Path, *words: str, **variables: str) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    command = [sys.executable, "-c", script, *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def headers(cache):
    return run(MAKES, cache).strip()


def built(folder: Path, cache: Path, headers: str, flags: list[str]) -> bytes:
    folder.mkdir()
    answer = run(BUILDS, cache, str(folder), *flags, EVOLVE_HEADERS=headers)
    assert answer.endswith("42\n")
    [made] = folder.rglob("cpp_0.o")
    return made.read_bytes()


@pytest.mark.slow
def test_a_build_with_the_headers_is_the_one_without(tmp_path, cache, headers):
    [made] = Path(headers).rglob("*.gch")
    assert made.stat().st_size > 1 << 20
    with_them = built(tmp_path / "with", cache, headers, USUAL)
    assert with_them == built(tmp_path / "without", cache, str(tmp_path / "none"), USUAL)


@pytest.mark.slow
def test_with_other_flags_a_build_reads_the_headers_themselves(tmp_path, cache, headers):
    assert built(tmp_path / "other", cache, headers, ["-O1"])


def test_headers_that_are_there_are_not_compiled_again(cache, headers):
    [made] = Path(headers).rglob("*.gch")
    before = made.stat().st_mtime_ns
    assert run(MAKES, cache).strip() == headers
    assert made.stat().st_mtime_ns == before


def test_where_nothing_can_be_written_there_are_no_headers(tmp_path):
    closed = tmp_path / "file"
    closed.touch()
    assert run(MAKES, closed)
