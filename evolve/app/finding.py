"""The facts of `evolve doctor`, one a line."""

from dataclasses import dataclass

OK, MISSING, NOTE = "ok", "missing", "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact: `ok`, `missing` (no search without it) or `note`."""

    state: str
    what: str
    detail: str
