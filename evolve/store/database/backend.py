"""The interface of a database for reads and writes of tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from evolve.core.records import Pruned

P = ParamSpec("P")
T = TypeVar("T")
Action = Callable[Concatenate[Connection, P], T]


class Database(ABC):
    """Transactions on one database.

    An action is a function of a connection and values. It may be called again after a transaction
    that was surely taken back, so it changes nothing but the database.

    Attributes:
        location: how a person names the database; never with a password.
        notices: lines that a person should see once.
    """

    location: str
    notices: list[str]

    @abstractmethod
    def read(self, query: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a query, which sees one state of the database."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """One view for all that this thread reads in the block, which must not write.

        A transaction takes as long as a few simple questions.
        """

    @abstractmethod
    def write(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """All of an action or nothing; committed when this returns, one writer of a run at a time.

        Programs and texts, which runs share, may be added by others at the same time.
        """

    @abstractmethod
    def write_alone(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write`, while nothing else writes to this database."""

    @abstractmethod
    def claim(self, run: int, owner: str) -> None:
        """Take the lease of a run; UsageError if another live process holds it."""

    @abstractmethod
    def watch(self, owner: str) -> None:
        """A held lease was renewed: before each write see from now on that nothing took it."""

    @abstractmethod
    def unwatch(self, run: int) -> None:
        """The lease of the run is given up."""

    @abstractmethod
    def close(self) -> None:
        """End all connections."""

    # Maintenance

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Copy everything to a new SQLite file, also while a search writes."""

    @abstractmethod
    def bytes_on_disk(self) -> dict[str, int]:
        """Bytes by kind: `records`, and further kinds of the back end."""

    @abstractmethod
    def prune(self, run: int, owner: str, keep: int | None) -> Pruned:
        """`evolve.store.maintenance.strip`, and free the space."""

    @abstractmethod
    def upgrade(self) -> int:
        """Bring the schema up to date, all of it or nothing; returns the one before."""
