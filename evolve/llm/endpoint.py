"""One model behind one address: its limits, its retries, and whether it is there at all."""

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field, replace
from typing import Any

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import (
    CallStatus,
    Commit,
    ModelReply,
    ModelRequest,
    Reservation,
    Usage,
    not_committed,
)
from evolve.llm.client import arguments_of, ready, send
from evolve.llm.faults import FOR_PEOPLE, RETRIED, Fault, FaultKind
from evolve.llm.limits import Gate
from evolve.llm.outage import Circuit
from evolve.llm.prices import prompt_bound, prompt_estimate
from evolve.llm.quirks import Quirks, learned
from evolve.llm.remedies import remedy
from evolve.llm.settings import ModelSettings

FIRST_WAIT_S = 1.0
MAX_WAIT_S = 60.0
MAX_REFUSALS = {FaultKind.BAD_REQUEST: 3, FaultKind.TOO_LONG: 2}
"""In a row; then it is the settings' fault."""

MAX_CUT = 5  # answers in a row that end before their first word
MAX_FORMS = 6  # of one request, that are tried where the endpoint refuses the first

_log = logging.getLogger(__name__)

_BILLS_FILTERED = frozenset({"azure", "azure_ai"})
"""Providers that charge for prompt and answer where their filter refuses the prompt.

The page "Content filtering" of Azure OpenAI's documentation says so of status 400.
"""

_ENDED: dict[FaultKind, CallStatus] = {
    FaultKind.LOST: CallStatus.UNKNOWN,
    FaultKind.FILTERED: CallStatus.REFUSED,
    FaultKind.TOO_LONG: CallStatus.FAILED,
    FaultKind.BAD_REQUEST: CallStatus.FAILED,
}


@dataclass(slots=True)
class _Call:
    """A call that is under way. `is_sent` while an answer may come, and be billed."""

    request: ModelRequest
    sample: int
    commit: Commit
    start: float = 0.0
    attempts: int = 0
    forms: int = 0
    is_sent: bool = False
    quirks: Quirks = field(default_factory=Quirks)
    arguments: dict[str, Any] = field(default_factory=dict)


