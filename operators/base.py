"""The programs that a request is about, kept in its memo until the answer is read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.model import Exchange, ModelRequest
from evolve.core.program import Assignment, Program
from evolve.core.protocols import Attempt, Context, Elite, Facts, Proposal
from evolve.core.source.tunables import render

Instance = tuple[str, Assignment]
"""The digest of a program, and an assignment of its tunables."""

_KEY = "base"


def measured_again(context: Context, elite: Elite, note: str) -> Proposal:
    """The best instance of a known program, to be evaluated once more."""
    return Proposal(
        program=Program(context.facts.source(elite.program)),
        assignment=elite.assignment,
        note=note,
        is_reevaluation=True,
    )


@dataclass(frozen=True, slots=True)
class Base:
    """Instances as they were when the request was made; the first one is to be changed."""

    programs: tuple[Instance, ...] = ()

    @classmethod
    def of(cls, found: Sequence[Elite | Attempt]) -> "Base":
        """Of elites, or of attempts that have a program."""
        return cls(tuple((one.program, one.assignment) for one in found if one.program is not None))

    @classmethod
    def recall(cls, exchanges: Sequence[Exchange]) -> "Base":
        """The subject of the first request of a ticket."""
        return cls.of_request(exchanges[0].request)

    @classmethod
    def of_request(cls, request: ModelRequest) -> "Base":
        """The subject of a request."""
        stored = json.loads(str(request.memo[_KEY]))
        return cls(tuple((program, assignment) for program, assignment in stored))

    def memo(self) -> dict[str, Any]:
        return {_KEY: canonical_json([[program, dict(given)] for program, given in self.programs])}

    @property
    def digest(self) -> str:
        """Of the program to be changed."""
        return self.programs[0][0]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(program for program, _ in self.programs)

    def source(self, facts: Facts) -> str:
        """The text to be changed, as the prompt showed it; empty if there is none."""
        if not self.programs:
            return ""
        program, assignment = self.programs[0]
        return render(facts.source(program), assignment)
