"""The protocol of archives: which programs are kept, and where."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol, runtime_checkable

from evolve.core.elites import Elite


class AddStatus(IntEnum):
    """The result of an offer, ordered and truthy (the idea is pyribs')."""

    NOT_ADDED = 0
    IMPROVED = 1  # took the place of a worse one
    NEW = 2  # took an empty place


@dataclass(frozen=True, slots=True)
class Offer:
    """An archive's answer, from which all that it changed can be followed, in three steps.

    1. The program that lost its last place (`evicted`) leaves all places, and in an accepted offer
       so does the program that was offered.
    2. The elite takes `slot`.
    3. `moves` gives the new content of any other place: a program that is held (digest), with its
       elite, or None if the place is empty.

    So a copy of the offered program that stays is in `moves`, and so is one that migrates. A
    refused offer has no slot, but may have `moves`, and `evicted` if a held program cannot stay
    with its new facts.
    """

    status: AddStatus
    slot: str | None = None
    evicted: str | None = None  # digest
    moves: Mapping[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.status)


@runtime_checkable
class Archive(Protocol):
    """Which programs are kept, and where.

    A pure function of the sequence of offers: the same elites offered in the same order give the
    same slots. Never fills more than `capacity` slots. All that decides about later offers is in
    `slots()`, or follows from the elites in it. A program may hold several slots, with the same
    elite.

    An offer of a program that the archive holds brings its present facts and replaces its elite,
    also downwards: a lucky first measurement must not stay. The same elite again (equal in all
    fields) changes nothing and is refused.

    Any part of a search with a mechanism that waits has an attribute `fires_at`: the first step at
    which it can act, by the name of the setting. A run that ends before says so when it starts.

    An archive may have an attribute `offers`, a frozenset of features of its slots that selection
    policies may need: "islands" (slots are named `island/...`), "tree" (programs are kept together
    with their ancestors).

    An archive that reads the text of programs has an attribute `describes`: a function (`Describe`)
    for each descriptor that is computed from the source. It is called once for a program, and its
    value is recorded with the elite; `described` calls it. Such an archive may also have a method
    `near_duplicate_of`. Before a new program is judged, it gets the program's values of `describes`
    and returns a held program that is too similar; the new program then is a duplicate.
    """

    @property
    def capacity(self) -> int: ...

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not. Never raises because an elite is bad."""
        ...

    def remove(self, program: str) -> bool:
        """Remove a program from all its places; all others stay in place.

        Whether it was held. This is how a program leaves that was refuted.
        """
        ...

    def slots(self) -> Mapping[str, Elite]:
        """The elites by slot name."""
        ...

    def restore(self, slots: Mapping[str, Elite]) -> None:
        """Take over slots that `slots()` gave, replacing the present ones."""
        ...


Describe = Callable[[str], float | str]
"""A descriptor of a source."""


def described(
    elite: Elite, archive: Archive, source: Callable[[], str], known: Elite | None = None
) -> Elite:
    """An elite with the descriptors that an archive has made of its text (`Archive.describes`).

    Args:
        elite: as it was judged.
        archive: which it will be offered.
        source: reads the text.
        known: the same program as it was offered before: its descriptors from then are kept.
    """
    describes: Mapping[str, Describe] = getattr(archive, "describes", {})
    missing = [name for name in describes if name not in elite.descriptors]
    if not missing:
        return elite
    before = {} if known is None else known.descriptors
    said = {n: before[n] if n in before else describes[n](source()) for n in missing}
    return replace(elite, descriptors={**elite.descriptors, **said})
