"""Tunables: constants that a source declares as open, read from its text and written into it.

Two declarations, both plain Python that imports nothing of this project:

- a module-level literal `TUNABLE = {"BLOCK": (32, 64, 128)}`. Each name is a module constant
  (`BLOCK = 64`, also `BLOCK: tl.constexpr = 64` or `BLOCK = tl.constexpr(64)`), or a constant that
  is defined once (`constexpr int BLOCK = 64;`, `const ...`, `#define BLOCK 64`) in the C++ source
  that a module-level string holds;
- a list of `triton.Config` under `@triton.autotune`, which is one tunable `<kernel>.config`.

Every function raises UsageError, naming tunable, line and remedy, if a declaration is wrong.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolve.core.errors import UsageError
from evolve.core.program import Assignment, TunableValue
from evolve.core.source.pytext import Edit, apply, read
from evolve.core.source.tunable_sites import Site, declaration, find_sites

__all__ = ["Space", "Tunable", "freeze", "parse", "render"]


@dataclass(frozen=True, slots=True)
class Tunable:
    """One open constant. All choices have one type; their order is the order of neighbours.

    `default` is the value as written, None if the source leaves the choice to Triton (an
    autotune list of several configs).
    """

    name: str
    default: TunableValue | None
    choices: tuple[TunableValue, ...]

    def index(self, value: TunableValue) -> int:
        """The position of a value among the choices. Raises UsageError if it is none."""
        for index, choice in enumerate(self.choices):
            if choice == value and type(choice) is type(value):
                return index
        raise UsageError(
            f"tunable {self.name}: {value!r} is not a choice; take one of {list(self.choices)}"
        )

    def neighbours(self, value: TunableValue | None) -> Sequence[TunableValue]:
        """The choices beside a number; every other choice for a word, a flag or no value."""
        if value is None:
            return self.choices
        index = self.index(value)
        if isinstance(value, (bool, str)):
            return self.choices[:index] + self.choices[index + 1 :]
        return self.choices[max(index - 1, 0) : index] + self.choices[index + 1 : index + 2]


@dataclass(frozen=True, slots=True)
class Space:
    """The tunables of a source in order of declaration; empty if it declares none."""

    tunables: tuple[Tunable, ...] = ()

    def __iter__(self) -> Iterator[Tunable]:
        return iter(self.tunables)

    def __len__(self) -> int:
        return len(self.tunables)

    def __getitem__(self, name: str) -> Tunable:
        for tunable in self.tunables:
            if tunable.name == name:
                return tunable
        known = ", ".join(tunable.name for tunable in self.tunables) or "none"
        raise UsageError(f"tunable {name}: the source declares no such tunable; it has {known}")

    @property
    def size(self) -> int:
        """How many assignments there are; 1 for an empty space."""
        return math.prod(len(tunable.choices) for tunable in self.tunables)

    @property
    def defaults(self) -> dict[str, TunableValue]:
        """The values as written, tunables without a default left out."""
        return {
            tunable.name: tunable.default
            for tunable in self.tunables
            if tunable.default is not None
        }

    def complete(self, assignment: Assignment) -> dict[str, TunableValue]:
        """The assignment, checked, with the defaults of missing tunables."""
        for name, value in assignment.items():
            self[name].index(value)
        return self.defaults | dict(assignment)

    def assignments(self) -> Iterator[dict[str, TunableValue]]:
        """Every full assignment, last tunable first. There are `size` of them."""
        names = [tunable.name for tunable in self.tunables]
        for values in itertools.product(*(tunable.choices for tunable in self.tunables)):
            yield dict(zip(names, values, strict=True))

    def sample(self, rng: random.Random) -> dict[str, TunableValue]:
        """A full assignment, uniform over the space."""
        return {tunable.name: rng.choice(tunable.choices) for tunable in self.tunables}

    def neighbours(self, assignment: Assignment) -> list[dict[str, TunableValue]]:
        """The assignments that differ from this one in a single tunable by a single step."""
        base = self.complete(assignment)
        return [
            base | {tunable.name: value}
            for tunable in self.tunables
            for value in tunable.neighbours(base.get(tunable.name))
        ]


def parse(source: str) -> Space:
    """The tunables that a source declares."""
    return _space(_sites(source))


def render(source: str, assignment: Assignment) -> str:
    """The source with the assignment written into it; tunables left out stay as written.

    Of an autotune list only the chosen config remains. Rendering the defaults gives the source
    back.
    """
    return apply(source, _edits(_sites(source), assignment))


def freeze(source: str, assignment: Assignment) -> str:
    """The rendered source without the `TUNABLE` declaration, for exports.

    The declaration stays, as the plain data that it is, if the source itself reads it.
    """
    module = read(render(source, assignment))
    found = declaration(module)
    if found is None or found.is_read:
        return module.source
    start, end = module.span(found.statement)
    line_start = module.source.rfind("\n", 0, start) + 1
    line_end = module.source.find("\n", end) + 1 or len(module.source)
    rest = module.source[end:line_end].strip()
    if module.source[line_start:start].strip() or (rest and not rest.startswith("#")):
        return apply(module.source, [Edit(start, end, "pass")])  # it shares its line
    before, after = module.source[:line_start], module.source[line_end:]
    if not before or before.endswith("\n\n"):
        after = after.lstrip("\n")
    return before + after


@lru_cache(maxsize=256)  # a template is read again for each of its instances
def _sites(source: str) -> Sequence[Site]:
    return tuple(find_sites(read(source)))


def _space(sites: Sequence[Site]) -> Space:
    return Space(tuple(Tunable(site.name, site.default, tuple(site.written)) for site in sites))


def _edits(sites: Sequence[Site], assignment: Assignment) -> list[Edit]:
    _space(sites).complete(assignment)
    return [_edit(site, assignment) for site in sites if site.name in assignment]


def _edit(site: Site, assignment: Mapping[str, TunableValue]) -> Edit:
    return Edit(site.start, site.end, site.written[assignment[site.name]])
