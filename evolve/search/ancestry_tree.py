"""Lines of descent among the programs that an archive holds."""

from collections.abc import Iterable, Mapping, Sequence

from evolve.core.protocols import Elite
from evolve.search.ranking import Ranking, age
from evolve.store.tables.parent_stats import GENERATIONS


class Forest:
    """Held elites, each below its nearest held ancestor along main parents.

    The known descent of a program is its line: its main parent, that one's, and so on, held or not,
    as far as `GENERATIONS`. So a program that leaves passes its children on to the next held one of
    their lines, and one that comes back has them again.

    Args:
        elites: those held.
        links: the main parent of each of them, and of their ancestors, by program.
    """

    def __init__(self, elites: Iterable[Elite], links: Mapping[str, str]) -> None:
        self._elites = {elite.program: elite for elite in elites}
        self._lines = {program: _line(program, links) for program in self._elites}
        self._parent = {program: self._nearest(program) for program in self._elites}
        below: dict[str | None, list[Elite]] = {}
        for program, parent in self._parent.items():
            below.setdefault(parent, []).append(self._elites[program])
        self._below = {parent: Ranking(children, age) for parent, children in below.items()}

    def children(self, program: str | None) -> Sequence[Elite]:
        """The elites right below a held program, or of None the roots; oldest first."""
        return self._below.get(program, ())

    def add(self, elite: Elite, line: Sequence[str], *, was_parent: bool) -> None:
        """Take in a program that is not held.

        Args:
            elite: of the program.
            line: its ancestors along main parents, nearest first.
            was_parent: whether it may have descendants already: it was held before.
        """
        program = elite.program
        self._elites[program] = elite
        self._lines[program] = tuple(line[:GENERATIONS])
        parent = self._parent[program] = self._nearest(program)
        if was_parent:
            siblings = list(self.children(parent))
            for descendant in (each for each in siblings if program in self._lines[each.program]):
                self._move(descendant, program)
        self._below.setdefault(parent, Ranking(key=age)).add(elite)

    def remove(self, elite: Elite) -> None:
        """Let a held program go; its children are the next ancestor's now."""
        program = elite.program
        parent = self._parent.pop(program)
        for child in self._below.pop(program, ()):
            self._parent[child.program] = parent
            self._below.setdefault(parent, Ranking(key=age)).add(child)
        del self._elites[program], self._lines[program]
        self._take_out(elite, parent)

    def replace(self, old: Elite, new: Elite) -> None:
        """Another elite of the same program."""
        parent = self._parent[old.program]
        self._elites[new.program] = new
        self._take_out(old, parent)
        self._below.setdefault(parent, Ranking(key=age)).add(new)

    def _move(self, elite: Elite, parent: str) -> None:
        self._take_out(elite, self._parent[elite.program])
        self._parent[elite.program] = parent
        self._below.setdefault(parent, Ranking(key=age)).add(elite)

    def _take_out(self, elite: Elite, parent: str | None) -> None:
        self._below[parent].remove(elite)
        if not self._below[parent]:
            del self._below[parent]

    def _nearest(self, program: str) -> str | None:
        return next((each for each in self._lines[program] if each in self._elites), None)


def _line(program: str, links: Mapping[str, str]) -> tuple[str, ...]:
    line: list[str] = []
    ancestor = links.get(program)
    while ancestor is not None and len(line) < GENERATIONS:
        line.append(ancestor)
        ancestor = links.get(ancestor)
    return tuple(line)
