"""Headers that every C++ build needs are compiled once; builds are the same with them as without.

Invariants:
- a build takes the headers that were compiled with its flags, and gives the same library;
- with other flags, and where there is no such folder, it is built from the headers themselves.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.worker.build.headers import VARIANTS

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


def run(script: str, cache: Path, *words: str, **variables: str) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    command = [sys.executable, "-c", script, *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout


@pytest.fixture(scope="module")
def cache():
    """Not pytest's folder, which stays for three sessions: the headers have 210 MB."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def headers(cache):
    return run(MAKES, cache).strip()


def built(place: Path, cache: Path, headers: str, flags: Sequence[str]) -> bytes:
    place.mkdir()
    answer = run(BUILDS, cache, str(place), *flags, EVOLVE_HEADERS=headers)
    assert answer.endswith("42\n")
    [made] = place.rglob("cpp_0.o")
    return made.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("flags", VARIANTS, ids=" ".join)
def test_a_build_with_the_headers_is_the_one_without(tmp_path, cache, headers, flags):
    with_them = built(tmp_path / "with", cache, headers, flags)
    assert with_them == built(tmp_path / "without", cache, str(tmp_path / "none"), flags)


@pytest.mark.slow
@pytest.mark.parametrize("flags", VARIANTS, ids=" ".join)
def test_a_build_takes_the_headers_of_its_flags(tmp_path, cache, headers, flags):
    built(tmp_path / "with", cache, headers, flags[::-1])
    [read] = tmp_path.rglob(".ninja_deps")  # what the compiler has read as text
    assert b"cpp_0.o" in read.read_bytes()
    assert b"container/tensor.h" not in read.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_with_other_flags_a_build_is_that_without_headers(tmp_path, cache, headers, level):
    made = built(tmp_path / "other", cache, headers, [level])
    assert made == built(tmp_path / "without", cache, str(tmp_path / "none"), [level])


COUNTED = """#!/bin/sh
for output; do :; done
case "$output" in
*.gch) echo "$output" >> "$0.made"; touch "$output" ;;
*) exec c++ "$@" ;;
esac
"""


def test_headers_that_are_there_are_not_compiled_again(tmp_path):
    """By a compiler that is quick: real ones of the user are taken by builds of most tests."""
    compiler, made = tmp_path / "c++", tmp_path / "c++.made"
    compiler.write_text(COUNTED)
    compiler.chmod(0o755)
    folders = [run(MAKES, tmp_path, CXX=str(compiler)) for _ in range(2)]
    assert folders[0] == folders[1]
    assert len([*Path(folders[0].strip()).rglob("*.gch")]) == len(VARIANTS)
    assert len(made.read_text().splitlines()) == len(VARIANTS)


def test_where_nothing_can_be_written_there_are_no_headers(tmp_path):
    closed = tmp_path / "file"
    closed.touch()
    assert run(MAKES, closed)
