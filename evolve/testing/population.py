"""A population in memory, to try selection policies on."""

from collections.abc import Iterable, Mapping, Sequence

from evolve.core.protocols import Elite, Population, Visits, rank

_NONE = Visits()


class MemoryPopulation(Population):
    """Elites as a policy sees them, without an archive.

    Args:
        elites: in any order.
        visits: the results of programs as parents; those left out have none.
        slots: places by program; one island if none has a `/`.
        turn: the number of the ticket.
    """

    def __init__(
        self,
        elites: Iterable[Elite] = (),
        *,
        visits: Mapping[str, Visits] | None = None,
        slots: Mapping[str, str] | None = None,
        turn: int = 0,
    ) -> None:
        self.ranked = sorted(elites, key=rank)
        self._held = {elite.program: elite for elite in self.ranked}
        self._visits = dict(visits or {})
        self._slots = {program: program for program in self._held} | dict(slots or {})
        self._turn = turn
        self._children: dict[str, list[Elite]] = {program: [] for program in self._held}
        self._roots: list[Elite] = []
        for elite in sorted(self.ranked, key=lambda elite: elite.sequence):
            main = next(iter(elite.parents), "")
            self._children.get(main, self._roots).append(elite)

    @property
    def turn(self) -> int:
        return self._turn

    @property
    def islands(self) -> Mapping[str, Sequence[Elite]]:
        found: dict[str, list[Elite]] = {}
        for elite in self.ranked:
            island, slash, _ = self._slots[elite.program].partition("/")
            found.setdefault(island if slash else "", []).append(elite)
        return dict(sorted(found.items()))

    def elite(self, program: str) -> Elite | None:
        return self._held.get(program)

    def slot(self, program: str) -> str:
        return self._slots[program]

    def visits(self, program: str) -> Visits:
        return self._visits.get(program, _NONE)

    def children(self, program: str) -> Sequence[Elite]:
        return self._children.get(program, ())

    @property
    def roots(self) -> Sequence[Elite]:
        return self._roots
