"""A model that answers from a script, and operators that ask it: real parts, no network."""

import asyncio
import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from evolve.core.errors import ModelUnavailable
from evolve.core.model import (
    CallStatus,
    Commit,
    Exchange,
    Message,
    ModelCard,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
    Usage,
    not_committed,
)
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal, Reading
from evolve.search.schedule import Scheduled
from evolve.testing.synthetic import OPTIMUM, SEED_SOURCE

WORST = Reservation(tokens=1000, usd=0.10)
PAID = Usage(prompt=300, completion=100)
COST = 0.02

Script = Callable[[ModelRequest, int], ModelReply | Exception]


def answer(text: str, **fields) -> ModelReply:
    """A completed reply that costs `COST`."""
    return ModelReply(
        **{"status": CallStatus.COMPLETED, "text": text, "usage": PAID, "cost_usd": COST} | fields
    )


def echo(request: ModelRequest, number: int) -> ModelReply:
    """Whatever is asked, a program that was never seen."""
    return answer(f"{SEED_SOURCE}\n\nASKED = 1{request.memo['sequence']:04}{number:04}\n")


@dataclass
class ScriptedModel:
    """`evolve.core.model.LanguageModel` that says what its script says, after a while.

    A reply that is an exception is raised. `asked` lists what was sent.
    """

    script: Script = echo
    slots: int = 4
    latency_s: float = 0.0
    names: Sequence[str] = ("scripted",)
    asked: list[ModelRequest] = field(default_factory=list)
    worst: Reservation = WORST

    @property
    def models(self) -> Sequence[ModelCard]:
        return [ModelCard(name=name, priced=self.worst.usd is not None) for name in self.names]

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return replace(request, max_tokens=request.max_tokens or 700)

    def reserve(self, request: ModelRequest) -> Reservation:
        return self.worst

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        commit()
        number = len(self.asked)
        self.asked.append(request)
        await asyncio.sleep(self.latency_s)
        said = self.script(request, number)
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self) -> None:
        pass


DOWN = ModelUnavailable("connection refused", retry_after_s=0.05)


@dataclass(frozen=True)
class Writer:
    """Asks for a program of no parents, and takes the reply as it is; `FIX` asks once more."""

    parents: int = 0
    samples: int = 1
    limit: int | None = None

    def propose(self, context: Context) -> ModelRequest | Declined:
        if self.limit is not None and context.sequence >= self.limit:
            return Declined("enough")
        return ModelRequest(
            messages=(Message("system", "You write kernels."), Message("user", "Write one.")),
            samples=self.samples,
            memo={"sequence": context.sequence},
        )

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        last = exchanges[-1]
        if last.reply.text.startswith("FIX"):
            messages = (*last.request.messages, Message("assistant", last.reply.text))
            again = replace(last.request, messages=messages, purpose="repair")
            return Reading(ReplyStatus.NO_CODE, again)
        if "ModelNew" not in last.reply.text:
            return Reading(ReplyStatus.NO_CODE, Failed("no code"))
        parents = tuple(parent.program for parent in context.parents)
        return Reading(
            ReplyStatus.PROGRAM, Proposal(program=Program(last.reply.text), parents=parents)
        )


def writer(**fields) -> dict[str, Scheduled]:
    return {"writer": Scheduled(operator=Writer(**fields))}


def towards_the_optimum(request: ModelRequest, number: int) -> ModelReply:
    """Improving and worsening edits of the constants, as a rather blind model would make them."""
    rng = random.Random(number)
    values = {name: rng.choice((value, value, 2 * value)) for name, value in OPTIMUM.items()}
    lines = "\n".join(f"{name} = {value}" for name, value in values.items())
    return answer(f"{lines}\nDRAFT = {number}\n\n\nclass ModelNew:\n    pass\n")


class _Simulated(selectors.DefaultSelector):
    """Waits for nothing: the time that would pass is added to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None):
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time, and its clock says that it did."""

    def __init__(self) -> None:
        self._simulated = _Simulated()
        super().__init__(self._simulated)

    def time(self) -> float:
        return self._simulated.now


def run_simulated(body: Callable[[], object]):
    """Run a coroutine function in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(body())
