"""Imported symbols of a shared library, read without loading it.

Invariants: names that are used and not defined are found, those that are defined are not; whatever
bytes a candidate leaves behind, reading them ends in a set of names.
"""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.worker.build.elf import imported_symbols
from evolve.worker.runner.profiling import library_labels

SOURCE = """
extern "C" void sgemm_(float*);
extern "C" void dgemm_(double*) {}
extern "C" void run(float* x, double* y) { sgemm_(x); dgemm_(y); }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    place = tmp_path_factory.mktemp("build")
    (place / "own.cpp").write_text(SOURCE)
    command = [compiler, "-shared", "-fPIC", "own.cpp", "-o", "own.so"]
    subprocess.run(command, cwd=place, check=True)
    return place


def test_a_function_used_is_imported_and_one_defined_is_not(folder):
    names = imported_symbols((folder / "own.so").read_bytes())
    assert "sgemm_" in names
    assert not names & {"dgemm_", "run"}


def test_of_a_long_name_the_beginning_is_taken(folder):
    name = "_ZN2at6native" + "x" * 5000
    code = f'extern "C" void {name}(); extern "C" void run() {{ {name}(); }}'
    (folder / "long.cpp").write_text(code)
    subprocess.run(["c++", "-shared", "-fPIC", "long.cpp", "-o", "long.so"], cwd=folder, check=True)
    library = (folder / "long.so").read_bytes()
    (folder / "long.so").unlink()
    assert name[:256] in imported_symbols(library)
    assert max(map(len, imported_symbols(library))) == 256


def test_section_headers_are_not_needed(folder):
    library = (folder / "own.so").read_bytes()
    without = library[:40] + bytes(8) + library[48:60] + bytes(2) + library[62:]
    assert "sgemm_" in imported_symbols(without)


def test_a_build_that_imports_a_librarys_function_is_labelled(folder):
    (label,) = library_labels(str(folder), is_profiled=True)
    assert label.name == "library_call"
    assert "sgemm_" in label.evidence
    assert library_labels(None, is_profiled=False) == ()


@pytest.mark.parametrize(
    ("finder", "code"),
    [
        ("dlsym", "void* run(const char* name) { return dlsym(RTLD_DEFAULT, name); }"),
        ("dl_iterate_phdr", "int run() { return dl_iterate_phdr(nullptr, nullptr); }"),
    ],
)
def test_looking_up_functions_is_labelled_where_no_profile_would_show_them(
    tmp_path, folder, finder, code
):
    (tmp_path / "own.cpp").write_text(f"#include <dlfcn.h>\n#include <link.h>\n{code}")
    subprocess.run(["c++", "-shared", "-fPIC", "own.cpp", "-o", "own.so"], cwd=tmp_path, check=True)
    (label,) = library_labels(str(tmp_path), is_profiled=False)
    assert finder in label.evidence
    assert library_labels(str(tmp_path), is_profiled=True) == ()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_libraries_are_read_or_have_no_names(folder, data):
    library = bytearray((folder / "own.so").read_bytes())
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=30)
    ):
        library[at % len(library)] = value
    cut = data.draw(st.integers(0, len(library)))
    assert isinstance(imported_symbols(bytes(library)), frozenset)
    assert isinstance(imported_symbols(bytes(library[:cut])), frozenset)
