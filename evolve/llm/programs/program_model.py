"""A program that answers requests, each in a process and an empty folder of its own."""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from evolve.core.errors import UsageError
from evolve.core.model import (
    Commit,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    not_committed,
)
from evolve.worker.base.scratch import ScratchFolder


class ProgramModel(ABC):
    """`evolve.core.model.LanguageModel` over a program, which is started for each request.

    Args:
        command: the program and its arguments; no shell reads them.
        card: how it is called.
        slots: calls at once.

    Raises:
        UsageError: a value that cannot be.
    """

    group: ClassVar[str]  # of its settings

    def __init__(self, command: Sequence[str], card: ModelCard, slots: int) -> None:
        require_one("slots", slots, self.group)
        self.command = list(command)
        self.card = card
        self._slots = slots
        self._semaphore = asyncio.Semaphore(slots)

    @property
    def models(self) -> Sequence[ModelCard]:
        return (self.card,)

    @property
    def slots(self) -> int:
        return self._slots

    def resolve(self, request: ModelRequest) -> ModelRequest:
        name = request.model or self.card.name
        if name != self.card.name:
            raise UsageError(f"model {name}: there is no such model; there is {self.card.name}")
        return replace(request, model=name)

    @abstractmethod
    def reserve(self, request: ModelRequest) -> Reservation:
        """The most that a call may cost."""

    def require_program(self) -> None:
        """Raise UsageError if the program is not there."""
        if shutil.which(self.command[0]) is None:
            raise UsageError(
                f"{self.group}.command: there is no program {self.command[0]!r} on the PATH; "
                "install it, or give its whole path"
            )

    def require_ready(self) -> None:
        """Raise UsageError if it cannot be asked now; before anything is charged."""
        self.require_program()

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        async with self._semaphore:
            self.require_ready()
            commit()
            start = time.monotonic()
            with ScratchFolder(self.group) as folder:
                try:
                    reply = await self.answer(request, folder)
                except OSError as error:
                    said = f"{self.group}.command: {self.command[0]}: {error.strerror}"
                    raise UsageError(said) from error
        return replace(reply, latency_s=time.monotonic() - start)

    @abstractmethod
    async def answer(self, request: ModelRequest, folder: Path) -> ModelReply:
        """The reply of the program, run in the folder.

        Raises:
            ModelUnavailable: it failed, which says nothing about the request.
            OSError: it cannot be started.
        """

    async def close(self) -> None:
        """Every program has ended with its call."""
        return


def require_one(name: str, value: float, group: str) -> None:
    """Raise UsageError if a setting is below 1."""
    if value < 1:
        raise UsageError(f"{group}.{name}={value:g}: it must be at least 1")
