"""Text files of users."""

from pathlib import Path

from evolve.core.errors import UsageError


def read_text(path: Path) -> str:
    """The text of a file that is not empty.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text. Save it as UTF-8.") from error
    if not text.strip():
        raise UsageError(f"{path} is empty. Write its content, or remove it.")
    return text
