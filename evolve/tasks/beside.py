"""Files beside a task's module that belong to it: modules that it imports, data that it names."""

import ast
import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse

MOST_BYTES = 16 << 20
_APART = ("seeds", "__pycache__")
_MAX_NAME = 200


def files_beside(path: Path, whole: bool = False) -> dict[str, str]:
    """Their content in base64, by path relative to the folder of the task file `path`.

    Found in the text: modules and packages of the folder that it imports, and files and folders
    that a string of it names; the same in the modules found. With `whole`, all of the folder.

    Raises:
        UsageError: they are too large.
    """
    folder = path.parent
    found = set(_all_below(folder)) if whole else _used(path, folder)
    found.discard(path)
    found -= {path.with_suffix(".cases.yaml"), folder / "cases.yaml"}
    sizes = {file: file.stat().st_size for file in found}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda file: sizes[file])
        raise UsageError(
            f"task {path}: the files that belong to it have {sum(sizes.values()) >> 20} MiB, the "
            f"largest is {largest}; {MOST_BYTES >> 20} MiB are the most. Draw large data in "
            "get_inputs()."
        )
    return encoded(
        {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(found)}
    )


def encoded(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """Content of files in base64, as tasks carry them."""
    return {
        name: base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
        for name, data in files.items()
    }


def _used(path: Path, folder: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        for file in set(_named(waiting.pop(), folder)) - found:
            found.add(file)
            if file.suffix == ".py":
                waiting.append(file)
    return found


def _named(path: Path, folder: Path) -> Iterator[Path]:
    """Files of the folder that a module imports or names."""
    try:
        tree = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, SyntaxError, ValueError):
        return  # said where it is read or executed
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                for alias in names:
                    yield from _module(alias.name, folder)
            case ast.ImportFrom(module, names, level):
                start = path.parent if level else folder
                for name in (module or "", *(f"{module or ''}.{n.name}" for n in names)):
                    yield from _module(name.strip("."), start)
            case ast.Constant(str(text)):
                yield from _data(text, folder)


def _module(name: str, folder: Path) -> Iterator[Path]:
    first = name.partition(".")[0]
    if not first.isidentifier() or first in _APART:
        return
    if (folder / f"{first}.py").is_file():
        yield folder / f"{first}.py"
    elif (folder / first / "__init__.py").is_file() or _has_modules(folder / first, name):
        yield from _all_below(folder / first)


def _has_modules(package: Path, name: str) -> bool:
    """Whether a folder without __init__.py has the module that is asked for."""
    parts = name.split(".")[1:2]
    return bool(parts) and (package / f"{parts[0]}.py").is_file()


def _data(text: str, folder: Path) -> Iterator[Path]:
    is_name = 0 < len(text) < _MAX_NAME and text.isprintable() and text.strip("./ ")
    if not is_name or text.startswith(("/", "~")) or ".." in text:
        return
    path = folder / text
    if path.is_file():
        yield path
    elif path.is_dir() and path.name not in _APART:
        yield from _all_below(path)


def _all_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_apart = any(part in _APART or part.startswith(".") for part in parts)
        if path.is_file() and not is_apart:
            yield path
