"""The lines that a program prints: JSON objects of events and results, and other text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from evolve.llm.text import storable

Record: TypeAlias = Mapping[str, Any]


def read_records(output: str) -> Iterator[Record | str]:
    """The output in order: one JSON object, or a JSON object a line; other lines as text."""
    lines = output.removesuffix("\n").split("\n")  # a JSON text may hold other line separators
    first = _object(lines[0])
    if first is None and (whole := _object(output)) is not None:
        yield whole
        return
    yield lines[0] if first is None else first
    for line in lines[1:]:
        record = _object(line)
        yield line if record is None else record


def as_record(value: Any) -> Record:
    """A part of a record as an object; empty if it is none."""
    return value if isinstance(value, Mapping) else {}


def _object(text: str) -> Record | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
        if r"\ud" in text.lower():  # a lone surrogate, which no file and no database takes
            found = json.loads(storable(json.dumps(found, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
