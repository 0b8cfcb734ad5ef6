"""The files of a task, as a folder on disk: the module, modules beside it, and data."""

import ast
import base64
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.source.parsing import parse
from evolve.core.task import Task
from evolve.worker.base.scratch import ScratchFolder

MAIN = "task.py"
_folders: dict[str, ScratchFolder] = {}
_lock = threading.Lock()


def folder_of(task: Task) -> Path:
    """A folder with the task's module as `task.py`, and its other files; made once in a process."""
    key = framed_digest("files", task.name, task.source, canonical_json(dict(task.files)))
    with _lock:
        if key not in _folders:
            _folders[key] = _written(task)
        return _folders[key].path


def _written(task: Task) -> ScratchFolder:
    folder = ScratchFolder("task")
    for name, content in task.files.items():
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
    (folder.path / MAIN).write_text(task.source)
    return folder


def is_of_a_task(path: Path) -> bool:
    """Whether it is in a folder of this process."""
    return any(path.is_relative_to(folder.path) for folder in list(_folders.values()))


def remove_folders() -> None:
    """Remove all of them; nothing can be loaded from them any more."""
    with _lock:
        for folder in _folders.values():
            folder.close()
        _folders.clear()


@contextmanager
def importing_from(folder: Path, source: str) -> Iterator[None]:
    """Modules beside the task come first, as for a program that is started there.

    Those that functions of `source` import when they are called are imported at the end.
    """
    own = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    for name in [name for name in list(sys.modules) if name.partition(".")[0] in own]:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if is_of_a_task(Path(file)):
            del sys.modules[name]  # another task's
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
        for name in sorted((own - {Path(MAIN).stem}) & imported_names(source)):
            importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def imported_names(source: str) -> set[str]:
    """First parts of the names of modules that a text imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found
