"""Takes what people change of a search, between two of its steps."""

from collections.abc import Callable, Iterable

from evolve.core.errors import UsageError
from evolve.core.protocols import TerminationRule
from evolve.core.records import LIMITS_AT_START
from evolve.core.run_store.steering import STATES, SteeringEvent, SteeringKind
from evolve.search.engine import Search
from evolve.search.termination import Raisable
from evolve.store import Ticket


class Steered:
    """The steering events of a run under way.

    Args:
        search: the engine.
        termination: its limits are raised by `SteeringKind.BUDGET`, if they can be.
        say: shows a line to the user.
        restarted: whether a cluster continues the run by itself, and no person.
    """

    def __init__(
        self,
        search: Search,
        termination: TerminationRule,
        say: Callable[[str], None],
        *,
        restarted: bool = False,
    ) -> None:
        self._search = search
        self._termination = termination
        self._say = say
        # Of a finished run even a restart can mean only that it is to go on.
        self._keeps_state = restarted and search.run.state != "finished"
        self.taken = 0  # events of this session

    def begin(self) -> list[Ticket]:
        """As `take`, when a command continues the run.

        A person who continues it ends a pause or an end that an earlier session took, unless
        another state has been asked for since.
        """
        due = self._search.steering_due()
        tickets = self._all(due)
        if self._keeps_state or any(event.kind in STATES for event in due):
            return tickets
        if self._search.steering.state is not SteeringKind.CONTINUE:
            self._search.store.steer(self._search.run.id, SteeringKind.CONTINUE)
            tickets += self.take()
        return tickets

    def take(self) -> list[Ticket]:
        """Take the events that are due; returns the tickets of programs among them."""
        return self._all(self._search.steering_due())

    def _all(self, events: Iterable[SteeringEvent]) -> list[Ticket]:
        taken = [self._take(event) for event in events]
        return [ticket for ticket in taken if ticket is not None]

    def _take(self, event: SteeringEvent) -> Ticket | None:
        self.taken += 1
        self._say(f"steered by {event.user}: {event.text}")
        if event.kind is not SteeringKind.BUDGET:
            return self._search.take_steering(event)
        run = self._search.run
        config = dict(self._search.store.run(run.name).config)  # a resume may have changed it
        try:
            if isinstance(self._termination, Raisable):
                config.setdefault(LIMITS_AT_START, dict(self._termination.limits))
                self._termination.raise_limit(event.value)
                config["termination"] = dict(self._termination.limits)
        except UsageError as error:  # the limit has changed since the request
            self._say(f"budget not added: {error}")
        self._search.take_steering(event, config)
        return None
