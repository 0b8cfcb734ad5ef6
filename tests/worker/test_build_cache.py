"""Builds that later processes take over."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evolve.languages.builds import BuildError
from evolve.worker.build.cache import BUILD, BuildCache
from evolve.worker.session.candidate_session import Candidate

pytest.importorskip("triton.runtime.cache")

KEEPS = """
import sys
from evolve.worker.build.cache import install
install("", sys.argv[1], may_build=True)
from triton.runtime.cache import FileCacheManager
kernel = FileCacheManager("abc")
paths = {name: kernel.put(name.encode(), name) for name in ("k.cubin", "k.json")}
kernel.put_group("k.json", paths)
"""
FINDS = """
import sys
from evolve.worker.build.cache import install
install("", sys.argv[1], may_build=False)
from triton.runtime.cache import FileCacheManager
for name, path in sorted(FileCacheManager("abc").get_group("k.json").items()):
    print(name, open(path).read())
"""


def run(script: str, folder: str, cwd: Path) -> str:
    cwd.mkdir(exist_ok=True)
    command = [sys.executable, "-c", script, folder]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return ended.stdout


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    (folder / BUILD).mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def kept(cache: BuildCache, folder: Path) -> Path:
    with opened(folder) as descriptor:
        return Path(cache.keep("key", descriptor))


def test_another_environment_does_not_take_a_build_that_may_name_folders_of_this_one(monkeypatch):
    here = Candidate("import tvm_ffi.cpp").build_key("cpu")
    assert here == Candidate("import tvm_ffi.cpp").build_key("cpu")
    monkeypatch.setattr(sys, "prefix", "/another/.venv")
    assert here != Candidate("import tvm_ffi.cpp").build_key("cpu")


@pytest.mark.slow
def test_kernels_that_triton_has_compiled_are_found_in_the_next_process(tmp_path: Path) -> None:
    run(KEEPS, str(tmp_path / BUILD), tmp_path / "first")
    build = kept(BuildCache(tmp_path / "cache"), tmp_path)
    assert run(FINDS, str(build), tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


@pytest.mark.slow
def test_a_note_that_is_none_hinders_nobody(tmp_path: Path) -> None:
    run(KEEPS, str(tmp_path / BUILD), tmp_path / "first")
    build = kept(BuildCache(tmp_path / "cache"), tmp_path)
    notes = ["", "{", "[]", "[" * 99999, '{"child_paths": 3}', '{"child_paths": ["a"]}']
    for number, text in enumerate(notes):
        (build / "triton" / f"__grp__{number}.json").write_text(text)
    (build / "triton" / "__grp__folder.json").mkdir()
    assert run(FINDS, str(build), tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


def test_of_a_build_plain_files_and_folders_are_kept_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("of the judge")
    build = tmp_path / BUILD
    (build / "below").mkdir(parents=True)
    (build / "below" / "library.so").write_bytes(b"code")
    (build / "link").symlink_to(tmp_path / "secret" / "key")
    (build / "folder").symlink_to(tmp_path / "secret")
    os.mkfifo(build / "pipe")
    found = kept(BuildCache(tmp_path / "cache"), tmp_path)
    assert [path.relative_to(found).as_posix() for path in sorted(found.rglob("*"))] == [
        "below",
        "below/library.so",
    ]
    assert found.stat().st_mode & 0o777 == 0o755
    assert (found / "below" / "library.so").stat().st_mode & 0o777 == 0o555


def test_a_build_that_is_a_link_or_gone_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("of the judge")
    cache = BuildCache(tmp_path / "cache")
    with opened(tmp_path) as descriptor:
        (tmp_path / BUILD).rmdir()
        assert not list(Path(cache.keep("gone", descriptor)).iterdir())
        (tmp_path / BUILD).symlink_to(tmp_path / "secret")
        assert not list(Path(cache.keep("link", descriptor)).iterdir())


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["deep", "large", "files", "folders"])
def test_a_build_without_end_is_refused_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    build = tmp_path / BUILD
    build.mkdir()
    if kind == "deep":
        (build / "/".join(["x"] * 20)).mkdir(parents=True)
    elif kind == "files":
        for number in range(20_001):
            (build / str(number)).touch()
    elif kind == "folders":
        for number in range(20_001):
            (build / str(number)).mkdir()
    else:
        with (build / "sparse").open("wb") as file:
            file.truncate((1 << 30) + 1)
    cache = BuildCache(tmp_path / "cache")
    with pytest.raises(BuildError, match="its build has"):
        kept(cache, tmp_path)
    assert not list((tmp_path / "cache").iterdir())


def test_of_two_equal_builds_the_earlier_stays(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    build = tmp_path / BUILD
    build.mkdir()
    (build / "first").touch()
    first = kept(cache, tmp_path)
    (build / "second").touch()
    assert kept(cache, tmp_path) == first
    assert [path.name for path in first.iterdir()] == ["first"]
    assert len(list((tmp_path / "cache").iterdir())) == 1
