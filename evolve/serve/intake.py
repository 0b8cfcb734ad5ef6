"""From what a client sends to an order."""

import uuid

from evolve.core.model import ReplyStatus
from evolve.serve.catalogue import Catalogue, Setup
from evolve.serve.messages import Submission
from evolve.serve.orders import Order
from operators.prompting.replies import read_program


def order_of(submission: Submission, catalogue: Catalogue) -> Order:
    """The order that a submission stands for.

    Raises:
        UsageError: it names a task that is not here.
    """
    setup = Setup(submission.size, submission.precision, submission.accumulation)
    if submission.task is not None:
        task = catalogue.find(submission.task, setup)
    else:
        task = catalogue.by_text(submission.reference or "", setup)
    reading, note, source = ReplyStatus.PROGRAM, "", submission.source or ""
    if submission.completion is not None:
        found = read_program(submission.completion)
        reading, note, source = found.status, found.note, found.source
    return Order(
        id=submission.id or uuid.uuid4().hex,
        task=task,
        source=source,
        baseline=submission.baseline,
        fidelity=submission.fidelity,
        rewards=tuple(dict.fromkeys(submission.rewards)),
        parent=submission.parent,
        parent_source=submission.parent_source or "",
        pins=submission.pins.model_dump(exclude_none=True),
        queue_s=submission.queue_s,
        fresh=submission.fresh,
        reading=reading,
        note=note,
    )
