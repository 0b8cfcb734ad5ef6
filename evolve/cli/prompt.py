"""`evolve prompt`: what would be sent to a model next, without sending or storing anything."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from evolve.cli.flags import add_run, add_store, open_store, parser
from evolve.core.errors import UsageError

if TYPE_CHECKING:
    from evolve.core.model import LanguageModel, ModelRequest
    from evolve.search.proposing import Asked


def main(words: Sequence[str]) -> int:
    """Compose the next request, and print it."""
    options = _parse(words)
    from evolve.cli import parts
    from evolve.cli.ask import declined_text, wanted_operators
    from evolve.cli.byhand import ByHand
    from evolve.core.model import ModelRequest

    with open_store(options.store) as store:
        run = store.run(options.run)
        model = parts.build_model(run.config) or ByHand()
        search = parts.build_search(store, run, run.config, model=model)
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
        "prompt", "Print exactly what the next request of a run to a model would be."
    )
    add_run(arguments)
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
    from evolve.cli.byhand import conversation

    parents = ", ".join(f"#{parent.sequence}" for parent in asked.parents) or "none"
    given = {name: value for name, value in asdict(request.sampling).items() if value}
    sampling = ", ".join(f"{name} {value}" for name, value in given.items())
    print(f"operator    {asked.choice.operator}, for {request.purpose}; parents {parents}")
    print(f"model       {request.model}{'; ' if sampling else ''}{sampling}")
    worst = model.reserve(request)
    cost = "cost unknown" if worst.usd is None else f"at most {worst.usd:.4f} USD"
    characters = sum(len(message.content) for message in request.messages)
    print(
        f"size        {characters:,} characters; at most {worst.tokens:,} tokens with the answer, "
        f"{cost}\n"
    )
    print(conversation(request), end="")
