"""What a prompt shows of other steps and of other runs: programs, attempts, words, findings."""

import re
from collections.abc import Collection, Iterable, Sequence

from evolve.core.model import Exchange
from evolve.core.recalled import Recalled
from operators.prompting.prompt_context import recalled_line

_NAMED = re.compile(r"program ([0-9a-f]{8}):$", re.MULTILINE)
_ATTEMPT = re.compile(r"^- step (\d+), ", re.MULTILINE)
_WORDS = re.compile(r"^<quoted [0-9a-f]{8} (?:summary|design|intents?|diagnosis)>$", re.MULTILINE)


def named_programs(prompt: str) -> Collection[str]:
    """Beginnings of the digests of the programs whose text a prompt shows.

    The prompts of our operators put a line with its name before each (`prompt_context`).
    """
    return {
        found[1]
        for found in _NAMED.finditer(prompt)  # several times faster than with ^ before it
        if found.start() == 0 or prompt[found.start() - 1] == "\n"
    }


def texts_of(exchanges: Iterable[Exchange]) -> Sequence[str]:
    """The messages of all rounds: a plan that a prompt led to is in the prompt of the next one."""
    return [message.content for one in exchanges for message in one.request.messages]


def told_steps(prompt: str) -> Collection[int]:
    """Numbers of the run's steps that a prompt tells the outcomes and notes of (`attempt_text`)."""
    return {int(number) for number in _ATTEMPT.findall(prompt)}


def quotes_words(prompt: str) -> bool:
    """Whether a prompt quotes what models said in steps that it does not number: a summary, ..."""
    return _WORDS.search(prompt) is not None


def shown_findings(recalled: Iterable[Recalled], prompts: Sequence[str]) -> list[Recalled]:
    """The findings of finished runs that one of the prompts shows."""
    return [one for one in recalled if any(recalled_line(one) in prompt for prompt in prompts)]
