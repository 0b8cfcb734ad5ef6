"""A model that climbs landscapes: it reads the prompts of real operators and answers as they ask.

What it writes is what `Mutate` would write, no better: it has no idea where the optimum is.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evolve.core.model import (
    CallStatus,
    Commit,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    Usage,
    not_committed,
)
from evolve.core.randomness import stream
from evolve.testing.landscapes import Landscape, Point, constants
from evolve.testing.landscapes_parts import Mutate
from tests.operators.history import fenced
from tests.operators.scripted import shown_programs

USD_PER_CALL = 0.02
USELESS = 0.05  # share of replies without a program
_USAGE = Usage(prompt=2000, completion=300)


def answer(prompt: str, landscape: Landscape, rng: random.Random) -> str:
    """What it says: a choice, a limit, a summary, or a program made of those that are shown."""
    if "\nACTION: number" in prompt:
        (count,) = re.findall(r"from 1 to (\d+):\n", prompt)
        return f"ACTION: {rng.randint(1, int(count))}"
    if "\nLIMIT: one of" in prompt:
        return "LIMIT: memory\nWHY: bytes.\nCHANGE: fewer bytes."
    if re.search(r"^Write a (new )?summary|^The search stands still", prompt, re.MULTILINE):
        return "- some knobs were faster than others"
    if '{"ops": [' in prompt:
        return json.dumps({"ops": _intents(prompt, rng)})
    if rng.random() < USELESS:
        return "I would rather not."
    shown = shown_programs(prompt) or [landscape.start.source()]
    child = Mutate(landscape=landscape).child(_crossed(shown, rng), rng)
    if "<<<<<<< SEARCH" in prompt:
        return f"Knobs.\n<<<<<<< SEARCH\n{shown[0]}=======\n{child}>>>>>>> REPLACE\n"
    if "## Analysis" in prompt:
        return f"## Analysis\nKnobs.\n\n## Design\nOther knobs.\n\n## Code\n{fenced(child)}"
    return fenced(child)


def _intents(prompt: str, rng: random.Random) -> list[dict[str, object]]:
    """Other knobs: below the root, and below the fastest intent that was solved."""
    solved = re.findall(r"^(\w+)[^\n]*\[solved, ([\d.]+)x", prompt, re.MULTILINE)
    best = max(solved, key=lambda each: float(each[1]), default=("root", ""))[0]
    return [
        {"op": "insert_node", "parent": parent, "title": "knobs", "score": rng.random()}
        for parent in ("root", best)
    ]


def _crossed(shown: Sequence[str], rng: random.Random) -> str:
    """The structure of the first, every knob of any.

    Of the others a prompt may show only what differs from the first.
    """
    if len(shown) == 1:
        return shown[0]
    whole = [constants(shown[0]) | constants(each) for each in shown]
    first, *others = (Point(each["STRUCTURE"], tuple(each["KNOBS"])) for each in whole)
    knobs = tuple(map(rng.choice, zip(first.knobs, *(each.knobs for each in others), strict=True)))
    return Point(first.structure, knobs).source()


@dataclass
class LandscapeModel:
    """`evolve.core.model.LanguageModel`; what it says follows from what programs it is shown.

    Not from other words: golden runs survive a better prompt. Calls are counted, so that the same
    program twice gives two children.
    """

    landscape: Landscape
    seed: int = 0
    slots: int = 1
    calls: int = field(default=0, init=False)

    @property
    def models(self) -> Sequence[ModelCard]:
        return [ModelCard(name="climber", priced=True)]

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return replace(request, model=request.model or "climber")

    def reserve(self, request: ModelRequest) -> Reservation:
        return Reservation(tokens=4000, usd=USD_PER_CALL)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        commit()
        rng = stream(self.seed, "landscape_model", self.calls)
        self.calls += 1
        return ModelReply(
            status=CallStatus.COMPLETED,
            text=answer(request.messages[1].content, self.landscape, rng),
            usage=_USAGE,
            cost_usd=USD_PER_CALL,
            model="climber",
        )

    async def close(self) -> None:
        """Nothing to close."""
