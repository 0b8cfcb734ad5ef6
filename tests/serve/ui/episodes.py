"""A run with the episodes of a coding agent: a short one, and one whose transcript is long."""

import json

from evolve.core.evaluation import Fidelity, Status
from evolve.core.model import (
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
    Usage,
)
from evolve.core.program import Program
from evolve.core.protocols import Failed, Proposal
from evolve.store import Store
from operators.llm.agent import MODEL
from tests.report.filling import TASK, Filling, evaluation, source
from tests.serve.ui.serving import HOSTILE

RUN = "by agent"
LONG = 2_500  # submissions of the long episode, of 4 KB each
KNOWN, UNKNOWN = source(700, 2), source(701, 4)


def _block(kind: str, **values: object) -> str:
    return json.dumps({"type": kind, "message": {"role": kind, "content": [values]}})


def transcript(programs: list[str], answer: str) -> str:
    """The output of an agent that submits programs and is answered, as Claude Code prints it."""
    lines = [_block("assistant", type="text", text=f"I begin. {HOSTILE}")]
    for number, program in enumerate(programs):
        given = {"source": program, "note": f"idea {number}"}
        lines += [
            _block(
                "assistant", type="tool_use", id=number, name="mcp__evolve__submit", input=given
            ),
            _block("user", type="tool_result", tool_use_id=number, content=answer),
        ]
    return "\n".join([*lines, json.dumps({"type": "result", "result": "done"})])


def add_episodes(store: Store, long: int = LONG) -> None:
    """Steps 1 (short) and 3 (long) are episodes, step 2 is a program that the first submits."""
    filling = Filling(store=store, name=RUN).search(1)
    short = transcript([KNOWN, UNKNOWN], '{"status": "correct", "speedup": [99, 98, 100]}')
    add_episode(filling, short)
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, 0.7)
    filling.step("agent", Proposal(program=Program(KNOWN), note="idea 0"), verdict)
    add_episode(
        filling, transcript([f"{source(n, 1)}{'#' * 2600}" for n in range(long)], "waiting")
    )
    filling.finish()


def add_episode(filling: Filling, output: str) -> None:
    store = filling.store
    messages = (Message("system", "You write kernels."), Message("user", "The task"))
    request = ModelRequest(messages=messages, model=MODEL)
    (ticket,) = store.request(filling.run.id, "agent", (), request, MODEL)
    call = store.begin_call(ticket, Reservation(tokens=100, usd=None))
    reply = ModelReply(
        status=CallStatus.COMPLETED,
        text="done",
        reasoning=output,
        usage=Usage(prompt=1000, completion=50),
        cost_usd=0.25,
        model="claude-x",
    )
    ticket = store.end_call(call, reply)
    failed = Failed("no program but those that it tried")
    store.tell(store.propose(ticket, failed, ReplyStatus.STEP), None, None)
