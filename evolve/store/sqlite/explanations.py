"""SQLite's errors explained to a person."""

from pathlib import Path

from evolve.core.errors import StoreError, UsageError


def explain(path: Path, cause: BaseException | None, error: Exception) -> Exception:
    """What to raise in place of an error that `cause` is the driver's part of.

    That is the error itself if SQLite was used wrongly, which is a fault of this program.
    """
    code = getattr(cause, "sqlite_errorname", "")
    if code == "SQLITE_NOTADB":
        return UsageError(f"{path} is not a database; check the path")
    if code == "SQLITE_ERROR" and str(cause).startswith("no such table"):
        code = "SQLITE_CORRUPT"
    for start, message in _EXPLANATIONS.items():
        if code.startswith(start):
            return StoreError(" ".join(message.split()).format(path=path, cause=cause))
    return error


_EXPLANATIONS = {
    "SQLITE_FULL": """
        {path}: the disk is full; free some space and resume, everything stored so far is kept""",
    "SQLITE_READONLY": """
        {path} cannot be written, the file or its folder is read-only;
        change its permissions, or copy it to a place that you can write to""",
    "SQLITE_CANTOPEN": """
        {path} cannot be opened ({cause}); check that you may read it and write to its folder""",
    "SQLITE_CORRUPT": """
        {path} is damaged ({cause});
        go back to a backup, or save what can be read with `sqlite3 FILE .recover`""",
    "SQLITE_BUSY": """
        {path} is locked by another process for more than 30 s; wait for it or stop it""",
    "SQLITE_IOERR": """
        {path} cannot be read or written ({cause});
        check the disk and resume, everything stored so far is kept""",
}
