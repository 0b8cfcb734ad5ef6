"""A model in the test's own process that reads prompts and answers in the form they ask for.

It knows the planted optimum of the synthetic task, and is no better than a model for that: most
answers go one step towards it, some away from it, and some are no usable answer at all.
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.core.digest import framed_digest
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
from evolve.testing.synthetic import OPTIMUM, constants
from tests.operators.history import constants_set, fenced

_PROGRAM = re.compile(r"<quoted (\w+) program>\n(.*?\n)</quoted \1>", re.DOTALL)
_HEADINGS = ("# The program to ", "# The parents", "# Programs to compare")
_RUINED = (
    "I would rather not.",
    "```python\nclass ModelNew:\n    broken = (\n```\n",
    "```python\nprint('hello')\n```\n",
    "@@ -1 +1 @@\n-BLOCK = 1\n+BLOCK = 2\n",
    "<<<<<<< SEARCH\nthis line is not there\n=======\nx = 1\n>>>>>>> REPLACE\n",
    "",
)
TEMPLATE = """\
TUNABLE = {"BLOCK": (32, 64, 128, 256), "UNROLL": (1, 2, 4), "STAGES": (2, 3, 4)}

"""


@dataclass
class ScriptedModel:
    """`evolve.core.model.LanguageModel` whose answers are a function of the request.

    Args:
        worse: share of answers that go away from the optimum.
        ruined: share of answers that hold no usable program.
    """

    worse: float = 0.25
    ruined: float = 0.15
    slots: int = 4
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def models(self) -> Sequence[ModelCard]:
        return [ModelCard(name="scripted", context_tokens=64_000, output_tokens=8_000)]

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return request

    def reserve(self, request: ModelRequest) -> Reservation:
        return Reservation(tokens=10_000, usd=None)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        commit()
        self.requests.append(request)
        rng = random.Random(int(framed_digest(request.key, str(sample)), 16))
        return ModelReply(
            status=CallStatus.COMPLETED,
            text=self.text(request, rng),
            usage=Usage(prompt=1000, completion=200),
            model="scripted",
        )

    async def close(self) -> None:
        """Nothing to close."""

    def text(self, request: ModelRequest, rng: random.Random) -> str:
        """What it says to a request."""
        prompt = request.messages[1].content
        if rng.random() < self.ruined:
            return rng.choice(_RUINED)
        if "\nACTION: number" in prompt:
            count = int(re.search(r"from 1 to (\d+):\n", prompt)[1])
            return f"It should help.\n\nACTION: {rng.randint(1, count)}"
        if "\nLIMIT: one of" in prompt:
            return "LIMIT: memory\nWHY: bytes.\nCHANGE: fewer bytes."
        if request.purpose == "summarise":
            return f"- larger blocks were faster\n- trials seen: {prompt.count('- step ')}"
        parents = shown_programs(prompt)
        if not parents:
            return "ROOT: the program as it is, for there is none yet."
        child = self.child(parents, rng)
        if "Write a template" in prompt:
            return fenced(TEMPLATE + constants_set(child, BLOCK=64, UNROLL=2, STAGES=2))
        if "<<<<<<< SEARCH" in prompt:
            return edits_between(parents[0], child)
        if "## Analysis" in prompt:
            return f"## Analysis\nBlocks.\n\n## Design\nMore of it.\n\n## Code\n{fenced(child)}"
        return fenced(child)

    def child(self, parents: Sequence[str], rng: random.Random) -> str:
        """The first parent with the better constants of the others, one of them moved a step."""
        values = {name: int(value) for name, value in constants(parents[0]).items()}
        for other in parents[1:]:
            theirs = constants(other)
            for name in OPTIMUM:
                other_value = int(theirs.get(name, values[name]))  # only what differs is shown
                values[name] = min(values[name], other_value, key=lambda v, n=name: off(n, v))
        away = rng.random() < self.worse
        wrong = [name for name in OPTIMUM if values[name] != OPTIMUM[name]]
        name = rng.choice(list(OPTIMUM) if away or not wrong else wrong)
        rises = (values[name] < OPTIMUM[name]) != away
        step = (
            (lambda v: v + 1 if rises else max(v - 1, 1))
            if name == "STAGES"
            else (lambda v: v * 2 if rises else max(v // 2, 1))
        )
        return constants_set(parents[0], **values | {name: step(values[name])})


def off(name: str, value: int) -> float:
    """How far a constant is from the optimum, in steps."""
    best = OPTIMUM[name]
    return abs(value - best) if name == "STAGES" else abs(math.log2(value / best))


def shown_programs(prompt: str) -> list[str]:
    """The programs that a prompt wants changed, joined or compared."""
    start = max(prompt.find(heading) for heading in _HEADINGS)
    return [program for _, program in _PROGRAM.findall(prompt[start:])]


def edits_between(before: str, after: str) -> str:
    """One edit for every line that differs."""
    blocks = [
        f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"
        for old, new in zip(before.split("\n"), after.split("\n"), strict=True)
        if old != new
    ]
    return "Constants.\n" + "".join(blocks)
