"""A program of the user's as the model: a prompt on its standard input, an answer on its output.

For people with a subscription and no key: the program has a login of its own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import (
    CallStatus,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    conversation,
)
from evolve.core.source.thoughts import split_thought
from evolve.llm.faults import one_line
from evolve.llm.prices import price_from, prompt_bound
from evolve.llm.programs.printed import Printed, read_printed
from evolve.llm.programs.process import Ended, environment_for, run
from evolve.llm.programs.program_model import ProgramModel, require_one
from evolve.llm.secrets import scrub
from evolve.llm.settings import DEADLINE_S, MAX_TOKENS

SLOTS = 2


class CommandModel(ProgramModel):
    """A program that prints an answer to the prompt on its standard input.

    An exit status other than 0 means that the request was not accepted:
    the program is asked again after a pause. A call that takes too long has an unknown outcome.

    Args:
        command: the program and its arguments; no shell reads them.
        model: how the search calls it; None: the program's name.
        environment: variables that it gets besides `PATH`, `HOME` and the like.
        price: USD per million tokens, for a program that counts tokens and states no cost.
        context_tokens: how many tokens fit in prompt and answer; None if unknown.
        max_tokens: of an answer, for the reservation: the program itself is under no limit.
        deadline_s: seconds for a call.
        slots: calls at once.

    Raises:
        UsageError: a value that cannot be.
    """

    group = "llm"

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
        require_one("deadline_s", deadline_s, self.group)
        self._price = price_from(price)
        card = ModelCard(
            name=model or Path(command[0]).name,
            context_tokens=context_tokens,
            output_tokens=max_tokens,
            priced=self._price is not None,
        )
        super().__init__(command, card, slots)
        self._environment = list(environment)
        self._max_tokens = max_tokens
        self._deadline_s = deadline_s

    def resolve(self, request: ModelRequest) -> ModelRequest:
        request = super().resolve(request)
        return replace(request, max_tokens=request.max_tokens or self._max_tokens)

    def reserve(self, request: ModelRequest) -> Reservation:
        prompt, answer = prompt_bound(request.messages), request.max_tokens or self._max_tokens
        usd = None if self._price is None else self._price.worst(prompt, answer)
        return Reservation(tokens=prompt + answer, usd=usd)

    async def answer(self, request: ModelRequest, folder: Path) -> ModelReply:
        ended = await run(
            self.command,
            conversation(request),
            folder=folder,
            environment=environment_for(self._environment, os.environ),
            deadline_s=self._deadline_s,
        )
        if ended.fault:
            said = f"{self.card.name}: {ended.fault}"
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
            raise ModelUnavailable(f"{self.card.name}: {code}: {one_line(scrub(said))}")
        whole = "" if failed else scrub(printed.text.replace("\x00", ""))
        thought, text = split_thought(whole)
        return ModelReply(
            status=CallStatus.COMPLETED if text.strip() else CallStatus.EMPTY,
            text=text,
            reasoning=thought,
            usage=printed.usage,
            cost_usd=self._cost(printed),
            model=printed.model or self.card.name,
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