class Endpoint:
    """The only owner of retries: those of LiteLLM and of the SDKs below it are off.

    A request that was surely not billed is sent again, with exponential waits (or as long as the
    endpoint asks), until its deadline. One that may have been is not: its outcome is unknown. Where
    the endpoint names what it does not take, the request is sent again without, as are later ones.

    Args:
        name: how the search calls the model.
        settings: how it is reached.
        gate: the limits of its key, which other models may share; the default is its own.
        circuit: tells when the endpoint counts as down; the default is good for a search.
        first_wait_s: the wait before the second attempt, which doubles from there.
    """

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        *,
        gate: Gate | None = None,
        circuit: Circuit | None = None,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self.name = name
        self.settings = settings
        self._ceiling = settings.ceiling
        self._circuit = circuit or Circuit()
        self._first_wait_s = first_wait_s
        self._refusals: dict[FaultKind, int] = {}  # in a row
        self._cut = 0  # answers in a row that end before their first word
        self._quirks = Quirks()
        self._slots = asyncio.Semaphore(settings.slots)
        self._gate = gate or Gate(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        )

    def reserve(self, request: ModelRequest) -> Reservation:
        """The worst case of one call."""
        prompt, answer = prompt_bound(request.messages), self._longest(request)
        usd = None if self._ceiling is None else self._ceiling.worst(prompt, answer)
        return Reservation(tokens=prompt + answer, usd=usd)

    def _longest(self, request: ModelRequest) -> int:
        return request.max_tokens or self.settings.max_tokens

    async def complete(
        self, request: ModelRequest, sample: int, commit: Commit = not_committed
    ) -> ModelReply:
        """As `LanguageModel.complete`."""
        call = _Call(request, sample, commit)
        if self._cut >= MAX_CUT:
            self._cut = 0
            raise UsageError(
                f"{self.name}: {MAX_CUT} answers in a row reached llm.max_tokens="
                f"{self.settings.max_tokens} before their first word; raise llm.max_tokens, or "
                "set llm.reasoning_effort=low; then `evolve resume` goes on"
            )
        try:
            await ready()
            return await self._complete(call)
        except asyncio.CancelledError:
            if call.is_sent:
                raise
            raise ModelUnavailable(f"{self.name}: given up while it waited to be sent") from None

    async def _complete(self, call: "_Call") -> ModelReply:
        """Send it until there is an outcome."""
        request, patience_s = call.request, self.settings.deadline_s
        expected = prompt_estimate(request.messages) + self._longest(request)
        while True:
            async with self._slots, self._gate.passage(expected, patience_s) as taken:
                if not self._circuit.admit():
                    raise self._down()
                outcome = await self._attempt(call)
                if isinstance(outcome, ModelReply) and outcome.usage:
                    taken.amount = outcome.usage.total
            if isinstance(outcome, ModelReply):
                self._answered()
                is_cut = outcome.status is CallStatus.TRUNCATED and not outcome.text.strip()
                self._cut = self._cut + 1 if is_cut else 0
            elif self._has_other_form(call, outcome):
                continue
            elif outcome.kind in RETRIED:
                await self._wait(outcome, call.attempts, call.start)
                continue
            else:
                outcome = self._ended(outcome)
            seconds = time.monotonic() - call.start
            return replace(outcome, attempts=call.attempts, latency_s=seconds)

    async def _attempt(self, call: "_Call") -> ModelReply | Fault:
        call.start = call.start or time.monotonic()
        call.attempts += 1
        left_s = self._left_s(call.start)
        if call.attempts == 1:
            call.commit()
        call.is_sent = True
        call.quirks = self._quirks
        call.arguments = arguments_of(self.settings, call.request, call.sample, call.quirks)
        outcome = await send(self.settings, call.arguments, left_s)
        call.is_sent = False
        return outcome

    def _has_other_form(self, call: "_Call", fault: Fault) -> bool:
        """Whether the request can be sent in another form, after a refusal that says so."""
        if call.forms >= MAX_FORMS:
            return False
        estimate = prompt_estimate(call.request.messages)
        found = learned(call.quirks, fault, call.arguments, estimate)
        if found is None:
            return False
        if call.quirks is self._quirks:  # else another call has learned meanwhile
            said = "%s refused a request: %s; from now on %s"
            _log.warning(said, self.name, fault.message, found.news(self._quirks))
            self._quirks = found
        call.forms += 1
        self._answered()
        return True

    def _left_s(self, start: float) -> float:
        """Seconds until the deadline of a call."""
        left = self.settings.deadline_s - (time.monotonic() - start)
        if left <= 0:  # while it waited to be sent again
            raise ModelUnavailable(
                f"{self.name}: not accepted within {self.settings.deadline_s:.0f} s"
            )
        return left

    async def _wait(self, fault: Fault, attempts: int, start: float) -> None:
        """Before the next attempt. Raises ModelUnavailable if there is to be none."""
        if fault.kind is FaultKind.RATE_LIMIT:
            self._circuit.answer()
        else:
            self._circuit.fault(fault.message)
        if self._circuit.is_open:
            raise self._down()
        wait = self._backoff(attempts)
        if fault.retry_after_s is not None:
            wait = max(wait, fault.retry_after_s + 0.1 * wait)  # waiting calls come a bit apart
            self._gate.hold(wait, f"{self.name}: {fault.kind.value}: {fault.message}")
        if wait >= self._left_s(start):
            raise ModelUnavailable(
                f"{self.name}: {fault.kind.value} after {attempts} attempts, and the next would "
                f"come after the deadline of {self.settings.deadline_s:.0f} s: {fault.message}",
                retry_after_s=wait,
            )
        await asyncio.sleep(wait)

    def _backoff(self, attempts: int) -> float:
        """Seconds, doubling with every attempt, and random so that calls do not come in step."""
        doubled = self._first_wait_s * 2 ** min(attempts - 1, 20)
        return random.uniform(0.5, 1.0) * min(doubled, MAX_WAIT_S)

    def _ended(self, fault: Fault) -> ModelReply:
        """The result of a fault that is not retried. Raises UsageError if a person is needed."""
        if fault.kind is FaultKind.LOST:
            self._circuit.fault(fault.message)
            return ModelReply(status=CallStatus.UNKNOWN, error=fault.message)
        self._answered(fault.kind)
        tries = self._refusals[fault.kind]
        if fault.kind in FOR_PEOPLE or tries >= MAX_REFUSALS.get(fault.kind, tries + 1):
            said = remedy(fault, self.settings, tries)
            raise UsageError(f"{self.name}: {said}; then `evolve resume` goes on")
        reply = ModelReply(status=_ENDED[fault.kind], error=f"{fault.kind.value}: {fault.message}")
        if fault.kind is FaultKind.FILTERED and self.settings.provider not in _BILLS_FILTERED:
            return replace(reply, usage=Usage(prompt=0, completion=0), cost_usd=0.0)
        return reply

    def _answered(self, refusal: FaultKind | None = None) -> None:
        self._circuit.answer()
        self._refusals = {refusal: self._refusals.get(refusal, 0) + 1} if refusal else {}

    def _down(self) -> ModelUnavailable:
        where = f" at {self.settings.api_base}" if self.settings.api_base else ""
        return ModelUnavailable(
            f"{self.name}{where} is down: {self._circuit.faults} faults in a row within "
            f"{self._circuit.down_for_s:.0f} s, the last one: {self._circuit.last}",
            retry_after_s=self._circuit.wait_s,
        )
