"""Rows of views: training data before any trainer's format.

Every row names the steps that it was made from, so that an exporter can say where each came from
and split by task. Messages are as they were sent; `completion` is the model's reply as it came.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from evolve.core.model import Message, TokenTrace
from evolve.trajectories.step import Outcome, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Base of all rows. `steps` has its sources, the one that is learned from first."""

    steps: tuple[Step, ...]

    @property
    def step(self) -> Step:
        return self.steps[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Row):
    """One prompt and one completion: supervised rows, and labelled ones (KTO).

    `score` is the speedup over the step's parent, if the recipe gives one; `label` whether it is
    wanted; `trace` the completion's tokens with their log-probabilities if an endpoint returned
    them.
    """

    prompt: tuple[Message, ...]
    completion: str
    score: float | None = None
    label: bool | None = None
    trace: TokenTrace | None = None

    @property
    def outcome(self) -> Outcome | None:
        """The program in it; None if it holds none, or an unwanted one."""
        return None if self.score is None or self.label is False else self.step.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOnly(Row):
    """A prompt whose answers a reward judges while training, by the task and parent of its step."""

    prompt: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Row):
    """Several answers to one prompt, in the order of `steps`, with rewards and advantages."""

    prompt: tuple[Message, ...]
    completions: tuple[str, ...]
    rewards: tuple[float, ...]
    advantages: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference(Row):
    """Two completions of one prompt, the better first; `margin` is the log of their ratio."""

    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Row):
    """Several turns. `labels` has one entry for each assistant turn, in order.

    Turns that were in the first prompt already, as examples, have None. `steps` has those of all
    others, the last one first.
    """

    messages: tuple[Message, ...]
    labels: tuple[bool | None, ...]

    @property
    def learned(self) -> tuple[bool, ...]:
        """Of every message whether it is learned from: an assistant's that is known to be wanted.

        Raises:
            ValueError: there are more or fewer labels than assistant turns.
        """
        places = zip(self._answers(), self.labels, strict=True)
        wanted = {place for place, label in places if label is True}
        return tuple(place in wanted for place in range(len(self.messages)))

    def by_turn(self) -> Iterator[Example]:
        """A row for each turn that is learned from: all that came before it, and its answer."""
        learned, steps = self.learned, self.steps[::-1]
        for number, place in enumerate(self._answers()[-len(steps) :]):
            if learned[place]:
                yield Example(
                    steps=steps[number::-1],
                    prompt=self.messages[:place],
                    completion=self.messages[place].content,
                )

    def _answers(self) -> list[int]:
        return [n for n, message in enumerate(self.messages) if message.role == "assistant"]
