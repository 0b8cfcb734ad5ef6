"""Lines of JSON that processes add to a file, each at once: what is there survives their ends."""

import json
from collections.abc import Mapping
from contextlib import suppress
from os import SEEK_END
from pathlib import Path
from typing import Any


def add(path: Path, line: Mapping[str, Any]) -> None:
    """At once, and not behind one that was being written when its process was killed."""
    text = json.dumps(line) + "\n"
    with path.open("a+b", buffering=0) as file:
        if file.seek(0, SEEK_END):
            file.seek(-1, SEEK_END)
            text = text if file.read(1) == b"\n" else f"\n{text}"
        file.write(text.encode())


def read(path: Path) -> list[dict[str, Any]]:
    """All but one that was being written when its process was killed."""
    found = []
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found
