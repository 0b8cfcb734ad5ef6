"""A run's facts in memory on the synthetic task, and what tests say about prompts."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.model import CallStatus, Exchange, ModelCard, ModelReply, ModelRequest
from evolve.core.program import Assignment, Program
from evolve.core.protocols import Attempt, Context, Elite, rank
from evolve.testing.facts import MemoryFacts
from evolve.testing.parts import make_context
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task

PLAIN = '''\
"""A synthetic kernel with fixed constants."""

BLOCK = 16
UNROLL = 1
STAGES = 1


def tile(x):
    return x[:BLOCK]


class ModelNew:
    def forward(self, x):
        return tile(x) * UNROLL * STAGES
'''

DEVICE = {"device_class": "cpu: test", "cpu": "Test, 2 cores", "compiler": "g++ 14"}


class History(MemoryFacts):
    """Facts in memory with the archive and the contexts that follow from them."""

    def __init__(self, **task: object) -> None:
        super().__init__(task=synthetic_task(**task), evaluator=SyntheticEvaluator(noise=0.0))
        self._elites: dict[str, Elite] = {}

    def add(
        self,
        source: str,
        parents: Sequence[str] = (),
        *,
        operator: str = "seed",
        note: str = "",
        assignment: Assignment | None = None,
        status: Status | None = None,
        feedback: str = "",
    ) -> Attempt:
        """A judged step; `status` with `feedback` plants another verdict."""
        program = Program(source)
        elite = self.judge(
            program,
            assignment,
            operator=operator,
            parents=parents,
            note=note,
            verdict=None if status is None else failing(status, feedback),
        )
        held = self._elites.get(program.digest)
        if elite and (held is None or elite.fitness.value > held.fitness.value):
            self._elites[program.digest] = elite
        return self.attempts[-1]

    def elites(self) -> list[Elite]:
        """Every correct program by its best evaluation, best first."""
        return sorted(self._elites.values(), key=rank)

    def context(
        self,
        parents: Sequence[Elite] = (),
        *,
        sequence: int | None = None,
        seed: int = 0,
        model: ModelCard | None = None,
        device: Mapping[str, str] | None = None,
        operator: str = "",
    ) -> Context:
        context = make_context(
            self,
            parents,
            sequence=len(self.attempts) if sequence is None else sequence,
            elites=self.elites(),
            device=DEVICE if device is None else device,
            model=model,
        )
        return replace(context, rng=random.Random(seed), operator=operator)


def failing(status: Status, feedback: str = "") -> Evaluation:
    """A verdict on a program that is not correct."""
    return Evaluation(
        status=status,
        stage=Stage.INTERFACE,
        fidelity=Fidelity.SEARCH,
        task_revision="0" * 64,
        device_class="synthetic",
        evaluator_version="synthetic-1",
        feedback=feedback,
    )


def name_of(operator: object) -> str:
    """What an operator is called in a configuration: `macro_micro`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(operator).__name__).lower()


def answer(request: ModelRequest, text: str, status: CallStatus = CallStatus.COMPLETED) -> Exchange:
    """A round whose reply is known."""
    return Exchange(request, ModelReply(status=status, text=text))


def request_of(operator: object, context: Context) -> ModelRequest:
    """What the operator asks; a refusal fails the test."""
    asked = operator.propose(context)
    assert isinstance(asked, ModelRequest), asked
    return asked


def prompt_of(request: ModelRequest) -> str:
    """The user's message."""
    (prompt,) = [message.content for message in request.messages if message.role == "user"]
    return prompt


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    _, _, rest = text.partition(f"\n# {heading}\n")
    assert rest, heading
    return rest.partition("\n# ")[0]


def fenced(source: str) -> str:
    return f"It is faster.\n\n```python\n{source}```\n"


def constants_set(source: str, **values: int) -> str:
    """The source with other values of its constants."""
    for name, value in values.items():
        lines = source.split("\n")
        source = "\n".join(
            f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in lines
        )
    return source


def run_of(*sources: str) -> History:
    history = History()
    for source in sources:
        history.add(source)
    return history


def interpreted(operator, history: History, *texts: str, status=CallStatus.COMPLETED):
    """What the operator makes of these replies, one round after the other."""
    context = history.context(history.elites()[: operator.parents], operator=name_of(operator))
    exchanges = [answer(request_of(operator, context), texts[0], status)]
    reading = operator.interpret(context, exchanges)
    for text in texts[1:]:
        assert isinstance(reading.outcome, ModelRequest), reading
        exchanges.append(answer(reading.outcome, text))
        reading = operator.interpret(context, exchanges)
    return reading
