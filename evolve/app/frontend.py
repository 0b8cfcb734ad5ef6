"""Where the application reports to: a terminal, a notebook, or a program that ignores it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.search.execution.judging import Told
    from evolve.search.execution.pipeline import Outcome
    from evolve.search.termination import Rule
    from evolve.store import RunRow


class Display(AbstractContextManager[object], Protocol):
    """The view of a search while it is under way."""

    def __call__(self, told: "Told") -> None:
        """Take over one step that has a verdict."""

    def follow(self, under_way: Callable[[], Sequence[str]]) -> None:
        """From now on `under_way` gives the current work of the search, a line each."""


class Frontend(Protocol):
    """Receives the application's reports and questions while it works."""

    def say(self, line: str) -> None:
        """A line of the result."""

    def warn(self, line: str) -> None:
        """A line on a failure."""

    def doing(
        self, what: str | Callable[[], str], *, plain: bool = True
    ) -> AbstractContextManager[None]:
        """Show the current work for as long as the block lasts.

        Args:
            what: the work, in words; a callable is asked anew whenever they are shown.
            plain: whether it is a line of the output if that is no terminal.
        """

    def display(
        self, store: "RunStore", run: "RunRow", config: Mapping[str, Any], rule: "Rule"
    ) -> Display:
        """The view of a search that is about to begin.

        Args:
            store: the open database.
            run: as it stands.
            config: of the run, with the overrides of this session.
            rule: ends the run.
        """

    def interruptible(
        self, stop: Callable[[str], None], leave: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Within this block a request to stop calls `stop` with the reason.

        A second request calls `leave`, after which the process may end.
        """

    def ended(self, store: "RunStore", run: "RunRow", outcome: "Outcome") -> None:
        """The search is over; its report can be written."""
