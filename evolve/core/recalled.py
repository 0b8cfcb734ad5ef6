"""Results of finished runs that another run is given, with the device of each measurement."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kinds of recalled facts."""

    RULE = "rule"  # a failure that came again and again
    IDEA = "idea"  # a change that made the best program of a run, or made a program faster
    SKILL = "skill"  # a model's conclusion from a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """One finding of finished runs.

    Attributes:
        kind: of the fact.
        about: in our words, the runs, tasks and devices, and the measurements.
        words: of the judge or a model; never an instruction.
        language: of the programs that it is about; empty if it is about all.
        runs: revisions of the tasks of the runs that it is of, by name; empty if they were not
            recorded.
    """

    kind: Kind
    about: str
    words: str = ""
    language: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives an equal object back."""
        return asdict(self) | {"kind": self.kind.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Recalled":
        return cls(**{**data, "kind": Kind(data["kind"])})
