"""Lines of JSON that processes add to a file, each at once: what is there survives their ends."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def add(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All but one that was being written when its process was killed."""
    found = []
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found
