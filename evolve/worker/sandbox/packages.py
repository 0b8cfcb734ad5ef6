"""Folders of this interpreter's packages."""

import sys
from collections.abc import Iterable
from pathlib import Path


def package_folders(path: Iterable[str] | None = None) -> list[str]:
    """Folders of a path, by default this interpreter's, into which packages were installed.

    Those of PYTHONPATH and of the user too, which an isolated interpreter leaves out.
    """
    return list(filter(_has_packages, sys.path if path is None else path))


def _has_packages(path: str) -> bool:
    if path.endswith(("site-packages", "dist-packages")):
        return True
    holds_us = Path.cwd().resolve().is_relative_to(Path(path).resolve())  # and other modules
    return Path(path).is_absolute() and not holds_us and any(Path(path).glob("*.dist-info"))
