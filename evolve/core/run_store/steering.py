"""Steering: a person's changes of a search under way, as recorded events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum


class SteeringKind(StrEnum):
    """The changes, each with the content of its event's `value`."""

    NOTE = "note"  # a text that every prompt quotes from now on; "" takes it back
    PIN = "pin"  # a program (digest) that is the main parent from now on
    BAN = "ban"  # a program (digest) that is no parent from now on
    RELEASE = "release"  # a program (digest) that is neither pinned nor banned any more
    PROGRAM = "program"  # the text of a program to judge
    PAUSE = "pause"
    CONTINUE = "continue"
    BUDGET = "budget"  # an amount added to a limit, as `evaluations=100` or `wall_time=30m`
    END = "end"  # as if the budget were used up: the best program is verified


PARENT_KINDS = (SteeringKind.PIN, SteeringKind.BAN, SteeringKind.RELEASE)
"""Changes of the possible parents."""


STATES = (SteeringKind.PAUSE, SteeringKind.CONTINUE, SteeringKind.END)
"""Changes of which the newest holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringEvent:
    """A recorded change. `time` is ISO 8601 in UTC.

    `sequence` is the number of the first step that it holds from, None while the search has not
    taken it. `due` is the first step that it may hold from: a replay repeats it there.
    """

    id: int
    kind: SteeringKind
    value: str = ""
    time: str = ""
    user: str = ""
    due: int = 0
    sequence: int | None = None

    @property
    def text(self) -> str:
        """The change in a few words."""
        if self.kind in PARENT_KINDS:
            return f"{self.kind} program {self.value[:8]}"
        if self.kind is SteeringKind.PROGRAM:
            return f"program of {len(self.value.splitlines())} lines"
        if self.kind is SteeringKind.NOTE and not self.value:
            return "note taken back"
        return f"{self.kind} {self.value}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """The state after some events.

    Attributes:
        note: quoted by every prompt.
        pinned: programs (digests) that are main parents, in turn.
        banned: programs (digests) that are no parents.
        state: of `STATES` the newest.
        by: who set `state`.
    """

    note: str = ""
    pinned: tuple[str, ...] = ()
    banned: frozenset[str] = frozenset()
    state: SteeringKind = SteeringKind.CONTINUE
    by: str = ""

    @property
    def is_paused(self) -> bool:
        return self.state is SteeringKind.PAUSE

    @property
    def has_ended(self) -> bool:
        return self.state is SteeringKind.END

    def after(self, event: SteeringEvent) -> "Steering":
        """The state after one more event."""
        kind, value = event.kind, event.value
        if kind is SteeringKind.NOTE:
            return replace(self, note=value)
        if kind in STATES:
            return replace(self, state=kind, by=event.user)
        if kind in PARENT_KINDS:
            return self._with_parent(kind, value)
        return self

    def _with_parent(self, kind: SteeringKind, program: str) -> "Steering":
        pinned = tuple(each for each in self.pinned if each != program)
        banned = self.banned - {program}
        if kind is SteeringKind.PIN:
            pinned += (program,)
        elif kind is SteeringKind.BAN:
            banned |= {program}
        return replace(self, pinned=pinned, banned=banned)


def repeatable(events: Iterable[SteeringEvent]) -> Iterator[SteeringEvent]:
    """The events that a replay repeats: those taken, but for pauses, as it does not wait.

    What continued the run after an end is no pause's: without it the replay would stop there.
    """
    ended = False
    for event in events:
        if event.sequence is None or event.kind is SteeringKind.PAUSE:
            continue
        if event.kind is SteeringKind.CONTINUE and not ended:
            continue
        if event.kind in (SteeringKind.END, SteeringKind.CONTINUE):
            ended = event.kind is SteeringKind.END
        yield event


def steered(events: Iterable[SteeringEvent]) -> Steering:
    """The state after the events that a search has taken, in their order."""
    found = Steering()
    for event in events:
        if event.sequence is not None:
            found = found.after(event)
    return found
