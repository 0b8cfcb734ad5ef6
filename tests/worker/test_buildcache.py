"""Builds that later processes take over."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evolve.worker.build.cache import BuildCache
from tests.nobody import as_nobody

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


def test_kernels_that_triton_has_compiled_are_found_in_the_next_process(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    folder = cache.begin("key")
    run(KEEPS, folder, tmp_path / "first")
    kept = cache.commit("key", folder)
    assert run(FINDS, kept, tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


def test_a_note_that_is_none_hinders_nobody(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    folder = cache.begin("key")
    run(KEEPS, folder, tmp_path / "first")
    kept = cache.commit("key", folder)
    notes = ["", "{", "[]", "[" * 99999, '{"child_paths": 3}', '{"child_paths": ["a"]}']
    for number, text in enumerate(notes):
        (Path(kept) / "triton" / f"__grp__{number}.json").write_text(text)
    (Path(kept) / "triton" / "__grp__folder.json").mkdir()
    assert run(FINDS, kept, tmp_path / "next") == "k.cubin k.cubin\nk.json k.json\n"


def test_a_folder_in_which_nobody_may_write_is_removed_too() -> None:
    def attempt() -> str:
        root = Path(tempfile.mkdtemp())
        cache, kept = BuildCache(root / "cache"), root / "kept"
        kept.mkdir(0o750)
        begun = Path(cache.begin("key"))
        closed = begun / "below" / "closed"
        closed.mkdir(parents=True)
        (closed / "file").touch()
        (begun / "link").symlink_to(kept)
        closed.chmod(0)
        closed.parent.chmod(0o500)
        cache.discard(str(begun))
        left = [path.name for path in (root / "cache").iterdir()]
        mode = kept.stat().st_mode & 0o777
        shutil.rmtree(root)
        return f"{left}, {mode:o}"

    assert as_nobody(attempt) == "[], 750"
