"""Builds that later processes take over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.worker.builds import BuildCache

pytest.importorskip("triton.runtime.cache")

KEEPS = """
import sys
from evolve.worker.buildcache import install
install("", sys.argv[1], may_build=True)
from triton.runtime.cache import FileCacheManager
kernel = FileCacheManager("abc")
paths = {name: kernel.put(name.encode(), name) for name in ("k.cubin", "k.json")}
kernel.put_group("k.json", paths)
"""
FINDS = """
import sys
from evolve.worker.buildcache import install
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


def test_kernels_that_triton_has_compiled_are_found_in_the_next_process(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    folder = cache.begin("key")
    run(KEEPS, folder, tmp_path / "first")
    kept = cache.keep("key", folder)
    assert run(FINDS, kept, tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


def test_a_note_that_is_none_hinders_nobody(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    folder = cache.begin("key")
    run(KEEPS, folder, tmp_path / "first")
    kept = cache.keep("key", folder)
    notes = ["", "{", "[]", "[" * 99999, '{"child_paths": 3}', '{"child_paths": ["a"]}']
    for number, text in enumerate(notes):
        (Path(kept) / "triton" / f"__grp__{number}.json").write_text(text)
    (Path(kept) / "triton" / "__grp__folder.json").mkdir()
    assert run(FINDS, kept, tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


def test_what_is_written_after_a_build_was_kept_is_no_part_of_it(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    folder = Path(cache.begin("key"))
    (folder / "library.so").write_text("code")
    with (folder / "library.so").open("a") as still_open:
        kept = Path(cache.keep("key", str(folder)))
        still_open.write(", and what it has seen")
    (folder / "more").touch()
    assert [(path.name, path.read_text()) for path in kept.iterdir()] == [("library.so", "code")]
    assert (kept / "library.so").stat().st_mode & 0o777 == 0o555


@pytest.mark.timeout(20)
def test_only_files_and_folders_are_kept_and_nothing_else_is_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    cache = BuildCache(tmp_path / "cache")
    folder = Path(cache.begin("key"))
    (folder / "in").mkdir()
    (folder / "in" / "file").write_text("text")
    (folder / "link").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    deep = folder
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    (deep / "file").touch()
    kept = Path(cache.keep("key", str(folder)))
    assert [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()] == [
        "in/file"
    ]


def test_the_earlier_of_two_equal_builds_stays(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    for text in ("first", "second"):
        folder = Path(cache.begin("key"))
        (folder / "file").write_text(text)
        kept = Path(cache.keep("key", str(folder)))
        cache.discard(str(folder))
    assert (kept / "file").read_text() == "first"
    assert [path.name for path in kept.parent.iterdir()] == ["key"]
