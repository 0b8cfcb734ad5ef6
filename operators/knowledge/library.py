"""The documents that ship, and those of folders that a user names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from evolve.core.errors import UsageError
from operators.knowledge.document import Document, Part, parse

SHIPPED = Path(__file__).parent


def load(folders: Iterable[str] = ()) -> tuple[Document, ...]:
    """Every document, in the order of their ids.

    Args:
        folders: a user's own, read with all folders in them; every `.md` file is a document.

    Raises:
        UsageError: no such folder, a document that cannot be read, or an id that occurs twice.
    """
    found: dict[str, Document] = {}
    for document in _all(folders):
        other = found.setdefault(document.id, document)
        if other is not document:
            raise UsageError(
                f"{document.path}: id '{document.id}' is taken by {other.path}; choose another id"
            )
    return tuple(found[name] for name in sorted(found))


def _all(folders: Iterable[str]) -> Iterator[Document]:
    for part in Part:
        yield from _folder(SHIPPED / part)
    if isinstance(folders, str):
        raise UsageError(f"knowledge.folders is a list; write knowledge.folders=[{folders}]")
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(
                f"knowledge.folders: {folder!r} is no folder; name one that holds .md documents"
            )
        yield from _folder(Path(folder))


def _folder(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*.md")):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"{path}: cannot be read ({reason}); mend or remove it") from error
        yield parse(text.replace("\r\n", "\n"), str(path))
