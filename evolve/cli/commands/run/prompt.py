"""`evolve prompt`: the next request to a model, or the request of a step with its replies.

Nothing is sent or stored.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.cli.args import add_run, add_store, parser, split_step
from evolve.core.errors import UsageError
from evolve.report.text import printable

if TYPE_CHECKING:
    from evolve.core.model import LanguageModel, ModelReply, ModelRequest
    from evolve.core.run_store import RunStore
    from evolve.search.proposing import Asked
    from evolve.store import RunRow, Ticket


def main(words: Sequence[str]) -> int:
    """Compose the next request, or recall those of a step, and print them."""
    options = _parse(words)
    name, sequence = split_step(options.run)
    with open_store(options.store) as store:
        if sequence is None:
            return _next(store, store.run(name), options)
        return _recall(store, store.run(name), sequence, as_json=options.json)


def _recall(store: "RunStore", run: "RunRow", sequence: int, *, as_json: bool) -> int:
    """The request of a step, and the replies."""
    from evolve.core.model import conversation

    ticket = store.ticket(run.id, sequence)
    if not ticket.exchanges and ticket.request is None:
        raise UsageError(f"step {sequence} of run {run.name} asked no model ({ticket.operator})")
    rounds = [(each.request, each.reply) for each in ticket.exchanges]
    earlier = _earlier(store, ticket)
    if as_json:
        print(json.dumps([_exchange(*each) for each in rounds], indent=2))
        return 0
    for text in earlier:
        print("another text of round 0, from before or after the one that stands:\n")
        print(printable(conversation(text)))
    for number, (request, reply) in enumerate(rounds):
        print(f"round {number}: {request.purpose}, {request.model}\n")
        print(printable(conversation(request)))
        said = f"{reply.status}" + (f": {reply.error}" if reply.error else "")
        print(printable(f"<!-- reply of {reply.model}, {said} -->\n\n{reply.text.strip()}\n"))
    if ticket.request is not None:
        print(f"not answered yet: {ticket.request.purpose}, {ticket.request.model}\n")
        print(printable(conversation(ticket.request)), end="")
    return 0


def _earlier(store: "RunStore", ticket: "Ticket") -> "list[ModelRequest]":
    """Texts in which the first round was asked besides the one that stands."""
    stands = [each.request for each in ticket.exchanges] + [ticket.request]
    return [text for text in store.texts(ticket, 0) if stands[0] and text.key != stands[0].key]


def _exchange(request: "ModelRequest", reply: "ModelReply") -> dict[str, object]:
    return {
        "purpose": request.purpose,
        "model": request.model,
        "messages": [asdict(message) for message in request.messages],
        "reply": reply.to_json(),
    }


def _next(store: "RunStore", run: "RunRow", options: argparse.Namespace) -> int:
    from evolve.app import components
    from evolve.app.attach import expected_device
    from evolve.app.config.upgrade import completed
    from evolve.app.manual.asking import declined_text, wanted_operators
    from evolve.app.manual.files import ByHand
    from evolve.core.model import ModelRequest

    run = completed(run)
    model = components.build_model(run.config) or ByHand()
    search = components.build_search(
        store, run, run.config, model=model, device_class=expected_device(store, run)
    )
    asked = search.preview(operators=wanted_operators(search, options.operator))
    if asked is None or not isinstance(asked.outcome, ModelRequest):
        raise UsageError(f"run {run.name} has nothing to ask now: {declined_text(search)}")
    if options.json:
        print(json.dumps(_plain(asked, asked.outcome), indent=2))
    else:
        _print(asked, asked.outcome, model)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "prompt",
        "Print exactly what the next request of a run to a model would be; with RUN:SEQ what that "
        "step has asked, and the replies.",
    )
    add_run(arguments, "name of the run, or RUN:SEQ")
    arguments.add_argument("--operator", metavar="NAME", help="of this operator")
    arguments.add_argument("--json", action="store_true", help="for machines")
    add_store(arguments)
    return arguments.parse_args(words)


def _plain(asked: "Asked", request: "ModelRequest") -> dict[str, object]:
    return {
        "operator": asked.choice.operator,
        "parents": [parent.program for parent in asked.parents],
        "model": request.model,
        "purpose": request.purpose,
        "samples": request.samples,
        "max_tokens": request.max_tokens,
        "sampling": asdict(request.sampling),
        "key": request.key,
        "messages": [asdict(message) for message in request.messages],
    }


def _print(asked: "Asked", request: "ModelRequest", model: "LanguageModel") -> None:
    from evolve.core.model import conversation

    parents = ", ".join(f"#{parent.sequence}" for parent in asked.parents) or "none"
    given = {name: value for name, value in asdict(request.sampling).items() if value}
    sampling = ", ".join(f"{name} {value}" for name, value in given.items())
    print(f"operator    {asked.choice.operator}, for {request.purpose}; parents {parents}")
    print(f"model       {request.model}{'; ' if sampling else ''}{sampling}")
    worst = model.reserve(request)
    size = [f"{sum(len(message.content) for message in request.messages):,} characters"]
    if worst.tokens:  # none if a person answers
        cost = "cost unknown" if worst.usd is None else f"at most {worst.usd:.4f} USD"
        size.append(f"at most {worst.tokens:,} tokens with the answer, {cost}")
    print(f"size        {'; '.join(size)}\n")
    print(printable(conversation(request)), end="")
