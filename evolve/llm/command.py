"""A program of the user's as the model: a prompt on its standard input, an answer on its output.

For people with a subscription and no key: the program has a login of its own.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import (
    CallStatus,
    Commit,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    conversation,
    not_committed,
)
from evolve.core.source.thoughts import split_thought
from evolve.llm.faults import one_line
from evolve.llm.prices import price_from, prompt_bound
from evolve.llm.printed import Printed, read_printed
from evolve.llm.process import Ended, environment_for, run
from evolve.llm.secrets import scrub
from evolve.llm.settings import DEADLINE_S, MAX_TOKENS

SLOTS = 2


class CommandModel:
    """`evolve.core.model.LanguageModel` over a program, which is started for each request.

    It runs in an empty folder. An exit status other than 0 means that the request was not accepted:
    the program is asked again after a pause. A call that takes too long has an unknown outcome.

    Args:
        command: the program and its arguments; no shell reads them.
        model: how the search calls it; None: the program's name.
        environment: variables that it gets besides `PATH`, `HOME` and the like.
        price: USD per million tokens, for a program that counts tokens and states no cost.
        context_tokens: how many tokens fit in prompt and answer; None if unknown.
        max_tokens: of an answer, for the reservation: a program keeps to no limit of ours.
        deadline_s: seconds for a call.
        slots: calls at once.

    Raises:
        UsageError: a value that cannot be.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        model: str | None = None,
        environment: Sequence[str] = (),
        price: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        max_tokens: int = MAX_TOKENS,
        deadline_s: float = DEADLINE_S,
        slots: int = SLOTS,
    ) -> None:
        if not command or not command[0] or not all(isinstance(word, str) for word in command):
            raise UsageError(
                f"llm.command={command!r}: give the program and its arguments as a list, "
                "'llm.command=[claude,-p,--output-format,json]'"
            )
        for name, value in (("deadline_s", deadline_s), ("slots", slots)):
            if value < 1:
                raise UsageError(f"llm.{name}={value}: it is a number from 1")
        self.command = list(command)
        self._environment = list(environment)
        self._price = price_from(price)
        self._max_tokens = max_tokens
        self._deadline_s = deadline_s
        self._slots = slots
        self._semaphore = asyncio.Semaphore(slots)
        self._card = ModelCard(
            name=model or Path(command[0]).name,
            context_tokens=context_tokens,
            output_tokens=max_tokens,
            priced=self._price is not None,
        )

    @property
    def models(self) -> Sequence[ModelCard]:
        return (self._card,)

    @property
    def slots(self) -> int:
        return self._slots

    def resolve(self, request: ModelRequest) -> ModelRequest:
        name = request.model or self._card.name
        if name != self._card.name:
            raise UsageError(f"model {name}: there is no such model; there is {self._card.name}")
        return replace(request, model=name, max_tokens=request.max_tokens or self._max_tokens)

    def reserve(self, request: ModelRequest) -> Reservation:
        prompt, answer = prompt_bound(request.messages), request.max_tokens or self._max_tokens
        usd = None if self._price is None else self._price.worst(prompt, answer)
        return Reservation(tokens=prompt + answer, usd=usd)

    def require_program(self) -> None:
        """Raise UsageError if the program is not there."""
        if shutil.which(self.command[0]) is None:
            raise UsageError(
                f"llm.command: there is no program {self.command[0]!r} on the PATH; install it, or "
                "give its whole path"
            )

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        async with self._semaphore:
            self.require_program()
            commit()
            start = time.monotonic()
            with tempfile.TemporaryDirectory(
                prefix="evolve-command-", ignore_cleanup_errors=True
            ) as folder:
                reply = await self._answer(conversation(request), Path(folder))
        return replace(reply, latency_s=time.monotonic() - start)

    async def close(self) -> None:
        """Every program has ended with its call."""

    async def _answer(self, prompt: str, folder: Path) -> ModelReply:
        try:
            ended = await run(
                self.command,
                prompt,
                folder=folder,
                environment=environment_for(self._environment, os.environ),
                deadline_s=self._deadline_s,
            )
        except OSError as error:
            raise UsageError(f"llm.command: {self.command[0]}: {error.strerror}") from error
        if ended.fault:
            said = f"{self._card.name}: {ended.fault}"
            return ModelReply(status=CallStatus.UNKNOWN, error=said)
        return self._reply(ended, read_printed(ended.output.decode(errors="replace")))

    def _reply(self, ended: Ended, printed: Printed) -> ModelReply:
        """The reply that a program's output is.

        Raises:
            ModelUnavailable: it failed, which says nothing about the request.
        """
        failed = bool(ended.status or printed.error)
        if failed and not printed.is_billed:
            said = printed.error or last_line(ended.errors) or last_line(ended.output)
            code = f"exit status {ended.status}" if ended.status else "it failed"
            raise ModelUnavailable(f"{self._card.name}: {code}: {one_line(scrub(said))}")
        whole = "" if failed else scrub(printed.text.replace("\x00", ""))
        thought, text = split_thought(whole)
        return ModelReply(
            status=CallStatus.COMPLETED if text.strip() else CallStatus.EMPTY,
            text=text,
            reasoning=thought,
            usage=printed.usage,
            cost_usd=self._cost(printed),
            model=printed.model or self._card.name,
            error=one_line(scrub(printed.error))
            or ("" if text.strip() else "the answer holds no text"),
        )

    def _cost(self, printed: Printed) -> float | None:
        """By the user's price, else as the program states it."""
        if self._price is not None and printed.usage is not None:
            return self._price.cost(printed.usage)
        return printed.cost_usd


def last_line(data: bytes | bytearray) -> str:
    """The last line that a program printed, for messages."""
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
